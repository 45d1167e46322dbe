"""The support agent of examples/support.py does what its page says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest

import perdure
from examples import support
from perdure.testing import play

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")
RUN = "ticket-42/support/main"
WAIT_S = 60


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[perdure.Store]:
    monkeypatch.chdir(tmp_path)
    with perdure.open("support.db") as store:
        ticket = support.Ticket("c-7", messages=["Where is my money?"])
        with store.agent("ticket-42", support.Ticket, initial=ticket).edit("the customer wrote"):
            pass
        yield store


def until(ready: Callable[[], object]) -> None:
    ends = time.monotonic() + WAIT_S
    while not ready():
        assert time.monotonic() < ends, "it did not come"
        time.sleep(0.02)


def run_until_it_dies(store: perdure.Store) -> None:
    with suppress(SystemExit):
        store.run(support.support, "ticket-42")


def refunds(folder: Path) -> list[int]:
    return [json.loads(path.read_text())["cents"] for path in (folder / "bank").glob("*")]


def test_it_waits_for_a_person_in_another_process_and_refunds_once(tmp_path: Path) -> None:
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, str(ROOT / "examples" / "support.py")]

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
        )

    first = start()
    try:
        until((tmp_path / "support.db").exists)
        with perdure.open(tmp_path / "support.db") as store:
            until(lambda: [run for run in store.runs() if run.status == "waiting"])
            first.kill()  # it waits without a process
            first.communicate(timeout=WAIT_S)
            handle = store.handle(RUN)
            assert handle.questions()[0].question == "Refund 4200 cents of invoice-of-c-7?"
            handle.answer(True, by="ann")
        for _ in range(2):
            again = start()
            out, _ = again.communicate(timeout=WAIT_S)
            assert out == "receipt for invoice-of-c-7\n"
    finally:
        first.kill()
    assert refunds(tmp_path) == [4200]


def test_a_refund_in_doubt_is_looked_for_and_not_made_again(
    store: perdure.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies after the bank has paid, and before that is recorded."""
    paid = Path.write_text

    def pay_and_die(path: Path, text: str) -> int:
        paid(path, text)
        raise SystemExit("kill -9")

    handle = store.start(support.support, "ticket-42")
    going = Thread(target=run_until_it_dies, args=(store,))
    monkeypatch.setattr(Path, "write_text", pay_and_die)
    going.start()
    until(handle.questions)
    handle.answer(True)
    going.join(WAIT_S)
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert [effect.state for effect in handle.effects()] == ["in doubt"]
    assert store.run(support.support, "ticket-42") == "receipt for invoice-of-c-7"
    assert [effect.by for effect in handle.effects()] == ["probe"]
    assert refunds(tmp_path) == [4200]


def test_nobody_answers_for_a_day_and_nothing_is_refunded() -> None:
    played = play(support.support, state=support.Ticket("c-7", messages=["Hello"]))
    assert played.result == "nothing was refunded"
    assert played.state.status == "declined"


def test_the_readmes_run_that_waits_for_people(tmp_path: Path) -> None:
    """What README shows in two terminals, with a worker that is killed while the run waits."""
    found = re.search(r"<!-- file: support.py -->\n```python\n(.*?)^```$", README, re.M | re.S)
    assert found is not None
    (tmp_path / "support.py").write_text(found.group(1))
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    ours = [sys.executable, "-m", "perdure"]

    def call(*command: str) -> None:
        subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env=environment,
            check=True,
            timeout=WAIT_S,
            stdout=subprocess.DEVNULL,
        )

    def worker() -> subprocess.Popen[bytes]:
        command = [*ours, "worker", "support", "--store", "agents.db"]
        return subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL)

    call("support.py")
    first = worker()
    with perdure.open(tmp_path / "agents.db") as store:
        handle = store.handle("ticket-43/support/main")
        try:
            until(handle.questions)
        finally:
            first.kill()
            first.wait(WAIT_S)
        call("-m", "perdure", "--store", "agents.db", "answer", "ticket-43", "yes")
        second = worker()
        try:
            call("-m", "perdure", "--store", "agents.db", "signal", "ticket-43", "note", "sorry")
            call("-m", "perdure", "--store", "agents.db", "why", "ticket-43")
            assert handle.result(timeout=WAIT_S) == "refunded bill of c-7, sorry"
        finally:
            second.terminate()
            assert second.wait(WAIT_S) == 0
