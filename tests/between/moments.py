"""The moments at which another may act: before each call of a backend that one call makes, or
before each statement that a backend has executed for it.

They are counted on the thread that makes them, whichever store they are for; what a backend calls
of itself is a part of its own call.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from perdure.missing import MISSING
from perdure.retention import purging, trimming
from perdure.storage.log import chunk_size
from perdure.storage.memory.backend import MemoryBackend
from perdure.storage.postgres.backend import PostgresBackend
from perdure.storage.postgres.connection import Connection
from perdure.storage.sqlite import connection, guards
from perdure.storage.sqlite.backend import SqliteBackend
from perdure.transfer import (
    follower,
    given_tokens,
    living_agents,
    restoring,
    shipping,
)

BUSY_MS = 200
"""One waits so long for what the other has locked, which does not go on meanwhile."""

PARTS = (
    (chunk_size, "CHUNK_MAX", 3),
    (shipping, "SHIPMENT_BYTES", 2000),
    (follower, "PART", 4),
    (trimming, "PART", 2),
    (purging, "PAGE", 1),
    (living_agents, "PAGE", 2),
    (given_tokens, "PAGE", 2),
    (restoring, "PAGE", 2),
)
"""What is done in parts is done in small ones: then there are moments between them."""

QUIET = {"close", "closed", "go_on", "heartbeat", "listen", "notify", "now", "renew", "stop"}
"""These change nothing that another can see, and show nothing that another can change."""

CALLS: list[tuple[type, str]] = [
    (kind, name)
    for kind in (MemoryBackend, PostgresBackend, SqliteBackend)
    for name, found in vars(kind).items()
    if callable(found) and (name == "__init__" or not (name.startswith("_") or name in QUIET))
]
STATEMENTS: list[tuple[type, str]] = [
    (guards.Connection, "execute"),
    (psycopg.Cursor, "execute"),
    (Connection, "call"),
]


class Moments:
    """Lets another act before one call by its number; 0 only counts them.

    Args:
        statements: counts statements, not calls.
        everywhere: counts those of other threads, too: of one call that is made on several.

    Attributes:
        names: the calls, in order.
        acted: True once the other has acted.
    """

    def __init__(
        self,
        number: int = 0,
        act: Callable[[], object] = lambda: None,
        *,
        statements: bool = False,
        everywhere: bool = False,
    ) -> None:
        self.names: list[str] = []
        self.acted = False
        self._places = STATEMENTS if statements else CALLS
        self._number = number
        self._act = act
        self._thread = None if everywhere else threading.get_ident()
        self._inside = False

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Counts the calls of this block."""
        before = [(kind, name, vars(kind).get(name, MISSING)) for kind, name in self._places]
        for kind, name in self._places:
            setattr(kind, name, self._counting(f"{kind.__name__}.{name}", getattr(kind, name)))
        sizes = [*PARTS, (connection, "BUSY_MS", BUSY_MS)]
        usual = [(module, name, getattr(module, name)) for module, name, _ in sizes]
        for module, name, size in sizes:
            setattr(module, name, size)
        try:
            yield
        finally:
            for module, name, size in usual:
                setattr(module, name, size)
            for kind, name, method in before:
                if method is MISSING:
                    delattr(kind, name)
                else:
                    setattr(kind, name, method)

    def _counting(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*args: Any, **more: Any) -> Any:
            if self._inside or self._thread not in (None, threading.get_ident()):
                return method(*args, **more)
            self.names.append(f"{name} {args[1]:.60}" if self._places is STATEMENTS else name)
            self._inside = True
            try:
                if len(self.names) == self._number:
                    self.acted = True
                    self._act()
                return method(*args, **more)
            finally:
                self._inside = False

        return call
