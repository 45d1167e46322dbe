"""One connection: how it is made, and how long anything on it may take.

Only this module waits. A caller waits for no answer longer than the deadline: then the statement is
cancelled. A COMMIT that waits for a synchronous standby ends then with success and a warning, done
on this server alone; that is `InDoubtError`, and never success.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import errors, generators, waiting
from psycopg.abc import RV, PQGen
from psycopg.errors import Diagnostic
from psycopg.pq import DiagnosticField, ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGresult
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper

from perdure.errors import StoreUnavailable, UnsupportedFormat
from perdure.storage.postgres import wire
from perdure.storage.postgres.address import Address
from perdure.storage.postgres.awake import came_soon
from perdure.storage.postgres.clock import StoreClock
from perdure.storage.postgres.faults import DeadlineError, InDoubtError, refused_option, translate

CANCEL_S = 5.0
"""The time that a server may take to cancel a statement before its connection is given up."""

SERVER_MIN = 130_000
ASK_AGAIN_S = 0.1
"""No server takes another one's place in so short a time: who was just asked is not asked again."""

VALUES_MAX = 16
"""Of a statement that goes out without a cursor."""

PREPARE_AFTER = 2

_NOTICING = "".join(
    f", set_config('{name}', '{value}', false)"
    for name, value in (
        ("tcp_keepalives_idle", 10),
        ("tcp_keepalives_interval", 5),
        ("tcp_keepalives_count", 4),
        ("tcp_user_timeout", 30_000),
    )
)
"""So that the server notices within half a minute that our machine is gone, too: it would keep for
two hours what the session holds, locks in the middle of a transaction among it."""

_LOUD = ("notice", "warning", "log", "debug1", "debug2", "debug3", "debug4", "debug5")
_PINNED = {
    "standard_conforming_strings": ("on",),  # a backslash in the texts of our functions is one
    "default_transaction_isolation": ("read committed",),  # behind a lock, they ask what is there
    "bytea_output": ("hex",),  # as their refusals are read
    "client_min_messages": _LOUD,  # only a warning says that no standby has a commit
}
"""Settings on which a store depends, each with what it may be. With others, set for the user, the
database or the server, it would silently do something else."""

_POLL = {
    waiting.WAIT_R: select.POLLIN,
    waiting.WAIT_W: select.POLLOUT,
    waiting.WAIT_RW: select.POLLIN | select.POLLOUT,
}
_READY = {
    (True, False): waiting.READY_R,
    (False, True): waiting.READY_W,
    (True, True): waiting.READY_RW,
}


_BINARY = [Format.BINARY] * VALUES_MAX


class Connection(psycopg.Connection[Any]):
    """See the module.

    Attributes:
        pooled: True if a pooler is in between: this session may be another one at each transaction.
        doubt: the server's warning about the last COMMIT, if any.
        server: who answered when it was last `asked`: the server, by the moment at which it was
            started, and the tables, by their number in it; "" for a standby.
    """

    _pool = None
    """Not psycopg's pool, but one: to be freed while open is normal, where an exception left it."""

    deadline_s: float = 30.0
    pooled: bool = False
    server: str = ""
    asked: float = 0.0
    doubt: str | None = None
    _names: dict[str, bytes]
    _names_given: int
    _incoming: select.poll

    def wait(self, gen: PQGen[RV], interval: float = 0.0, timeout: float | None = None) -> RV:
        """Drives the protocol to its next result, within the deadline."""
        until = time.monotonic() + (self.deadline_s if timeout is None else timeout)
        try:
            return _drive(gen, self.pgconn.socket, until)
        except _TimeUpError:
            return self._stop(gen)
        except (psycopg.Error, UnicodeError):
            raise
        except (
            BaseException
        ):  # Ctrl-C: who is called next, as to roll back, finds nothing under way
            self._call_off()
            raise

    def _stop(self, gen: PQGen[RV]) -> RV:
        """Cancels what was sent, and returns its result."""
        try:
            self.cancel_safe(timeout=CANCEL_S)
            return _drive(gen, self.pgconn.socket, time.monotonic() + CANCEL_S)
        except errors.QueryCanceled as stopped:
            raise DeadlineError(undone=True) from stopped
        except (_TimeUpError, psycopg.Error, OSError) as silent:  # OSError: no descriptor to cancel
            self.pgconn.finish()
            raise DeadlineError(undone=False) from silent

    def call(
        self,
        statement: str,
        types: Sequence[int],
        values: Sequence[bytes | None],
        *,
        awake_s: float = 0.0,
    ) -> PGresult:
        """Executes a statement whose values, and answers, are in PostgreSQL's binary form. It uses
        no cursor, which takes as long as the server does; the statement is prepared at its first
        use.

        Args:
            statement: with ``$1`` and so on for its values.
            types: of its values, by PostgreSQL's numbers.
            awake_s: busy-waits this long for the answer.
        """
        pgconn = self.pgconn
        if self.pooled:
            formats = _BINARY[: len(values)]
            pgconn.send_query_params(statement.encode(), values, types, formats, Format.BINARY)
            return self._answer()
        try:
            name = self._names.get(statement) or self._prepare(statement, types)
            pgconn.send_query_prepared(name, values, _BINARY[: len(values)], Format.BINARY)
            return self._answer(awake_s)
        except errors.InvalidSqlStatementName:
            # Dropped with all prepared statements: psycopg sends DEALLOCATE ALL after each
            # ROLLBACK.
            self._names.clear()
            name = self._prepare(statement, types)
            pgconn.send_query_prepared(name, values, _BINARY[: len(values)], Format.BINARY)
            return self._answer()

    def _prepare(self, statement: str, types: Sequence[int]) -> bytes:
        # Not by their count: some of those that are forgotten here still exist.
        self._names_given += 1
        name = b"perdure_%d" % self._names_given
        self.pgconn.send_prepare(name, statement.encode(), types)
        self._answer()
        self._names[statement] = name
        return name

    def _answer(self, awake_s: float = 0.0) -> PGresult:
        """Returns the answer to what was sent. The usual case, in which everything was sent at once
        and the answer comes in one piece, is handled here: driving the protocol's generator takes
        longer than everything else that a call does."""
        pgconn = self.pgconn
        if pgconn.flush() == 0:
            incoming = self._incoming
            here = awake_s and came_soon(incoming, awake_s)
            if not here and not incoming.poll(self.deadline_s * 1000):
                return self._stop(self._result())
            pgconn.consume_input()
            if not pgconn.is_busy() and (result := pgconn.get_result()) is not None:
                # Next may come the error that its transaction could not commit, and then its end.
                # libpq would block for either, and the whole process with it.
                more: PGresult | None = result
                while more is not None:
                    result = more
                    if pgconn.is_busy():
                        rest = self.wait(generators.fetch_many(pgconn))
                        return _checked([result, *rest][-1])
                    more = pgconn.get_result()
                return result if result.status == ExecStatus.TUPLES_OK else _checked(result)
        return self.wait(self._result())

    def _result(self) -> PQGen[PGresult]:
        results: list[PGresult] = yield from generators.execute(self.pgconn)
        return _checked(results[-1])

    def forget_doubt(self) -> None:
        """Forgets the last warning, before a COMMIT."""
        self.doubt = None

    def check_doubt(self) -> None:
        """Checks for a warning, after a COMMIT.

        Raises:
            InDoubtError: the server said that it was not replicated as required.
        """
        doubt, self.doubt = self.doubt, None
        if doubt is not None:
            raise InDoubtError(doubt)

    def note(self, notice: Diagnostic) -> None:
        """Reads the server's notices, in whatever language."""
        words = notice.message_primary or ""
        if notice.source_function == "SyncRepWaitForLSN" or "synchronous replication" in words:
            self.doubt = f"the commit is on the primary only: {words}"

    @property
    def may_be_another(self) -> bool:
        """True if another primary may answer than when it was asked: behind a pooler, or because a
        standby was promoted. Any other session ends with its server."""
        if self.server and not self.pooled:
            return False
        return time.monotonic() > self.asked + ASK_AGAIN_S

    @property
    def usable(self) -> bool:
        return self.pgconn.transaction_status == TransactionStatus.IDLE  # else UNKNOWN, if closed

    def _call_off(self) -> None:
        """Stops a statement whose answer nobody read, and waits for its end: it must not continue
        unseen. Its reader may be dead, like a generator that raised."""
        if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
            with suppress(Exception):
                self._stop(generators.fetch_many(self.pgconn))

    def end(self) -> None:
        """Closes it, after stopping what is under way."""
        self._call_off()
        with suppress(psycopg.Error):
            self.close()
        self.pgconn.finish()  # also where closing was interrupted once, which leaves it half done

    def abandon(self) -> None:
        """Drops it in a forked child: the session is the parent's. Only our copy of its socket is
        closed, so that the server sees the parent's end."""
        with suppress(OSError, psycopg.Error):
            os.close(self.pgconn.socket)
        _abandoned.append(self)


_abandoned: list[Connection] = []
"""Never freed: libpq would say good-bye in the parent's name."""


class _TimeUpError(Exception):
    pass


def _checked(result: PGresult) -> PGresult:
    if result.status in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        return result
    if result.error_field(DiagnosticField.SQLSTATE) is None:  # libpq's own: the connection is gone
        raise psycopg.OperationalError(result.error_message.decode("utf-8", "replace"))
    raise errors.error_from_result(result, "utf-8")


def _drive(gen: PQGen[RV], fileno: int, until: float) -> RV:
    """Gives the generator what it waits for: it knows the protocol, this function the clock."""
    try:
        wants = next(gen)
        poll = select.poll()
        while True:
            poll.register(fileno, _POLL[wants])
            left_ms = max(0.0, until - time.monotonic()) * 1000
            found = poll.poll(left_ms)
            if not found:
                raise _TimeUpError
            event = found[0][1]
            # An error counts as readable: reading reports it.
            readable, writable = event & ~select.POLLOUT, event & select.POLLOUT
            wants = gen.send(_READY[bool(readable), bool(writable)])
    except StopIteration as end:
        value: RV = end.value
        return value


def connect(address: Address, clock: StoreClock) -> Connection:
    """Opens a connection, and checks the server.

    Raises:
        StoreUnavailable, NotFound: see `translate`. UnsupportedFormat: the server is too old.
        ValueError: an option cannot have such a value.
    """
    try:
        connection = Connection.connect(
            **address.conninfo,
            client_encoding="UTF8",
            autocommit=True,
            prepare_threshold=PREPARE_AFTER,
        )
    except (psycopg.Error, OSError) as error:  # psycopg waits by a descriptor of its own
        # The error's words may hold secrets.
        raise refused_option(error) or translate(error, address) from None
    try:
        _prepare(connection, address)
        _look(connection, address, clock)
    except BaseException as error:
        connection.end()
        if isinstance(error, psycopg.Error | DeadlineError):
            raise translate(error, address) from error
        raise
    return connection


def _prepare(connection: Connection, address: Address) -> None:
    connection._names = {}
    connection._names_given = 0
    connection._incoming = select.poll()
    connection._incoming.register(connection.pgconn.socket, select.POLLIN)
    connection.deadline_s = address.deadline_s
    connection.add_notice_handler(connection.note)
    connection.adapters.register_dumper(int, Int8Dumper)
    connection.adapters.register_dumper(int, Int8BinaryDumper)
    wire.register(connection)


def _look(connection: Connection, address: Address, clock: StoreClock) -> None:
    target = f"store {address.shown}"
    if connection.info.server_version < SERVER_MIN:
        raise UnsupportedFormat(
            f"PostgreSQL {connection.info.server_version // 10_000} is too old",
            target=target,
            hint="use version 13 or later",
        )
    seen: list[Any] = []
    pinned = ", ".join(f"current_setting('{name}')" for name in _PINNED)

    def ask() -> int:
        cursor = connection.execute(
            "SELECT pg_backend_pid(), current_setting('server_encoding'), "
            "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint, "
            f"ARRAY[{pinned}]" + _NOTICING
        )
        seen[:] = cursor.fetchone() or ()
        return int(seen[2])

    clock.measure(ask)
    if seen[1] != "UTF8":
        raise StoreUnavailable(
            f"the database's encoding is {seen[1]}",
            target=target,
            hint="create one with ENCODING 'UTF8' TEMPLATE template0",
        )
    if seen[0] != connection.info.backend_pid:
        connection.pooled = True
        connection.prepare_threshold = None
    for (name, fine), found in zip(_PINNED.items(), seen[3], strict=True):
        if found not in fine:
            _pin(connection, name, fine[0], found, target)


def _pin(connection: Connection, name: str, wanted: str, found: str, target: str) -> None:
    if connection.pooled:  # it is nobody's session
        raise StoreUnavailable(
            f"{name} is {found}",
            target=target,
            hint=f"set it for this user: ALTER ROLE name SET {name} = '{wanted}'",
        )
    connection.execute(f"SET {name} = '{wanted}'")
