"""Each public call takes the same however long the history behind it is, or grows in proportion.

Nobody had looked: a crash after `asyncio.gather` of 3,000 recorded steps left a run that did not
come back within two minutes, and a page of the runs of a store read all that was asked for of it.
Counted by lines and by SQLite's steps, never by time.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

import perdure
from bench.growth.calls import CALLS
from bench.growth.counting import lines_of
from bench.growth.places import HISTORIES, SqlitePlaces, finishing, waiting
from bench.growth.postgres import SETTINGS, PostgresPlaces
from bench.growth.table import LATE, grown
from perdure.model import Message
from perdure.storage.capabilities import RunQuery
from perdure.storage.memory.backend import MemoryBackend
from perdure.testing.driving import run_until_waiting
from tests.postgres.server import Server
from tests.rubbish.subjects import CLASSES, found

for _module in LATE:
    import_module(_module)  # they register calls of their own

LENGTHS = (30, 120)
FEWER = (15, 60)
"""Of what takes long to build."""

MORE = (60, 240)
"""Where what is read ahead at a time is no small part of a shorter one."""

FORKED = (260, 520)
"""Of checkpoints to which somebody goes back from further away than a look ahead goes."""

RUNS = (70, 210)
"""More than are looked at to see whether an index lacks any of the latest."""

COPIES = (60, 240)
"""Of copies of many agents: some hundred share a transaction, and what is done there for each of
them is little at first, however it grows."""

EXCUSED = {
    "Worker.__init__": "what it does are looks that `scale` measures, and runs",
    "Worker.stop": "sets a flag",
    "Worker.can_run": "looks at an object",
    "Worker.functions": "its own list",
    "Worker.running": "its own list",
    "Store.runner": "of the library's own faces",
    "Store.close": "what it flushes is no history",
    "Store.url": "a text",
    "Store.incarnations": "a look-up for each agent of the name",
    "Store.origins": "a look-up and one commit for each origin",
    "Options.order": "of the library's own faces",
    "Options.runner": "of the library's own faces",
    "replication.follow": "steps, as `Follower.step`, until it is told to stop",
    "Child.waiting": "of the library's own faces",
    "Child.ended": "of the library's own faces",
    "Child.cancelling": "of the library's own faces",
    "Child.signalling": "of the library's own faces",
    "Child.end": "what `Child.result` waits for",
    "RunHandle.settle": "reads the journal as `effects` does, and commits as `cancel` does",
    "Ticket.keep": "one record of what is kept",
    "Ticket.settle": "of the library's own faces",
    "Ticket.value": "a value at hand",
    "Run.compensate": "a call for each that it undoes; it reads the log as `effects` does",
    "RunHandle.resume": "commits as `cancel` does, and reads less",
}
"""Without a line in the table, and why."""

_DECLARED = (
    "Schema",
    "SnapshotPolicy",
    "CheckpointPolicy",
    "Guards",
    "Retry",
    "Signal",
    "Ask",
    "Timer",
)
"""Made by callers, with no log behind them."""


def test_each_public_call_has_a_line_or_a_reason() -> None:
    """A new one must be measured. The async faces delegate to these, each under the same name."""
    measured = {name for one in CALLS for name in one.names}
    measured -= {name for name in measured if name.startswith(("Perdure", "perdure ", "Follower."))}
    public = {name for name in found() if "." in name} | _properties()
    missing = {
        name
        for name in public
        if not name.endswith(".__init__")
        and name.split(".")[0] not in _DECLARED
        and not name.startswith("Async")
        and name not in measured
        and name not in EXCUSED
    }
    assert not missing, "measure it in bench/growth, or say here why not"
    assert measured <= public, "there is no such call"
    assert public >= EXCUSED.keys(), "there is no such call to excuse"
    assert not measured & EXCUSED.keys()


def _properties() -> set[str]:
    return {
        f"{cls.__name__}.{name}"
        for cls in CLASSES
        for name in dir(cls)
        if not name.startswith("_") and isinstance(inspect.getattr_static(cls, name), property)
    }


@pytest.mark.parametrize("history", HISTORIES)
def test_i8_no_call_grows_above_what_it_may(history: str, tmp_path: Path) -> None:
    places = SqlitePlaces(tmp_path)
    lengths = MORE if history == "thread" else LENGTHS
    lengths = FEWER if history in ("agents", "inbox", "orders") else lengths
    lengths = RUNS if history == "runs" else lengths
    lengths = FORKED if history == "forked" else lengths
    too_much = [
        f"{one.what}: {line.factor:.2f} times for {line.longer:g} times the history: {line.works}"
        for one in CALLS
        if one.history == history
        for line in [grown(one, lengths, places, timed=False)]
        if line.factor > line.factor_max
    ]
    assert not too_much, "\n".join(too_much)


@pytest.mark.parametrize("what", ["replication.following, all of a store", "replication.migrate"])
def test_each_of_many_agents_is_copied_as_if_it_were_alone(what: str, tmp_path: Path) -> None:
    """Each run of a shipment looked at all of its messages, each agent that moved at the feed of
    all, and each agent that was closed at all that were: moving 10,000 took the square of them."""
    [one] = [one for one in CALLS if one.what == f"{what} beside as many agents"]
    line = grown(one, COPIES, SqlitePlaces(tmp_path), timed=False)
    assert line.factor <= line.factor_max, line.works


def test_on_postgres_the_calls_that_are_made_most_grow_no_faster() -> None:
    """A share of ``python -m bench growth-postgres``. None of them makes its history much longer:
    each finds the store as the one before it left it.

    A run that began or ended read all unread messages and all runs of the store, one that took a
    message all that its agent had ever been sent, and each look all snapshots: the server cannot
    tell how many rows come out of JSON, and put the whole of a table into a hash table.
    """
    names = {
        "Store.agent, Agent.state",
        "Agent.edit",
        "Agent.edit with a key that was used",
        "Agent.log, the newest 20",
        "Store.find, Store.agent_of",
        "Agent.verify",
        "Store.run beside as many agents",
        "Run.wait_for behind as many signals that were taken",
    }
    server = Server(SETTINGS).start()
    try:
        places = PostgresPlaces(server, copied=False)
        calls = [
            one for one in CALLS if one.history in ("log", "agents", "taken") and one.what in names
        ]
        lines = [grown(one, LENGTHS, places, timed=False) for one in calls]
    finally:
        server.remove()
    assert len(lines) == len(names)
    for line in lines:
        assert line.factor <= line.factor_max, (line.call.what, line.works)
        first, last = line.works
        if line.call.growth == "flat":
            assert last.statements <= first.statements + 1, line.call.what
        assert first.steps > 0


@pytest.mark.parametrize("look", ["inbox", "page", "named", "row", "rows", "look", "send"])
def test_in_memory_one_run_does_not_cost_what_all_cost(look: str) -> None:
    """The store in memory went over the messages of all runs for those of one, and over the rows
    of all agents for one row: a test with many agents took the square of them."""
    lines = [_lines_in_memory(look, others) for others in (50, 800)]
    assert lines[1] <= lines[0] + 5


def _lines_in_memory(look: str, others: int) -> int:
    with perdure.open("memory://") as store:
        for number in range(others):
            store.run(finishing, f"done-{number}")
            store.start(finishing, f"asked-{number}")
        run_until_waiting(store, waiting, "a", 1).signal("go")
        backend, run = store._context.backend, "a/waiting/main"
        assert isinstance(backend, MemoryBackend)
        does: dict[str, Callable[[], object]] = {
            "inbox": lambda: backend.inbox(run),
            "page": lambda: backend.inbox(kind="start", limit=3, newest_first=True),
            "named": lambda: backend.inbox(kind="start", name="finishing", limit=3),
            "row": lambda: backend.runs(RunQuery(run_id=run)),
            "rows": lambda: backend.runs(RunQuery(agent="a", unfinished=True)),
            "look": lambda: backend.look("a", run),
            "send": lambda: backend.send(Message(run, "a", "signal", "go", str(others))),
        }
        does[look]()
        return lines_of(does[look])
