"""Lives of stores in memory and in files, from a seed: what came of one, as text."""

from __future__ import annotations

import itertools
import logging
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import perdure
from perdure import Store
from perdure.storage.locate import _named_memories
from tests.postgres.server import shared
from tests.simulation.following import follow, move
from tests.simulation.journeys import travel

KINDS = ("journey", "follow", "move")
FILES_EVERY = 10
"""Every so many lives, the stores are files: slower, and another code."""

_names = itertools.count()


class Places:
    """Where the stores of one life are: of these kinds, in turn."""

    def __init__(self, folder: str, kinds: tuple[str, ...]) -> None:
        self._folder = folder
        self._kinds = itertools.cycle(kinds)
        self._opened: list[Store] = []

    def new_url(self) -> str:
        kind, name = next(self._kinds), f"life-{next(_names)}"
        if kind == "postgres":
            return shared().new_url()
        return f"memory://{name}" if kind == "memory" else f"{self._folder}/{name}.db"

    def open(self, url: str) -> Store:
        self._opened.append(perdure.open(url, durability="os"))
        return self._opened[-1]

    def close(self) -> None:
        for store in self._opened:
            store.close()
        for name in [name for name in _named_memories if name.startswith("life-")]:
            del _named_memories[name]


@contextmanager
def places(kinds: tuple[str, ...]) -> Iterator[Places]:
    """Gone with all that is in them at the end."""
    with tempfile.TemporaryDirectory() as folder:
        made = Places(folder, kinds)
        try:
            yield made
        finally:
            made.close()


def live(kind: str, seed: int, where: tuple[str, ...] | None = None) -> None:
    """One life. Raises what it finds."""
    if where is None:
        where = ("memory",) if seed % FILES_EVERY else ("sqlite", "memory")
    with places(where) as there:
        match kind:
            case "journey":
                travel(there.open, there.new_url, seed)
            case "follow":
                follow(there.open, there.new_url(), there.new_url(), seed)
            case "move":
                move(there.open, there.new_url(), there.new_url(), seed)


def outcome(kind: str, seed: int) -> str:
    """Empty: all was as it should be."""
    logging.disable()  # what is expected here would fill a log
    try:
        live(kind, seed)
    except Exception:
        return f"{kind} of seed {seed}: {traceback.format_exc()}"
    return ""
