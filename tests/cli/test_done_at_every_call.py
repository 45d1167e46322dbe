"""Each call of the backend fails once, at every place of a command: what says that it is not done
is not done.

Story: a signal was durable, and the read behind it, for what becomes of the run, failed. The
command said `not_done`, and that it may be repeated; repeated, the signal was there twice, and the
run took both.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import StoreUnavailable
from perdure.integrations.langgraph import PerdureSaver
from perdure.storage.sqlite.backend import SqliteBackend
from perdure.testing.driving import run_until_waiting
from tests.cli.operator import Operator, crash

# `notify` never raises.
CALLS = [
    name
    for name, value in vars(SqliteBackend).items()
    if callable(value) and not name.startswith("_") and name not in ("close", "url", "notify")
]
NAMES = ("ticket-42", "ticket-43", "desk", "later", "broken", "fresh", "t")
PLACES = 200
"""More calls than any of these commands makes."""


@perdure.step
def once() -> int:
    return 1


@perdure.agent(dict)
def desk(run: Any) -> Any:
    return run.ask("Refund?"), run.wait_for("paid")


@perdure.agent(dict)
def breaks(run: Any) -> None:
    once()
    raise ValueError("no")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("done") / "agents.db"
    with perdure.open(path) as store:
        agent = store.agent("ticket-42")
        for n in range(3):
            agent.save({"n": n}, f"said {n}")
        run_until_waiting(store, desk, "desk")
        store.start(desk, "later")
        with pytest.raises(ValueError, match="no"):
            store.run(breaks, "broken")
        store.agent("ticket-43").save({"customer": "c-8"}, "opened")
        crash(store, "ticket-43")
    return path


class Failing:
    """The backend's calls on this thread, of which one fails, before it does anything."""

    def __init__(self) -> None:
        self.at = self.made = self.depth = 0
        self.failed = ""
        self.thread = threading.get_ident()

    def wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if threading.get_ident() != self.thread or self.depth:
                return real(*args, **options)
            self.made += 1
            if self.made == self.at:
                self.failed = name
                raise StoreUnavailable("an input/output error", target="the store")
            self.depth += 1
            try:
                return real(*args, **options)
            finally:
                self.depth -= 1

        return call

    @contextmanager
    def failing(self, patch: pytest.MonkeyPatch, at: int) -> Iterator[None]:
        with patch.context() as here:
            self.at, self.made = at, 0
            for name in CALLS:
                here.setattr(SqliteBackend, name, self.wrap(name, vars(SqliteBackend)[name]))
            yield


def picture(path: Path) -> Any:
    """All that stays: logs, names, messages."""
    with perdure.open(path) as store:
        backend = store._context.backend
        found = [info for name in NAMES if (info := backend.agent(name)) is not None]
        logs = [
            (info, [(ref.name, ref.seq, ref.deleted) for ref in backend.refs(info.no)])
            for info in found
        ]
        return logs, backend.inbox()


def each_place(
    filled: Path, folder: Path, patch: pytest.MonkeyPatch, act: Callable[[Path], Any]
) -> list[str]:
    """Has each call fail in turn; returns how these came out. `act` returns the outcome that an
    error says, or None."""
    outcomes: list[str] = []
    path, failing = folder / "agents.db", Failing()
    for at in range(1, PLACES):
        shutil.rmtree(f"{path}-executors", ignore_errors=True)
        for file in folder.glob("agents.db*"):
            file.unlink()
        shutil.copy(filled, path)
        before = picture(path)
        with failing.failing(patch, at):
            outcome = act(path)
        if failing.made < at:
            return outcomes
        changed = picture(path) != before
        outcomes.append(outcome or "nothing")
        if outcome == "not_done":
            assert not changed, f"{failing.failed}, call {at}, failed behind what was done"
        elif outcome == "done":
            assert changed, f"{failing.failed}, call {at}, failed before that"
    raise AssertionError("it makes ever more calls")


COMMANDS = {
    "signal": ["signal", "desk", "paid", "5"],
    "answer": ["answer", "desk", "yes"],
    "cancel": ["cancel", "desk"],
    "cancel what has not begun": ["cancel", "later/desk/main"],
    "fork": ["fork", "ticket-42", "beside", "--at", "2"],
    "checkpoint": ["checkpoint", "ticket-42", "here"],
    "undo": ["undo", "ticket-42"],
    "rollback": ["rollback", "ticket-42", "1"],
    "retry": ["retry", "broken", "--from", "once#1"],
    "run fork": ["run", "fork", "broken/breaks/main", "beside", "--from", "once#1"],
    "settle": ["settle", "ticket-43", "refund#1", "--not-done"],
    "delete": ["delete", "ticket-42", "--yes"],
}


@pytest.mark.parametrize(
    ("name", "as_json"), [*((name, True) for name in COMMANDS), ("signal", False), ("fork", False)]
)
def test_a_command_that_says_not_done_is_not_done(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, as_json: bool
) -> None:
    def act(path: Path) -> str | None:
        said = Operator(path).type(*COMMANDS[name], *["--json"] * as_json)
        if not said.exit_code:
            return None
        assert said.exit_code in (1, 6), said.output
        if not as_json:
            return "not_done" if said.exit_code == 6 else "done"
        error = json.loads(said.stderr.strip().splitlines()[-1])
        assert (error["exit_code"] == 6) == (error["outcome"] != "done")
        assert error["retry"] == (error["outcome"] != "done")
        return str(error["outcome"])

    outcomes = each_place(filled, tmp_path, monkeypatch, act)
    assert "not_done" in outcomes
    if name in ("signal", "answer", "cancel", "fork"):
        assert "done" in outcomes


def handle_of(store: perdure.Store, agent: str) -> Any:
    (run,) = [run for run in store.runs() if run.agent == agent]
    return store.handle(run.id)


CALLED: dict[str, Callable[[perdure.Store], Any]] = {
    "signal": lambda store: handle_of(store, "desk").signal("paid", 5),
    "answer": lambda store: handle_of(store, "desk").answer(True),
    "cancel": lambda store: handle_of(store, "desk").cancel(),
    "cancel, waiting": lambda store: handle_of(store, "desk").cancel(wait=True),
    "cancel what has not begun": lambda store: handle_of(store, "later").cancel(),
    "retry": lambda store: handle_of(store, "broken").retry("once#1"),
    "fork": lambda store: handle_of(store, "broken").fork("once#1", branch="beside"),
    "settle": lambda store: handle_of(store, "ticket-43").settle("refund#1", not_done=True),
    "start": lambda store: store.start(desk, "fresh"),
    "delete": lambda store: store.delete("ticket-42"),
    "delete, ending runs": lambda store: store.delete("desk", cancel_runs=True),
}


@pytest.mark.parametrize("name", CALLED)
def test_a_call_that_says_not_done_is_not_done(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def act(path: Path) -> str | None:
        try:
            with perdure.open(path) as store:
                CALLED[name](store)
        except StoreUnavailable as error:
            return error.outcome if error.retry == (error.outcome != "done") else "retries"
        return None

    outcomes = each_place(filled, tmp_path, monkeypatch, act)
    assert "retries" not in outcomes
    # A deletion is tried again before it says that something failed.
    assert ("not_done" in outcomes) == (not name.startswith("delete"))
    if name.startswith(("answer", "cancel")) and "begun" not in name:
        assert "done" in outcomes


def test_a_thread_that_is_not_deleted_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same for LangGraph's threads: a read behind the deletion failed."""
    (tmp_path / "work").mkdir()
    filled = tmp_path / "threads.db"
    with perdure.open(filled) as store:
        saver = PerdureSaver(store)
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        checkpoint: Any = {
            "v": 4,
            "id": "1ef",
            "ts": "2026-01-01T00:00:00+00:00",
            "channel_values": {},
            "channel_versions": {},
            "versions_seen": {},
        }
        saver.put(config, checkpoint, {"source": "input", "step": -1}, {})

    def act(path: Path) -> str | None:
        try:
            with perdure.open(path) as store:
                PerdureSaver(store).delete_thread("t")
        except StoreUnavailable as error:
            return error.outcome
        return None

    assert "not_done" in each_place(filled, tmp_path / "work", monkeypatch, act)


def test_an_answer_that_came_too_late_is_a_conflict(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is what its sender asked for: it is not hidden behind what is done."""
    shutil.copy(filled, tmp_path / "agents.db")
    with perdure.open(tmp_path / "agents.db") as store:
        handle = handle_of(store, "desk")
        (question,) = handle.questions()
        handle.answer(True, to=question)
        with pytest.raises(perdure.Conflict, match="answered already") as caught:
            handle.answer(False, to=question)
        assert "inbox" not in str(caught.value)
