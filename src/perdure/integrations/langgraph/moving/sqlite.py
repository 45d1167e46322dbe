"""The database file of LangGraph's `SqliteSaver`, only read, and read as of one moment."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from langgraph.checkpoint.sqlite import SqliteSaver

from perdure.errors import Corrupt, NotAStore, NotFound, PerdureError, StoreUnavailable
from perdure.integrations.langgraph.moving.serializer import Reader
from perdure.integrations.langgraph.moving.source import (
    CheckpointAddress,
    ReadBySaver,
    SourceThread,
    WriteKey,
    in_order,
    in_write_order,
    no_such_thread,
)

BUSY_S = 30.0
COLUMNS = {
    "checkpoints": {
        "thread_id",
        "checkpoint_ns",
        "checkpoint_id",
        "parent_checkpoint_id",
        "type",
        "checkpoint",
        "metadata",
    },
    "writes": {
        "thread_id",
        "checkpoint_ns",
        "checkpoint_id",
        "task_id",
        "idx",
        "channel",
        "type",
        "value",
    },
}


class SqliteSource(ReadBySaver):
    """Reads through LangGraph's own `SqliteSaver`, so that the result is what LangGraph shows.

    The file is opened read-only; content still in its WAL is seen. One read transaction lasts from
    the first look to `close`: concurrent writers are neither blocked nor seen.

    Args:
        types: the user's own classes, by the name under which they were written.

    Raises:
        NotFound: there is no such file.
        NotAStore: it is not a SQLite database, or does not have the tables of `SqliteSaver`.
        Corrupt, StoreUnavailable: SQLite reports it.
    """

    def __init__(self, path: str, types: Mapping[str, type]) -> None:
        self.name = self.file = path
        self.bytes = _size(path)
        self._reader = Reader(types)
        with self._said(), ExitStack() as opening:
            self._connection = opening.enter_context(_closing(_connect(path)))
            self._connection.execute("BEGIN")
            has_path = self._check_tables()
            self._saver = SqliteSaver(self._connection, serde=self._reader)
            self._saver.is_setup = True  # it would make tables
            self._saver._has_task_path = has_path
            opening.enter_context(self._reader.listening())
            self._open = opening.pop_all()
        self._path_column = "task_path" if has_path else "''"

    def close(self) -> None:
        self._open.close()

    def _check_tables(self) -> bool:
        """Returns True if the table of writes has the column `task_path`, which was added later."""
        columns: dict[str, set[str]] = {}
        for table in COLUMNS:
            rows = self._connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
            columns[table] = {name for (name,) in rows}
            if not columns[table]:
                raise self._not_ours(f"it has no table {table!r}")
            if absent := sorted(COLUMNS[table] - columns[table]):
                raise self._not_ours(
                    f"its table {table!r} has no column {absent[0]!r}, as before the first release "
                    "of langgraph-checkpoint-sqlite"
                )
        return "task_path" in columns["writes"]

    def _not_ours(self, why: str) -> NotAStore:
        return NotAStore(
            f"is not a database of LangGraph's SqliteSaver: {why}",
            target=f"file {self.name}",
            hint="name the file that SqliteSaver.from_conn_string(…) was given",
        )

    # -- reading ---------------------------------------------------------------------------

    def threads(self, only: Sequence[str] = ()) -> list[SourceThread]:
        with self._said():
            counted = self._connection.execute(
                "SELECT thread_id, count(*), sum(coalesce(length(checkpoint), 0) + "
                "coalesce(length(metadata), 0)) FROM checkpoints GROUP BY thread_id "
                "ORDER BY thread_id"
            ).fetchall()
            written = self._connection.execute(
                "SELECT thread_id, sum(coalesce(length(value), 0)), sum(NOT EXISTS (SELECT 1 FROM "
                "checkpoints AS c WHERE c.thread_id = w.thread_id AND c.checkpoint_ns = "
                "w.checkpoint_ns AND c.checkpoint_id = w.checkpoint_id)) FROM writes AS w "
                "GROUP BY thread_id"
            ).fetchall()
        writes = {name: (size, orphans) for name, size, orphans in written}
        found = [
            SourceThread(
                name, count, size + writes.get(name, (0, 0))[0], writes.get(name, (0, 0))[1]
            )
            for name, count, size in counted
        ]
        if only:
            there = {thread.name for thread in found}
            for name in set(only) - there:
                raise no_such_thread(name, sorted(there), f"file {self.name}")
            found = [thread for thread in found if thread.name in only]
        return found

    def checkpoints(self, thread: str) -> list[CheckpointAddress]:
        self._reader.forget()
        with self._said():
            rows = self._connection.execute(
                "SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id FROM checkpoints "
                "WHERE thread_id = ?",
                (thread,),
            )
            return in_order(
                [CheckpointAddress(space, id, parent or None) for space, id, parent in rows]
            )

    def write_keys(self, thread: str, address: CheckpointAddress) -> list[WriteKey]:
        with self._said():
            rows = self._connection.execute(
                f"SELECT task_id, {self._path_column}, idx, channel FROM writes WHERE "
                "thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?",
                (thread, address.namespace, address.id),
            ).fetchall()
        return in_write_order(rows)

    # -- SQLite's errors -------------------------------------------------------------------

    @contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._error(error) from error

    def _error(self, error: sqlite3.Error) -> PerdureError:
        target = f"file {self.name}"
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_NOTADB:
            return NotAStore("is not a SQLite database", target=target)
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreUnavailable(
                "is locked by another process",
                target=target,
                hint="end what writes to it, and try again",
            )
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
            return StoreUnavailable(
                f"cannot be opened only to be read: {error}",
                target=target,
                hint="if its writer was killed, SQLite must recover it first: open it "
                "once with the program that owns it, or import a copy of the file and of its "
                "-wal or -journal",
            )
        return Corrupt(f"cannot be read: {error}", target=target)


def _connect(path: str) -> sqlite3.Connection:
    if not os.path.exists(path):
        raise NotFound("there is no such file", target=f"file {path}")
    if os.path.isdir(path):
        raise NotAStore("is a folder", target=f"file {path}")
    uri = Path(path).absolute().as_uri() + "?mode=ro"
    folder = os.path.dirname(os.path.abspath(path))
    beside = any(_size_of(path + part) for part in ("-wal", "-journal"))
    if not os.access(folder, os.W_OK) and not beside:
        uri += "&immutable=1"  # a WAL's index cannot be made there; and nobody writes there
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_S)


@contextmanager
def _closing(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    try:
        yield connection
    finally:
        connection.close()  # which ends the transaction


def _size(path: str) -> int:
    return sum(_size_of(path + more) for more in ("", "-wal"))


def _size_of(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0
