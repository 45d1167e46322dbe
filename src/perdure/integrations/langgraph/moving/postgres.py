"""The tables of LangGraph's `PostgresSaver`, only read; each thread as of one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from importlib.metadata import version

from langgraph.checkpoint.postgres import PostgresSaver

from perdure.errors import NotAStore, UnsupportedFormat
from perdure.integrations.langgraph.moving.database import Database
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

LIBRARY = "langgraph-checkpoint-postgres"
COLUMNS = {
    "checkpoints": {
        "thread_id",
        "checkpoint_ns",
        "checkpoint_id",
        "parent_checkpoint_id",
        "checkpoint",
        "metadata",
    },
    "checkpoint_blobs": {"thread_id", "checkpoint_ns", "channel", "version", "type", "blob"},
    "checkpoint_writes": {
        "thread_id",
        "checkpoint_ns",
        "checkpoint_id",
        "task_id",
        "idx",
        "channel",
        "type",
        "blob",
    },
}
VERSIONS = "checkpoint_migrations"

_COLUMNS = """
SELECT t.name, a.attname::text FROM unnest(%s::text[]) AS t (name)
JOIN pg_attribute AS a ON a.attrelid = to_regclass(t.name) AND a.attnum > 0 AND NOT a.attisdropped
"""
_BYTES = """
SELECT coalesce(sum(pg_total_relation_size(to_regclass(t.name))), 0)::bigint
FROM unnest(%s::text[]) AS t (name)
"""
# Measures the stored form, not the unpacked one: nothing large is read for it.
_CHECKPOINTS = """
SELECT thread_id, count(*), sum(pg_column_size(checkpoint) + pg_column_size(metadata))::bigint
FROM checkpoints AS x {where} GROUP BY thread_id
"""
_BLOBS = """
SELECT thread_id, coalesce(sum(pg_column_size(blob)), 0)::bigint
FROM checkpoint_blobs AS x {where} GROUP BY thread_id
"""
_WRITES = """
SELECT x.thread_id, sum(pg_column_size(x.blob))::bigint,
    count(*) FILTER (WHERE c.checkpoint_id IS NULL)
FROM checkpoint_writes AS x LEFT JOIN checkpoints AS c USING (thread_id, checkpoint_ns,
    checkpoint_id) {where} GROUP BY x.thread_id
"""
_ONLY = "WHERE x.thread_id = ANY(%s)"


class PostgresSource(ReadBySaver):
    """Reads through LangGraph's own `PostgresSaver`, so that the result is what LangGraph shows.

    Each thread is read in one read-only transaction, which ends with the thread: concurrent writers
    are neither blocked nor seen. A standby works, too.

    Args:
        types: the user's own classes, by the name under which they were written.

    Raises:
        ValueError: libpq cannot read the URL.
        NotFound: there is no such database.
        NotAStore: it does not have the tables of `PostgresSaver`.
        UnsupportedFormat: they are newer than the library that reads them.
        StoreUnavailable: the server does not answer, or refuses the connection.
    """

    file = ""

    def __init__(self, url: str, types: Mapping[str, type]) -> None:
        self._reader = Reader(types)
        with ExitStack() as opening:
            self._database = Database(url)
            opening.callback(self._database.close)
            self.name = self._database.shown
            self._saver = PostgresSaver(self._database.connection, serde=self._reader)
            with self._database.said():
                self._database.begin()
                self._path_column = self._look()
                self.bytes = int(self._database.rows(_BYTES, [*COLUMNS, VERSIONS])[0][0])
            opening.enter_context(self._reader.listening())
            self._open = opening.pop_all()

    def close(self) -> None:
        self._open.close()

    # -- whose tables they are -------------------------------------------------------------

    def _look(self) -> str:
        """The column of a write's path, which came later, or what stands for it."""
        columns: dict[str, set[str]] = {name: set() for name in (*COLUMNS, VERSIONS)}
        for table, column in self._database.rows(_COLUMNS, list(columns)):
            columns[table].add(column)
        for table, wanted in COLUMNS.items():
            if not columns[table]:
                raise self._not_ours(f"it has no table {table!r} in {self._searched()}")
            if absent := sorted(wanted - columns[table]):
                raise self._not_ours(f"its table {table!r} has no column {absent[0]!r}", absent)
        if "v" in columns[VERSIONS]:
            self._check_version()
        if "task_path" in columns["checkpoint_writes"]:
            return "task_path"
        self._saver.SELECT_SQL = _without_path(self._saver.SELECT_SQL)
        self._saver.SELECT_PENDING_SENDS_SQL = _without_path(self._saver.SELECT_PENDING_SENDS_SQL)
        return "''"

    def _searched(self) -> str:
        [(found,)] = self._database.rows("SELECT current_schemas(false)::text[]")
        return f"schema {', '.join(found)}" if found else "a schema that this user may look into"

    def _not_ours(self, why: str, absent: Sequence[str] = ()) -> NotAStore:
        hint = (
            "name the database that PostgresSaver.from_conn_string(…) was given, and the schema if "
            "it is not the user's usual one: postgresql://user@host/database?schema=name"
        )
        if "checkpoint_id" in absent:
            why += ", as with ShallowPostgresSaver, which keeps no history"
            hint = (
                "give each thread's one state to a new thread: "
                "app.update_state(config, old_app.get_state(config).values)"
            )
        return NotAStore(
            f"is not a database of LangGraph's PostgresSaver: {why}",
            target=f"database {self.name}",
            hint=hint,
        )

    def _check_version(self) -> None:
        [(found,)] = self._database.rows(f"SELECT max(v) FROM {VERSIONS}")
        known = len(self._saver.MIGRATIONS) - 1
        if found is not None and found > known:
            raise UnsupportedFormat(
                f"its tables are of version {found}, and {LIBRARY} {version(LIBRARY)} knows "
                f"{known}",
                target=f"database {self.name}",
                hint=f"pip install --upgrade {LIBRARY}",
            )

    # -- reading ---------------------------------------------------------------------------

    def threads(self, only: Sequence[str] = ()) -> list[SourceThread]:
        where, values = (_ONLY, [list(only)]) if only else ("", [])
        with self._database.said():
            self._database.begin()
            counted, blobs, written = (
                self._database.rows(statement.format(where=where), *values)
                for statement in (_CHECKPOINTS, _BLOBS, _WRITES)
            )
            sizes = dict(blobs)
            writes = {name: (size, orphans) for name, size, orphans in written}
            found = [
                SourceThread(
                    name,
                    count,
                    size + sizes.get(name, 0) + writes.get(name, (0, 0))[0],
                    writes.get(name, (0, 0))[1],
                )
                for name, count, size in sorted(counted)
            ]
            for name in set(only) - {thread.name for thread in found}:
                there = self._database.rows("SELECT DISTINCT thread_id FROM checkpoints ORDER BY 1")
                raise no_such_thread(name, [one for (one,) in there], f"database {self.name}")
        return found

    def checkpoints(self, thread: str) -> list[CheckpointAddress]:
        self._reader.forget()
        with self._database.said():
            self._database.begin()
            rows = self._database.rows(
                "SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id FROM checkpoints "
                "WHERE thread_id = %s",
                thread,
            )
        return in_order(
            [CheckpointAddress(space, id, parent or None) for space, id, parent in rows]
        )

    def _said(self) -> AbstractContextManager[None]:
        return self._database.said()

    def write_keys(self, thread: str, address: CheckpointAddress) -> list[WriteKey]:
        with self._database.said():
            rows = self._database.rows(
                f"SELECT task_id, {self._path_column}, idx, channel FROM checkpoint_writes WHERE "
                "thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s",
                thread,
                address.namespace,
                address.id,
            )
        return in_write_order(rows)


def _without_path(statement: str) -> str:
    """LangGraph's statement, for tables from before writes had a path."""
    return statement.replace("convert_to(cw.task_path, 'UTF8')", "''::bytea").replace(
        "order by task_path, ", "order by "
    )
