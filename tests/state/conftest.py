"""Each test of the state layer runs on every backend, at a place that can be opened again."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.agents import Agent
from perdure.storage import locate
from perdure.storage.clocks import wall_clock
from perdure.storage.postgres.clock import StoreClock
from perdure.store import Store
from tests.postgres.server import kinds, shared

ON_POSTGRES = {
    "test_keys",
    "test_concurrent",
    "test_trimming",
    "test_trimming_damaged",
    "test_retention_and_damage",
    "test_damaged",
    "test_damaged_snapshots",
    "test_across_damage",
    "test_bounds_move",
    "test_places",
    "test_purged_copies",
}
"""Modules that run on PostgreSQL each time; PERDURE_POSTGRES=1 runs all there."""

_names = itertools.count()


class Place:
    """Where a store is. `open` opens it once more; what is open at the end is closed."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.opened: list[Store] = []

    @property
    def durable(self) -> bool:
        return not self.url.startswith("memory:")

    def open(self, **more: Any) -> Store:
        more.setdefault("durability", "os")  # a test's machine does not lose power
        store = perdure.open(self.url, **more)
        self.opened.append(store)
        return store

    def close(self) -> None:
        while self.opened:
            self.opened.pop().close()


def place_of(kind: str, folder: Path) -> Place:
    if kind == "sqlite":
        return Place(str(folder / "store.db"))
    if kind == "postgres":
        return Place(shared().new_url())
    return Place(f"memory://test-{next(_names)}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "place" in metafunc.fixturenames:
        listed = metafunc.module.__name__.rpartition(".")[2] in ON_POSTGRES
        metafunc.parametrize("place", kinds(["memory", "sqlite"], listed=listed), indirect=True)


@pytest.fixture(autouse=True)
def one_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A PostgreSQL store estimates its server's clock from round trips. On a busy machine that is
    milliseconds off, and a moment of the test's own clock is not between two of its commits."""
    monkeypatch.setattr(StoreClock, "now", lambda _: wall_clock())


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    made = place_of(request.param, tmp_path)
    yield made
    made.close()
    locate._named_memories.pop(made.url.partition("://")[2], None)


@pytest.fixture
def store(place: Place) -> Store:
    return place.open()


class Steady:
    """Says that an operation was refused and left no trace."""

    def picture(self, agent: Agent[Any]) -> Any:
        """All that a store says of an agent."""
        backend = agent._context.backend
        info = backend.agent(agent.id)
        if info is None:
            return None
        rows = backend.read(info.no, 1, info.seq)
        return info, [(row.seq, row.header, row.payload) for row in rows], backend.refs(info.no)

    @contextmanager
    def refuses(self, agent: Agent[Any], error: Any, match: str | None = None) -> Iterator[None]:
        """The block must raise; nothing may be written, and the handle must go on working."""
        before, state = (
            self.picture(agent),
            agent._working.schema.take(agent.state, (), aliases_refused=False),
        )
        with pytest.raises(error, match=match):
            yield
        assert self.picture(agent) == before
        after = agent._working.schema.take(agent.state, (), aliases_refused=False)
        assert after == state
        if before is not None:
            agent.verify()


@pytest.fixture
def steady() -> Steady:
    return Steady()


@pytest.fixture(params=["sqlite", "memory", "postgres"])
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Another place than `place`, of each kind, to copy or move to."""
    (tmp_path / "other").mkdir()
    made = place_of(request.param, tmp_path / "other")
    if not made.durable:
        made.open()
    yield made
    made.close()
