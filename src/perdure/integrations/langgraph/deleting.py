"""Deleting threads: one commit at once, and the room that they took soon after.

A saver removes what deleted threads left while it is called anyway: for a moment whenever a thread
is deleted, and, as long as more is known to be left, whenever one begins. So there is no thread of
Python's own to end, and room is made before more is asked for.
"""

from __future__ import annotations

from contextlib import suppress

from perdure.adapters import ForeignLogs
from perdure.core import logs
from perdure.errors import NotFound, PerdureError, StoreUnavailable
from perdure.integrations.langgraph.thread import Thread
from perdure.store import Store

PURGE_S = 0.020
"""How long one call may purge. A thread of 1,000 messages takes less."""

_log = logs.logger("perdure.langgraph")


class Remover:
    """See the module. `keep`: the logs of deleted threads stay."""

    def __init__(self, store: Store, logs: ForeignLogs, *, keep: bool) -> None:
        self._store = store
        self._logs = logs
        self._keep = keep
        self._more = not keep  # somebody may have been killed half-way

    def delete(self, thread: Thread) -> None:
        """Delete a thread, if it is there."""
        with thread.lock:
            views = thread.views()
            if not views:
                return
            with suppress(NotFound):  # somebody else did
                self._store.delete(thread.name, purge=not self._keep)
        if not self._keep:
            self._more = True
            self._purge()

    def begins(self) -> None:
        """A thread is about to begin, and will need room."""
        if self._more:
            self._purge()

    def _purge(self) -> None:
        try:
            self._more = self._logs.purge(PURGE_S).more
        except StoreUnavailable as error:
            self._more = False  # e.g. may only append: then who owns the store purges it
            _log.warning("what deleted threads left was not removed: %s", error)
        except PerdureError as error:
            self._more = False
            _log.error("what deleted threads left cannot be removed: %s", error)


__all__ = ["Remover"]
