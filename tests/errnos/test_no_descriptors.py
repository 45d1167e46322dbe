"""A process that has no free descriptor left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TAKING = """
import os, resource, sys
import perdure

taken = []

def take(leave=0):
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    for _ in range(leave):
        os.close(taken.pop())

def give():
    while taken:
        os.close(taken.pop())
"""

STORY = (
    TAKING
    + """
with perdure.open(sys.argv[1]) as store:
    agent = store.agent("a")
    with agent.edit("small") as draft:
        draft["n"] = 1
    take()
    for _ in range(2):
        try:
            with agent.edit("large") as draft:
                draft["text"] = "word " * 1000
        except perdure.StoreUnavailable as error:
            assert error.outcome == "not_done"
            print("refused")
    give()
    with agent.edit("large") as draft:
        draft["text"] = "word " * 1000
    print(agent.seq)
"""
)

FIRST_USES = {
    "open": "perdure.open(path)",
    "open_async": "perdure.open_async(path)",
    "memory": "perdure.open('memory://')",
    "repair": "perdure.repair(path)",
    "checkpoint": "agent.checkpoint('c', dependencies=['msgspec'])",
    "at": "agent.at('made before').mismatches",
    "why": "handle.why()",
    "report": "handle.report()",
    "worker": "perdure.Worker(store, [job])",
    "execution": "store.run(job, 'a')",
}

FIRST_USE = (
    TAKING
    + """
path, call, prepared, leave = sys.argv[1], sys.argv[2], sys.argv[3] == "yes", int(sys.argv[4])
if prepared:
    @perdure.agent(dict)
    def job(run: perdure.Run[dict]) -> int:
        return 1

    store = perdure.open(path)
    agent = store.agent("b")
    agent.checkpoint("made before") if "made before" in call else None
    handle = store.start(job, "c")
take(leave)
try:
    eval(call)
except perdure.PerdureError:
    pass
except BaseException as error:
    give()
    print(type(error).__name__, error)
else:
    call = "None"
give()
eval(call)
"""
)

RUN = (
    TAKING
    + """
@perdure.tool(on_crash="retry")
def pay(n: int) -> str:
    return perdure.idempotency_key()

@perdure.agent(dict)
def job(run: perdure.Run[dict]) -> str:
    take() if hungry else None
    try:
        return str(eval(sys.argv[2]))
    finally:
        give()

store = perdure.open(sys.argv[1])
for hungry in True, False:
    try:
        print(bool(store.run(job, "a")))
    except perdure.StoreUnavailable:
        print(store.handle("a/job/main").status)
"""
)

WORKER = (
    TAKING
    + """
import logging, threading

logging.disable()

@perdure.agent(dict)
async def job(run: perdure.AsyncRun[dict]) -> str:
    return "done"

@perdure.agent(dict)
def before(run: perdure.Run[dict]) -> str:
    return "".join(str(number) for number in range(1000))  # long enough to be packed

def heard(event):
    print(event.kind) if event.kind == "trouble" else None
    give() if event.kind == "trouble" else None

store = perdure.open(sys.argv[1])
store.run(before, "a")
worker = perdure.Worker(store, [job], on_event=heard)
handle = store.start(job, "b")
store.runner.liveness.start()
take()
thread = threading.Thread(target=worker.run, daemon=True)
thread.start()
print(handle.result(timeout=60))
worker.stop()
thread.join()
"""
)


def told_by(program: str, *args: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program, *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_i1_what_is_first_needed_without_descriptors_is_refused_in_our_words(
    tmp_path: Path,
) -> None:
    """Small commits need no descriptor. The first one that is packed loaded the packer, which needs
    one: a bare OSError with the path of a library, at each edit, as long as all were taken."""
    assert told_by(STORY, str(tmp_path / "a.db")) == ["refused", "refused", "3"]


@pytest.mark.parametrize("name", FIRST_USES)
def test_a_part_that_is_first_needed_without_descriptors_is_refused_in_our_words(
    name: str, tmp_path: Path
) -> None:
    """Someone opened a store, or made a checkpoint, where the process had no descriptor left: the
    call loads a module of the library at its first use, and an OSError that no `PerdureError` is
    came out of it. Once there are descriptors again, the call is well."""
    prepared = name not in ("open", "open_async", "memory", "repair")
    for leave in 0, 2:
        path = tmp_path / f"{leave}.db"
        if name == "repair":
            assert (
                told_by("import perdure, sys; perdure.open(sys.argv[1]).close()", str(path)) == []
            )
        words = FIRST_USES[name], "yes" if prepared else "no", str(leave)
        assert told_by(FIRST_USE, str(path), *words) == []


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("pay(1)", ["True", "True"]),
        ("run.random()", ["True", "True"]),
        ("run.map(pay, [1, 2])", ["running", "True"]),
    ],
)
def test_i8_a_run_does_not_fail_by_a_part_of_the_library_that_cannot_be_loaded(
    code: str, told: list[str], tmp_path: Path
) -> None:
    """A tool asked for its idempotency key in a moment without descriptors. The key's module was
    loaded only then: the OSError counted as the tool's, and the run had failed for good."""
    assert told_by(RUN, str(tmp_path / "a.db"), code) == told


def test_i8_a_worker_without_descriptors_for_an_event_loop_tries_again(tmp_path: Path) -> None:
    """A worker began its first asynchronous run where no descriptor was left for an event loop: the
    OSError ended the worker, and nothing was carried out any more."""
    assert told_by(WORKER, str(tmp_path / "a.db")) == ["trouble", "done"]
