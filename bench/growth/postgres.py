"""The same calls on PostgreSQL: statements that were sent, and rows that its server read or wrote.

A server of our own, which plans as if all tables were large (`SETTINGS`). A store is built once, in
a database of its own, which is copied for each call by the server itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

import perdure
from bench.growth.counting import Counter
from bench.growth.places import HISTORIES, SNAPSHOTS, Place
from perdure.storage.postgres.backend import PostgresBackend
from perdure.storage.postgres.connection import Connection
from perdure.system import process_id
from tests.postgres.server import Server

SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "enable_seqscan": "off",
    "autovacuum": "off",
    "jit": "off",
}
"""It looks into an index wherever there is one, as in tables that are large; and nobody else reads
or writes rows."""

SETTLED_S = 20.0
ROWS = """
SELECT coalesce((SELECT sum(idx_tup_read) FROM pg_stat_user_indexes), 0)::bigint
     + coalesce((SELECT sum(seq_tup_read + n_tup_ins + n_tup_upd + n_tup_del)
                 FROM pg_stat_user_tables), 0)::bigint
"""
STRANGERS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND NOT pid = ANY(%s)
"""


class PostgresCounter:
    """Of all stores in one database, that of the place's own and those that a call opens."""

    few = 20

    def __init__(self) -> None:
        self._statements = self._rows = 0
        self.reader: Any = None
        """A connection to the database."""

    def begin(self) -> None:
        self._rows = self._rows_by_now()
        self._statements = 0

    def counted(self) -> tuple[int, int]:
        statements = self._statements
        return statements, self._rows_by_now() - self._rows

    def _known(self, backends: Sequence[PostgresBackend]) -> list[int]:
        """The server's processes for those connections that stay: a line may be opened anew."""
        kept = [one._line._conn for one in backends]
        kept += [place.connection for one in backends for place in one._pool._places]
        return [one.info.backend_pid for one in (self.reader, *kept) if one is not None]

    def _rows_by_now(self) -> int:
        """A server process tells its counts when it ends, or when it is told to."""
        reader, alive = self.reader, [known() for known in process_id._renewed]
        backends = [one for one in alive if isinstance(one, PostgresBackend)]
        until = time.monotonic() + SETTLED_S
        while reader.execute(STRANGERS, (self._known(backends),)).fetchone()[0] or any(
            place.lock.held for one in backends for place in one._pool._places
        ):  # one that notifies others, say
            assert time.monotonic() < until, "somebody else is still connected"
            time.sleep(0.005)
        for backend in backends:
            for one in backend._pool.idle:
                one.execute("SELECT pg_stat_force_next_flush()")
        return int(reader.execute(ROWS).fetchone()[0])

    def __enter__(self) -> None:
        """Statements are counted where they are sent: prepared anew or not, it is one."""
        self._call, self._execute = Connection.call, psycopg.Cursor.execute

        def call(*args: Any, **kwargs: Any) -> Any:
            self._statements += 1
            return self._call(*args, **kwargs)

        def execute(*args: Any, **kwargs: Any) -> Any:
            self._statements += 1
            return self._execute(*args, **kwargs)

        Connection.call, psycopg.Cursor.execute = call, execute  # type: ignore[method-assign]

    def __exit__(self, *error: object) -> None:
        Connection.call, psycopg.Cursor.execute = self._call, self._execute  # type: ignore[method-assign]


class PostgresPlaces:
    """In databases of one server.

    Args:
        copied: False: a call finds the store as the one before it left it, which saves the time of
            a copy: for calls that leave its history as long as it was.
    """

    def __init__(self, server: Server, *, copied: bool = True) -> None:
        self._server = server
        self._copied = copied
        self._built: set[str] = set()
        self._copies = 0
        self._counter = PostgresCounter()
        self.counter: Counter = self._counter

    def build(self, history: str, length: int) -> None:
        name = f"{history}_{length}"
        if name in self._built:
            return
        self._server.sql(f"CREATE DATABASE {name}")
        url = self._server.url("growing", database=name)
        with perdure.open(url, snapshots=SNAPSHOTS) as store:
            HISTORIES[history](store, length)
        with psycopg.connect(self._server.url(database=name), autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")  # as the server's own would by then
        self._built.add(name)

    @contextmanager
    def open(self, history: str, length: int) -> Iterator[Place]:
        self.build(history, length)
        name = f"{history}_{length}"
        if not self._copied:
            with self._opened(name, length) as place:
                yield place
            return
        self._copies += 1
        copy = f"copy_{self._copies}"
        self._server.sql(f"CREATE DATABASE {copy} TEMPLATE {name} STRATEGY file_copy")
        try:
            with self._opened(copy, length) as place:
                yield place
        finally:
            self._server.sql(f"DROP DATABASE {copy} WITH (FORCE)")

    @contextmanager
    def _opened(self, database: str, length: int) -> Iterator[Place]:
        self._copies += 1
        other = self._server.url(f"other_{self._copies}", database=database)
        url = self._server.url("growing", database=database)
        with (
            psycopg.connect(self._server.url(database=database), autocommit=True) as reader,
            perdure.open(url, snapshots=SNAPSHOTS) as store,
        ):
            self._counter.reader = reader
            yield Place(url, store, length, other)
