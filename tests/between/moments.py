"""The moments at which another may act: before each call of a backend that one call makes.

Calls are counted on the thread that makes them, whichever backend object they go to; what a backend
calls of itself is a part of its own call.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from perdure.storage.memory.backend import MemoryBackend
from perdure.storage.postgres.backend import PostgresBackend
from perdure.storage.sqlite import connection
from perdure.storage.sqlite.backend import SqliteBackend

BUSY_MS = 200
"""One waits so long for a file that the other has locked, which does not go on meanwhile."""

QUIET = {"close", "closed", "go_on", "heartbeat", "listen", "notify", "now", "renew", "stop"}
"""These change nothing that another can see, and show nothing that another can change."""


class Moments:
    """Lets another act before one call by its number; 0 only counts them.

    Attributes:
        names: the calls, in order.
        acted: True once the other has acted.
    """

    def __init__(self, number: int = 0, act: Callable[[], object] = lambda: None) -> None:
        self.names: list[str] = []
        self.acted = False
        self._number = number
        self._act = act
        self._thread = threading.get_ident()
        self._inside = False

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Counts the calls of this block."""
        before = [
            (kind, name, kind.__dict__[name])
            for kind in (MemoryBackend, PostgresBackend, SqliteBackend)
            for name in kind.__dict__
            if name == "__init__" or not (name.startswith("_") or name in QUIET)
            if callable(kind.__dict__[name])
        ]
        for kind, name, method in before:
            setattr(kind, name, self._counting(f"{kind.__name__}.{name}", method))
        busy_ms, connection.BUSY_MS = connection.BUSY_MS, BUSY_MS
        try:
            yield
        finally:
            connection.BUSY_MS = busy_ms
            for kind, name, method in before:
                setattr(kind, name, method)

    def _counting(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*args: Any, **more: Any) -> Any:
            if self._inside or threading.get_ident() != self._thread:
                return method(*args, **more)
            self.names.append(name)
            self._inside = True
            try:
                if len(self.names) == self._number:
                    self.acted = True
                    self._act()
                return method(*args, **more)
            finally:
                self._inside = False

        return call
