"""Deletion of threads: one commit at once; their space is freed soon after.

A saver removes the data of deleted threads while it is called anyway: when a thread is deleted, for
a moment its own data and that of the threads that only it read, as their copy; and whenever a
thread begins or is deleted, data of others, as long as more is known to be left. So no Python
thread of its own has to end, and space is freed before more is needed.
"""

from __future__ import annotations

import time
from contextlib import suppress

from perdure.adapters import ForeignLogs
from perdure.errors import NotFound, PerdureError, StoreUnavailable
from perdure.integrations.langgraph.threads.thread import Thread
from perdure.model import AgentInfo
from perdure.store import Store
from perdure.system import logs

PURGE_S = 0.020
"""The time that one call may spend on purging. A thread of 1,000 messages takes less."""

PAUSE_S = 60.0
"""The pause before the rest is tried again, if there was only time to look at what copies read."""

_log = logs.logger("perdure.langgraph")


class Remover:
    """See the module. `keep`: the logs of deleted threads stay."""

    def __init__(self, store: Store, logs: ForeignLogs, *, keep: bool) -> None:
        self._store = store
        self._logs = logs
        self._keep = keep
        self._more = not keep  # somebody may have been killed half-way
        self._paused_until = 0.0

    def delete(self, thread: Thread) -> None:
        """Delete a thread, if it is there."""
        with thread.lock:
            info = self._logs.look(thread.name)
            if info is None or info.deleted:
                return
            thread.check_schema(self._logs.log(info).commit(1).schema_id)
            with suppress(NotFound):  # somebody else did
                self._store.delete(thread.name, purge=not self._keep)
        if not self._keep:
            self._purge(info)
            self.begins()

    def begins(self) -> None:
        """A thread is about to begin, and will need room."""
        if self._more and time.monotonic() >= self._paused_until:
            self._purge()

    def _purge(self, of: AgentInfo | None = None) -> None:
        """Purges what deleted threads left; or what one thread left, and those that it is a copy
        of."""
        before, self._more = self._more, True
        try:  # the thread is deleted, whatever comes of this
            if of is not None:
                now = self._logs.incarnation(of.name, of.incarnation)
                if now is None:
                    return
                of = now.info
            purged = self._logs.purge(PURGE_S, of)
            self._more = purged.more or (before and of is not None)
            if purged.kept and not purged.agents and of is None:
                self._paused_until = time.monotonic() + PAUSE_S
        except StoreUnavailable as error:
            self._more = False  # e.g. may only append: then who owns the store purges it
            _log.warning("what deleted threads left was not removed: %s", error)
        except PerdureError as error:
            self._more = False
            _log.error("what deleted threads left cannot be removed: %s", error)


__all__ = ["Remover"]
