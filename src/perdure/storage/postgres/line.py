"""One permanent connection: it holds the locks that prove that executors live, and receives
notices.

Each executor holds a session advisory lock on it. When its process ends, for whatever reason, the
server sees the connection's end and frees the lock: others then know within a second that it is
dead, without waiting for its time to be up. Three events could make a living one look dead:

- The server was started anew, or another one took over: all locks are gone at once, and nobody
  died. It is the same where a server recovers because one of its processes was killed. So the row
  of an executor names the server under which it holds its lock, by the moment at which that was
  started, and by its own processes; a free lock proves something under the same server only. On a
  standby, which has none of the primary's locks, nothing is proven, either.
- The connection broke, and the process lives. The line notices as soon as its socket does, connects
  again and takes the lock anew; who looks gives it GRACE_S for that.
- The network between them is gone for longer. Then the server gives the connection up, and the
  process counts as dead though it lives. That is the price of a lease, paid early: others take over
  with a higher epoch, and what the old owner still writes is refused (I4). Nothing is lost or
  written twice; a tool call that it is in the middle of is in doubt, as after a crash.

A transaction pooler between us and the server gives no permanent session: there is no lock then,
the executor's time decides, and nobody receives notices, so that all poll.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import psycopg

from perdure.errors import PerdureError
from perdure.storage.listeners import LocalListeners
from perdure.storage.postgres.address import Address
from perdure.storage.postgres.connection import Connection
from perdure.storage.postgres.faults import DeadlineError
from perdure.storage.postgres.rows import from_text, text
from perdure.storage.postgres.statements import quoted, statements
from perdure.system import logs
from perdure.system.locks import Lock
from perdure.system.threads import begin

GRACE_S = 0.2
"""The time that a lock must be free before its owner counts as dead."""

TICK_S = 20.0
"""The interval at which an idle line is tried: a silent one may be broken."""

RETRY_S = 0.1
RETRY_MAX_S = 2.0
HOLD_TRIES = 50

_NEVER_IDLE = (
    "SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'"
)
"""The line is silent for seconds; a server (from version 14 on) that ends idle sessions would make
a living executor look dead."""

_log = logs.logger("perdure.postgres")


class PermanentConnection:
    """The permanent connection of one process. Connects at the first executor or listener, with one
    thread of its own."""

    def __init__(self, address: Address, connect: Callable[[], Connection]) -> None:
        self._address = address
        self._connect = connect
        self._sql = statements(address.schema)
        self._listeners = LocalListeners()
        self._pooled = False
        self._conn: Connection | None = None
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._lock = Lock()
        self._torn = False
        self._executors: set[str] = set()
        self._locked: dict[str, str] = {}
        self._thread: threading.Thread | None = None
        self._wake = self._waker = -1

    def renew(self) -> None:
        """Resets itself in a forked child: the session, and its locks, are the parent's."""
        if self._closed:
            self._lock = Lock()
            return  # its pipe is closed; the numbers of its ends may be others' by now
        if self._conn is not None:
            self._conn.abandon()
            self._conn = None
        for end in (self._wake, self._waker):
            with suppress(OSError):
                os.close(end)
        self._begin()

    @property
    def channel(self) -> str:
        return f"perdure_{self._address.schema}"

    # -- executors ---------------------------------------------------------------------------

    def hold(self, executor: str) -> str | None:
        """Takes the lock of our own executor; kept until `drop`.

        Returns:
            The server under which it is held; None if it could not be taken: its time decides then.
        """
        with self._lock:
            self._executors.add(executor)
            if self._torn or not self._is_watched or executor not in self._locked:
                self._use(self._hold_all)
            return self._locked.get(executor)

    def drop(self, executor: str) -> None:
        with self._lock:
            self._executors.discard(executor)
            if self._locked.pop(executor, None) is not None and self._conn is not None:
                self._use(lambda db: db.execute(self._sql["drop_executor"], (text(executor),)))

    @property
    def executors(self) -> Sequence[str]:
        """The executors of this process."""
        return list(self._executors)

    def holds(self, executor: str) -> bool:
        """True if it is an executor of this process."""
        return executor in self._executors

    def _hold_all(self, db: Connection) -> None:
        for executor in self._executors - self._locked.keys():
            for _ in range(HOLD_TRIES):
                row = db.execute(self._sql["hold_executor"], (text(executor),)).fetchone()
                if row is not None and row[0]:
                    self._locked[executor] = row[1]
                    break
                time.sleep(0.002)  # somebody just looks; or our own last session is there still

    # -- notices -----------------------------------------------------------------------------

    def listen(self, executor: str, callback: Callable[[str], None]) -> Callable[[], None]:
        """See `Backend.listen`. If the server cannot be reached now, it is tried again."""
        end = self._listeners.listen(executor, callback)
        with self._lock:
            self._use(lambda db: None)
        return end

    def _hear(self, db: Connection) -> None:
        db.pgconn.consume_input()
        while (notice := db.pgconn.notifies()) is not None:
            self._listeners.notify(from_text(notice.extra.decode("utf-8", "replace")))

    # -- the connection ----------------------------------------------------------------------

    def _use(self, work: Callable[[Connection], object]) -> None:
        """Does something on the connection, which is made first if need be. A failure is logged,
        and the connection made again later: only speed depends on it."""
        if self._pooled or self._closed:
            return
        if self._torn:  # an exception ended the last use: nobody read what it was told
            self._hang_up()
        self._torn = True
        try:
            if not self._is_watched:
                if self._waker < 0:
                    self._wake, self._waker = os.pipe()
                self._thread = threading.Thread(
                    target=self._serve, name="perdure-line", daemon=True
                )
                begin(self._thread)
            if self._conn is None:
                self._open()
                self._call_thread()  # which is to watch it
            if self._conn is not None:
                work(self._conn)
        except (psycopg.Error, DeadlineError, PerdureError, OSError) as error:
            words = self._address.hide(" ".join(str(error).split()))
            _log.info("store %s: the line is down: %s", self._address.shown, words)
            self._hang_up()
            self._call_thread()
        except BaseException:
            self._hang_up()
            self._call_thread()
            raise
        self._torn = False

    @property
    def _is_watched(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _open(self) -> None:
        db = self._conn = self._connect()
        if db.pooled:
            self._pooled = True
            self._hang_up()
            _log.warning(
                "store %s: a connection pooler is in front of the server, and nobody can LISTEN "
                "through it: work is found by polling, and a dead executor by its time only",
                self._address.shown,
            )
            return
        db.execute(_NEVER_IDLE)
        db.add_notify_handler(lambda notice: self._listeners.notify(from_text(notice.payload)))
        db.execute(f"LISTEN {quoted(self.channel)}")
        self._hold_all(db)

    def _hang_up(self) -> None:
        self._locked.clear()
        if self._conn is not None:
            self._conn.end()
        self._conn = None
        self._torn = False

    # -- the thread --------------------------------------------------------------------------

    def _serve(self) -> None:
        pause = RETRY_S
        while not self._closed and self._thread is threading.current_thread():
            try:
                pause = self._watch(pause)
            except Exception as error:  # a moment's MemoryError: nobody would make another thread
                _log.warning("store %s: the line: %s", self._address.shown, type(error).__name__)
                time.sleep(RETRY_S)
        with self._lock:
            if self._closed:
                self._close_wake()

    def _watch(self, pause: float) -> float:
        """Waits once, and does what is due then.

        Args:
            pause: the last pause before a try to connect.

        Returns:
            The one of this time.
        """
        with self._lock:
            db = self._conn
            whole = db is not None and not self._executors - self._locked.keys()
        pause = RETRY_S if whole else min(pause * 2, RETRY_MAX_S)
        heard = self._sleep(self._wake, db, TICK_S if whole else pause)
        with self._lock:
            if db is not self._conn:
                return pause  # made anew meanwhile
            if heard and db is not None:
                self._use(self._hear)
            elif whole:
                self._use(lambda db: db.execute("SELECT 1"))
            else:
                self._use(self._hold_all)
        return pause

    def _sleep(self, wake: int, db: Connection | None, seconds: float) -> bool:
        """Waits until a notice comes, somebody calls, or the time is up; returns False for the
        latter."""
        poll = select.poll()
        poll.register(wake, select.POLLIN)
        with suppress(psycopg.Error):
            if db is not None:
                poll.register(db.pgconn.socket, select.POLLIN)
        found = poll.poll(seconds * 1000)
        if any(fileno == wake for fileno, _ in found) and not self._closed:
            with suppress(OSError):
                os.read(wake, 4096)
        return bool(found)

    def _call_thread(self) -> None:
        """Wakes the thread, which may sleep on a connection that is another one now. Its own try
        that fails must not wake it: it pauses before the next."""
        if self._thread is threading.current_thread():
            return
        with suppress(OSError):
            os.write(self._waker, b"!")

    def close(self) -> None:
        """Closes it. After an exception in between, it may be called again."""
        self._closed = True
        with self._lock:
            self._hang_up()
            self._listeners.close()
            self._call_thread()  # which ends, and closes its end of the pipe
            # Its number is forgotten first: if closed twice, it may be another file's by then.
            waker, self._waker = self._waker, -1
            if waker >= 0:
                os.close(waker)
            if not self._is_watched:
                self._close_wake()

    def _close_wake(self) -> None:
        wake, self._wake = self._wake, -1
        if wake >= 0:
            os.close(wake)
