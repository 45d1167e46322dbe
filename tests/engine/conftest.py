"""Runs on every backend, at a place that can be opened again, with crashes on demand."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.engine.journal import release_order
from perdure.storage import locate
from perdure.storage.clocks import wall_clock
from perdure.store import Store
from tests.engine.waits import Clock
from tests.postgres.server import kinds, shared

ON_POSTGRES = {
    "test_beginning",
    "test_standby",
    "test_others_writing",
    "test_outages",
    "test_review",
    "test_never_poisoned",
    "test_damaged_runs",
    "test_leavings",
    "test_circles",
    "test_who_is_next",
    "test_unfit_arguments",
    "test_going_back",
    "test_unbegun",
    "test_deleting",
    "test_first_states",
    "test_named_beside",
    "test_delivered_moves",
    "test_routes",
    "test_sagas_cancelled",
    "test_sagas_cut_short",
    "test_time_limits",
    "test_time_limits_of_families",
    "test_left_out",
    "test_child_handles",
    "test_forks_beside",
    "test_begun_elsewhere",
    "test_ended_elsewhere",
    "test_guards",
    "test_runs_on_branches",
    "test_undoing_runs",
    "test_questions_with_data",
}
"""Modules that run on PostgreSQL each time; PERDURE_POSTGRES=1 runs all there."""

_names = itertools.count()


class Place:
    """Where a store is. `open` opens it once more; what is open at the end is closed."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.opened: list[Store] = []

    def open(self, **more: Any) -> Store:
        more.setdefault("durability", "os")  # a test's machine does not lose power
        store = perdure.open(self.url, **more)
        self.opened.append(store)
        return store

    def close(self) -> None:
        while self.opened:
            self.opened.pop().close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "place" in metafunc.fixturenames:
        listed = metafunc.module.__name__.rpartition(".")[2] in ON_POSTGRES
        metafunc.parametrize("place", kinds(["sqlite", "memory"], listed=listed), indirect=True)


@pytest.fixture
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    if request.param == "postgres":
        # Tests put this machine's clock forward, and mean the store's.
        original = locate._postgres
        monkeypatch.setattr(
            locate,
            "_postgres",
            lambda url, durability, _, **more: original(
                url, durability, lambda: wall_clock(), **more
            ),
        )
    name = f"engine-{next(_names)}"
    urls = {
        "sqlite": lambda: f"sqlite:///{tmp_path / name}.db",
        "memory": lambda: f"memory://{name}",
        "postgres": lambda: shared().new_url(),
    }
    place = Place(urls[request.param]())
    yield place
    place.close()
    locate._named_memories.pop(name, None)


@pytest.fixture
def store(place: Place) -> Store:
    return place.open()


class CrashError(BaseException):
    """What the process would have died of: nothing that an agent function may catch."""


class Crashes:
    """`crash("here")` raises as often as `crash.arm("here")` was called; `calls` counts all."""

    def __init__(self) -> None:
        self.armed: list[str] = []
        self.calls: list[Any] = []

    def arm(self, *names: str) -> None:
        self.armed += names

    def __call__(self, name: str) -> None:
        if name in self.armed:
            self.armed.remove(name)
            raise CrashError(name)

    def note(self, what: Any) -> None:
        """A side effect, outside of the library."""
        self.calls.append(what)


@pytest.fixture
def crash() -> Crashes:
    return Crashes()


class Async:
    """Runs async agent functions, each time in a store and a loop of its own."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._kept = place.open()  # a memory store lives as long as it is open

    def run(self, function: Any, *args: Any, key: str = "main") -> Any:
        async def main() -> Any:
            async with perdure.open_async(self._place.url, durability="os") as store:
                ran = store.options(key=key).run(function, "a", *args)
                return await asyncio.wait_for(ran, 60)

        return asyncio.run(main())

    def crash(self, function: Any, *args: Any) -> None:
        with pytest.raises(CrashError):
            self.run(function, *args)

    def info(self, name: str = "act") -> Any:
        return self._kept.handle(f"a/{name}/main").info

    @property
    def store(self) -> Any:
        return self._kept


@pytest.fixture
def runs(place: Place) -> Async:
    return Async(place)


@pytest.fixture
def stalls_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_order, "STALL_S", 1.0)
    monkeypatch.setattr(release_order, "PROVEN_S", 0.1)


@pytest.fixture
def fetch(crash: Crashes) -> Any:
    """A step that takes so long, and notes each time that it is really called."""

    @perdure.step
    async def fetch(what: str, seconds: float = 0.0) -> str:
        await asyncio.sleep(seconds)
        crash.note(what)
        return what.upper()

    return fetch


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)
