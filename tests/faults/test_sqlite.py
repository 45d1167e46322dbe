"""What an exception left behind in an open SQLite store once: locks, places, transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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
