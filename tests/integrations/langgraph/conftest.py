"""Each test runs on every backend, at a place that can be opened again.

Other backends join here: a kind in `KINDS`, and where its stores are in `url_of`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.integrations.langgraph import PerdureSaver
from perdure.storage import locate
from tests.postgres.server import kinds, shared

KINDS = tuple(kinds(["memory", "sqlite"]))
_names = itertools.count()


def url_of(kind: str, folder: Path) -> str:
    if kind == "sqlite":
        return str(folder / "threads.db")
    if kind == "postgres":
        return shared().new_url()
    return f"memory://langgraph-{next(_names)}"


class Place:
    """Where threads are. `open` opens a saver on them once more; the end closes them."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.opened: list[PerdureSaver] = []

    def open(self, **more: Any) -> PerdureSaver:
        more.setdefault("durability", "os")  # a test's machine does not lose power
        saver = PerdureSaver.from_url(self.url, **more)
        self.opened.append(saver)
        return saver

    def close(self) -> None:
        while self.opened:
            self.opened.pop().close()


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    made = Place(url_of(request.param, tmp_path))
    yield made
    made.close()
    locate._named_memories.pop(made.url.partition("://")[2], None)


@pytest.fixture
def saver(place: Place) -> PerdureSaver:
    return place.open()
