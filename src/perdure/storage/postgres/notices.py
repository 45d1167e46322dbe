"""Telling all who listen: on a thread, so that nobody waits for it.

What comes while a notice is under way is told in one go. Nothing depends on it.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from queue import Empty, SimpleQueue

import psycopg

from perdure.core import logs
from perdure.core.locks import Lock
from perdure.core.threads import begin
from perdure.errors import PerdureError
from perdure.storage.postgres.faults import DeadlineError
from perdure.storage.postgres.pool import Pool
from perdure.storage.postgres.rows import text
from perdure.storage.postgres.statements import statements

BYTES_MAX = 7999
"""A notice's size: PostgreSQL takes no larger ones."""

AT_ONCE_MAX = 1000
CLOSE_S = 2.0

_log = logs.logger("perdure.postgres")


class Notifier:
    """See the module."""

    def __init__(self, pool: Pool, schema: str, channel: str) -> None:
        self._pool = pool
        self._statement = statements(schema)["notify"]
        self._channel = channel
        self._waiting: SimpleQueue[str | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = Lock()
        self._in_child = False

    def renew(self) -> None:
        """In a forked child, which may end at any moment: what it tells is told at once."""
        self._lock = Lock()
        self._thread = None
        self._in_child = True

    def notify(self, run_id: str) -> None:
        """As `Backend.notify`."""
        with suppress(UnicodeError):
            notice = text(run_id)
            if not notice or len(notice.encode()) > BYTES_MAX:
                return
            if self._in_child:
                self._tell([notice])
                return
            self._waiting.put(notice)
            if self._thread is None or not self._thread.is_alive():
                self._start()

    def _start(self) -> None:
        """Also in the place of one that an exception ended."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._serve, name="perdure-notifier", daemon=True
                )
                begin(self._thread)

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
                return

    def _tell(self, runs: list[str]) -> None:
        try:
            with self._pool.connection() as connection:
                connection.execute(self._statement, (self._channel, runs))
        except (psycopg.Error, DeadlineError, PerdureError) as error:
            _log.info("cannot notify: %s", type(error).__name__)

    def close(self) -> None:
        """Tell what waits, if that is soon done."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._waiting.put(None)
            if thread is not threading.current_thread():
                thread.join(CLOSE_S)
