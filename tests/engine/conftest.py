"""Runs on every backend, at a place that can be opened again, with crashes on demand."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.storage import locate
from perdure.store import Store

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


@pytest.fixture(params=["sqlite", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    name = f"engine-{next(_names)}"
    place = Place(
        f"sqlite:///{tmp_path / name}.db" if request.param == "sqlite" else f"memory://{name}"
    )
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
