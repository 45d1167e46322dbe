"""A process without descriptors for new connections: its server was there all the time."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest

from perdure.storage.postgres import line
from perdure.storage.postgres.faults import AwayError
from tests.postgres.conftest import Open

STORY = """
import logging, os, resource, sys, threading
import perdure

perdure.Worker  # loaded
logging.disable()

@perdure.agent(dict)
def job(run: perdure.Run[dict]) -> str:
    return "done"

url, leave = sys.argv[1], int(sys.argv[2])
with perdure.open(url) as store:
    store.run(job, "warm")
store = perdure.open(url)
resource.setrlimit(resource.RLIMIT_NOFILE, (150, 150))
taken = []
try:
    while True:
        taken.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    for _ in range(leave):
        os.close(taken.pop())
try:
    store.agent("a").save({})
except perdure.StoreUnavailable as error:
    print(error.outcome)

def heard(event):
    if event.kind in ("unavailable", "available"):
        print(event.kind)
    if event.kind == "unavailable":
        while taken:
            os.close(taken.pop())
        given.set()

given = threading.Event()
worker = perdure.Worker(store, [job], on_event=heard)
thread = threading.Thread(target=worker.run, daemon=True)
thread.start()
given.wait()
print(store.options(key="later").start(job, "warm").result(timeout=60))
worker.stop()
thread.join()
store.close()
"""


@pytest.mark.parametrize("leave", [0, 1])
def test_i8_a_worker_without_descriptors_goes_on_when_there_are_some(url: str, leave: int) -> None:
    """psycopg waits for a new connection by a descriptor beside the socket's. Where there was room
    for one alone, its OSError came out of calls, ended the worker for good, and the line's
    thread."""
    done = subprocess.run(
        [sys.executable, "-c", STORY, f"{url}&retry=0", str(leave)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    first, then, *rest = done.stdout.split()
    assert (first, then, done.stderr) == ("not_done", "unavailable", "")
    assert sorted(rest) == ["available", "done"]  # two threads say so


def test_a_line_that_is_down_pauses_between_its_tries(
    url: str, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process without descriptors said 548 times within seconds that its line was down: each try
    of the line's thread that failed woke that thread for the next one."""
    backend: Any = open_store(url)
    tries: list[str] = []
    pauses: list[float] = []
    woken: list[bool] = []
    enough = threading.Event()

    def connect() -> Any:
        tries.append(threading.current_thread().name)
        enough.set() if len(tries) > 5 else None
        raise AwayError("away")

    found = line.PermanentConnection._sleep

    def sleep(self: Any, wake: int, db: Any, seconds: float) -> bool:
        pauses.append(seconds)
        woken.append(found(self, wake, db, 0 if len(pauses) > 1 else seconds))
        return woken[-1]

    monkeypatch.setattr(line.PermanentConnection, "_sleep", sleep)
    monkeypatch.setattr(backend._line, "_connect", connect)
    backend._line.hold("somebody")
    assert enough.wait(30)
    assert tries[0] != "perdure-line"
    assert set(tries[1:]) == {"perdure-line"}
    assert pauses[1:5] == [0.4, 0.8, 1.6, 2.0]
    assert woken[1:5] == [False] * 4
