"""What an exception left behind in an open SQLite store once: locks, places, transactions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure
from perdure.agents import Agent
from perdure.storage.sqlite.backend import SqliteBackend
from perdure.storage.sqlite.readers import AT_ONCE
from perdure.store import Store
from tests.faults.checking import State
from tests.faults.injecting import KINDS, Helper, count, inject


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with perdure.open(f"sqlite:///{tmp_path}/store.db", durability="os") as one:
        yield one


def _backend(store: Store) -> SqliteBackend:
    backend = store._context.backend
    assert isinstance(backend, SqliteBackend)
    return backend


def _grow(draft: State) -> None:
    draft.n += 1


def _at_each(call: Callable[[], object], step: int) -> Iterator[None]:
    """Comes back behind each injection."""
    for at in range(1, count(call) + 1, step):
        inject(call, at, KINDS[at % len(KINDS)])
        yield


def test_readers_that_are_interrupted_take_no_place_with_them(store: Store) -> None:
    """Ctrl-C came between a look's taking a connection and its giving it back. After eight of
    these, all places were taken by nobody, and every look waited for ever."""
    helper, backend = Helper(), _backend(store)
    store.agent("a", State, initial=State()).update(_grow)
    for _ in _at_each(lambda: backend.read(1, 0, 9), 1):
        pass
    helper.call(lambda: [backend.read(1, 0, 9) for _ in range(2 * AT_ONCE)])


@pytest.mark.parametrize("who", ["reader", "housekeeper", "tidier"])
def test_a_look_that_is_interrupted_twice_leaves_no_transaction(store: Store, who: str) -> None:
    """Ctrl-C came in the middle of a look at an agent and a run, which is a transaction, and once
    more where its connection was to be closed. Nobody closed it any more while the store was open:
    who had it was noted until eight were left so. As long, no writer could begin the WAL anew. It
    grew, and each commit waited for the housekeeper, who waited for that look."""
    backend = _backend(store)
    store.agent("a", State, initial=State()).update(_grow)

    def look() -> object:
        return backend.look("a", "a/f/main")

    meet = {
        "reader": lambda: backend.refs(1),
        "housekeeper": lambda: backend._writer._housekeeper._checkpoint(),
        "tidier": lambda: backend.maintain("clean"),
    }[who]
    left = 0
    look()
    for at in range(1, count(look), 5):
        backend.refs(1)  # there is a connection for the next one
        kept = inject(look, at, KINDS[at % len(KINDS)], 1)
        left += _in_transaction(backend)
        meet()
        assert not _in_transaction(backend), kept.where
    assert left, "no look was left in the middle"


def _in_transaction(backend: SqliteBackend) -> int:
    """How many connections to the file are in one. One that a thread of the store is just using
    tells nobody."""
    while True:
        try:
            mine = [one for one in apsw.connections() if one.filename == backend.path]
            return sum(one.txn_state("main") > 0 for one in mine)
        except apsw.ThreadingViolationError:
            time.sleep(0.01)


def test_i2_a_transaction_that_is_interrupted_is_over(store: Store) -> None:
    """A write transaction was begun, and its call interrupted: it stayed open. Every later commit
    of the store failed in it, and those of other processes waited for it in vain."""
    helper, backend = Helper(), _backend(store)
    agent: Agent[State] = store.agent("a", State, initial=State())
    agent.update(_grow)
    agent.update(_grow)

    calls: list[Callable[[], Any]] = [
        lambda: backend.lease(1, "main", None, over=1),
        lambda: store.agent("a", State).update(_grow),
        lambda: backend.stand(None, 1),
    ]
    for call, step in zip(calls, (1, 37, 3), strict=True):
        for _ in _at_each(call, step):
            connection = backend._writer._connection
            assert connection is None or not connection.in_transaction
            helper.call(lambda: backend.lease(1, "main", None, over=1))
    helper.call(lambda: agent.update(_grow))
    agent.verify()
