"""Notifying all listeners: on a thread, so that nobody waits for it.

Notices that come while one is under way are sent together. Nothing depends on it.
"""

from __future__ import annotations

from contextlib import suppress
from queue import Empty, SimpleQueue

import psycopg

from perdure.errors import PerdureError
from perdure.storage.postgres.faults import DeadlineError
from perdure.storage.postgres.pool import ConnectionPool
from perdure.storage.postgres.rows import text
from perdure.storage.postgres.statements import statements
from perdure.system import logs
from perdure.system.locks import Lock
from perdure.system.threads import Servants

BYTES_MAX = 7999
"""A notice's size: PostgreSQL takes no larger ones."""

AT_ONCE_MAX = 1000
CLOSE_S = 2.0

_log = logs.logger("perdure.postgres")


class Notifier:
    """See the module."""

    def __init__(self, pool: ConnectionPool, schema: str, channel: str) -> None:
        self._pool = pool
        self._statement = statements(schema)["notify"]
        self._channel = channel
        self._waiting: SimpleQueue[str | None] = SimpleQueue()
        self._servants = Servants("perdure-notifier")
        self._lock = Lock()
        self._in_child = False

    def renew(self) -> None:
        """Resets itself in a forked child, which may end at any moment: its notices are sent at
        once."""
        self._lock = Lock()
        self._servants = Servants("perdure-notifier")
        self._in_child = True

    def notify(self, run_id: str) -> None:
        """See `Backend.notify`."""
        with suppress(UnicodeError):
            notice = text(run_id)
            if not notice or len(notice.encode()) > BYTES_MAX:
                return
            if self._in_child:
                self._tell([notice])
                return
            self._waiting.put(notice)
            if not self._servants.any_lives:
                self._start()

    def _start(self) -> None:
        """Starts the thread, also in place of one that an exception ended."""
        with self._lock:
            if not self._servants.any_lives:
                self._servants.begin(self._serve)

    def _serve(self) -> None:
        while (first := self._waiting.get()) is not None:
            runs, ended = {first: None}, False
            with suppress(Empty):
                while len(runs) < AT_ONCE_MAX and not ended:
                    more = self._waiting.get_nowait()
                    ended = more is None
                    if more is not None:
                        runs[more] = None
            self._tell(list(runs))
            if ended:
                break
        self._waiting.put(None)  # for another one, where there is

    def _tell(self, runs: list[str]) -> None:
        try:
            with self._pool.connection() as connection:
                connection.execute(self._statement, (self._channel, runs))
        except (psycopg.Error, DeadlineError, PerdureError) as error:
            _log.info("cannot notify: %s", type(error).__name__)

    def close(self) -> None:
        """Sends what waits, if that is quick."""
        if self._servants.any_begun:
            self._waiting.put(None)
            self._servants.join(CLOSE_S)
