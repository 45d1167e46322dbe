"""Stores with a history of a given length. Each is built once, closed, and copied for each call."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import perdure
from bench.growth.counting import Counter, SqliteCounter
from perdure import Agent, Run, RunHandle, SnapshotPolicy, Store
from perdure.testing.driving import run_until_waiting

WINDOW = 10
"""Items of a state's list: its size stays the same, however long the log."""

SNAPSHOTS = SnapshotPolicy(every_commits=10)
"""What lies behind the last snapshot is bounded by its size, some hundred small commits. So few
that the shortest history has many."""


class Leaving(BaseException):
    """Leaves a run in the middle, as `SystemExit` would."""


@dataclass(frozen=True, slots=True)
class Place:
    """A store that is open, and the length of the history in it.

    Attributes:
        other: the URL of a store that is not there yet.
    """

    url: str
    store: Store
    length: int
    other: str

    def agent(self) -> Agent[dict[str, Any]]:
        """One that has read its state."""
        agent = self.store.agent("a")
        _ = agent.state
        return agent

    def handle(self, name: str = "waiting") -> RunHandle[Any]:
        return self.store.handle(f"a/{name}/main")


class Places(Protocol):
    """The stores of one measurement.

    Attributes:
        counter: of what the database does.
    """

    counter: Counter

    def build(self, history: str, length: int) -> None:
        """Make a store, if it is not there yet."""

    def open(self, history: str, length: int) -> AbstractContextManager[Place]:
        """A copy of it, which is gone afterwards."""


class SqlitePlaces:
    """In a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._copies = 0
        self.counter: Counter = SqliteCounter()

    def build(self, history: str, length: int) -> None:
        self._built(history, length)

    def _built(self, history: str, length: int) -> Path:
        path = self._folder / f"{history}-{length}" / "store.db"
        if not path.exists():
            path.parent.mkdir(parents=True)
            with perdure.open(path, durability="os", snapshots=SNAPSHOTS) as store:
                HISTORIES[history](store, length)
        return path

    @contextmanager
    def open(self, history: str, length: int) -> Iterator[Place]:
        source = self._built(history, length)
        self._copies += 1
        folder = self._folder / f"copy-{self._copies}"
        folder.mkdir()
        path = folder / "store.db"
        shutil.copyfile(source, path)
        with perdure.open(path, durability="os", snapshots=SNAPSHOTS) as store:
            yield Place(str(path), store, length, str(folder / "other.db"))
        shutil.rmtree(folder)


# -- what grows ------------------------------------------------------------------------------------


def slide(agent: Agent[dict[str, Any]], number: int) -> None:
    """An edit after which the state is as large as before."""
    with agent.edit("moved on") as draft:
        draft["n"] = number
        draft["window"].append(number)
        del draft["window"][0]


def _log(store: Store, length: int) -> None:
    agent = store.agent("a", initial={"n": 0, "window": [0] * WINDOW})
    for number in range(length):
        slide(agent, number)
    agent.checkpoint("near")
    side = agent.fork("side")
    slide(side, length)
    slide(agent, length + 1)


def _undos(store: Store, length: int) -> None:
    """Of the second half of the log."""
    agent = store.agent("a", initial={"n": 0, "window": [0] * WINDOW})
    for number in range(length // 2 + 10):
        slide(agent, number)
    for _ in range(length // 2):
        agent.undo()


def _toggles(store: Store, length: int) -> None:
    agent = store.agent("a", initial={"n": 0, "window": [0] * WINDOW})
    for number in range(10):
        slide(agent, number)
    for _ in range(length):
        agent.undo()
        agent.redo()


def _tries(store: Store, length: int) -> None:
    """Each is undone before the next one."""
    agent = store.agent("a", initial={"n": 0, "window": [0] * WINDOW})
    for number in range(10):
        slide(agent, number)
    for number in range(length):
        slide(agent, number)
        agent.undo()


def _returns(store: Store, length: int) -> None:
    """Each is gone back from, to the commit before it, before the next one."""
    agent = store.agent("a", initial={"n": 0, "window": [0] * WINDOW})
    for number in range(length):
        slide(agent, 1 + number)  # what changes nothing is no commit
        agent.rollback(agent.seq - 1)


def _group(store: Store, length: int) -> None:
    """As of an answer that came by the word, while others wrote beside it."""
    agent = store.agent("a", initial={"n": 0, "words": [], "by_key": {}})
    for number in range(length):
        with agent.edit("beside") as draft:
            draft["n"] = number
        with agent.edit("a word", group="answer") as draft:
            draft["words"].append(number)
            draft["by_key"][f"k{number}"] = number


def _names(store: Store, length: int) -> None:
    agent = store.agent("a", initial={"n": 0, "window": [0] * WINDOW})
    slide(agent, 1)
    for number in range(length // 2):
        agent.fork(f"fork-{number}")
        agent.checkpoint(f"point-{number}")


def _agents(store: Store, length: int) -> None:
    """Of which each has a finished run; and as many runs that nobody has begun."""
    for number in range(length):
        store.run(finishing, f"agent-{number:06}")
        store.start(finishing, f"asked-{number:06}")
    slide(store.agent("a", initial={"n": 0, "window": [0] * WINDOW}), 1)
    run_until_waiting(store, waiting, "a", 1)


def _runs(store: Store, length: int) -> None:
    """Finished ones, of one agent."""
    for number in range(length):
        store.options(key=f"k{number}").run(finishing, "a")
    run_until_waiting(store, waiting, "a", 1)


def _orders(store: Store, length: int) -> None:
    """As many messages of one conversation, and one of another that came last."""
    for number in range(length):
        store.options(key=f"k{number}").start(finishing, "a")
    store.start(finishing, "b")


def _steps(store: Store, length: int) -> None:
    run_until_waiting(store, waiting, "a", length)


def _going(store: Store, length: int) -> None:
    """The same steps of a run that nobody goes on with, and that waits for nothing."""
    PROBES[:] = [_leave]
    with suppress(Leaving):
        store.run(probed, "a", length)


def _leave(run: Any) -> None:
    raise Leaving


def _turns(store: Store, length: int) -> None:
    PROBES[:] = [_leave]
    with suppress(Leaving):
        store.run(turning, "a", length)


def _inbox(store: Store, length: int) -> None:
    handle = run_until_waiting(store, waiting, "a", 1)
    for number in range(length):
        handle.signal("other", number)


def _taken(store: Store, length: int) -> None:
    """As a chat does, each in a turn of its own."""
    handle = store.start(chatting, "a")
    for number in range(length):
        handle.signal("said", number)
    run_until_waiting(store, chatting, "a")


def _backlog(store: Store, length: int) -> None:
    """Said while nobody was there to hear it."""
    handle = store.start(chatting, "a")
    for number in range(length):
        handle.signal("said", number)


HISTORIES: dict[str, Callable[[Store, int], None]] = {
    "log": _log,
    "undos": _undos,
    "toggles": _toggles,
    "tries": _tries,
    "returns": _returns,
    "group": _group,
    "names": _names,
    "agents": _agents,
    "runs": _runs,
    "orders": _orders,
    "steps": _steps,
    "going": _going,
    "turns": _turns,
    "inbox": _inbox,
    "taken": _taken,
    "backlog": _backlog,
}
"""What each is of its length: commits of one agent, undone ones, undos that were each redone at
once, edits that were each undone at once, edits of one group, branches and checkpoints, agents of
the store, runs of one agent, runs of one agent that nobody has begun, steps of a run that waits, of
one that goes on, turns, signals that nobody has read, signals that a run took, signals
to one that has not begun."""


# -- functions of runs -----------------------------------------------------------------------------

PROBES: list[Callable[[Any], Any]] = []
"""What `probed` and `turning` do once they have come through their history."""


@perdure.step
def look(number: int) -> int:
    return number


@perdure.tool(on_crash="fail")
def pay(number: int) -> int:
    return number


@perdure.agent(dict)
def finishing(run: Run[dict[str, Any]]) -> None:
    look(1)


@perdure.agent(dict)
def waiting(run: Run[dict[str, Any]], steps: int) -> bool:
    """Steps, then a question."""
    for number in range(steps):
        look(number)
    pay(1)
    return bool(run.ask("go on?"))


@perdure.agent(dict)
def probed(run: Run[dict[str, Any]], steps: int) -> Any:
    for number in range(steps):
        look(number)
    return PROBES[0](run)


@perdure.agent(dict)
def turning(run: Run[dict[str, Any]], left: int) -> Any:
    look(left)
    return run.again(left - 1) if left else PROBES[0](run)


@perdure.agent(dict)
def chatting(run: Run[dict[str, Any]]) -> Any:
    run.wait_for("said")
    return run.again()
