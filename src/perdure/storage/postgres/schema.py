"""A store's tables in the database: made, found, upgraded.

Migrations only add, so that programs of the previous version work beside new ones; a migration that
cannot raises `readable_by`, and older programs refuse the store from their next connection on.
"""

from __future__ import annotations

import re
import secrets
import time

import psycopg
from msgspec import Struct
from psycopg import errors

from perdure.errors import NotFound, UnsupportedFormat
from perdure.storage.postgres.address import Address
from perdure.storage.postgres.connection import Connection
from perdure.storage.postgres.statements import migrations, quoted, statements

PARTITIONED = ("commits", "refs", "keys", "snapshots", "leaves", "runs", "inbox")

ROOM = {"refs": 50, "runs": 70, "executors": 50, "inbox": 80}
"""The fill factor of pages, in percent: rows that change often find room beside themselves."""

LOCK_MAX_MS = 500
"""The longest wait for a table: less than the `deadlock_timeout` of most servers, a second."""

GIVES_WAY_S = 0.05
_BY = re.compile(r"\{by (\w+)\}")


class Format(Struct, frozen=True):
    """The format of a store's tables.

    Attributes:
        store: a random id of this store; a feed's cursor names it.
        partitions: 0: the tables are not split.
    """

    version: int
    readable_by: int
    partitions: int
    store: str


def find(connection: Connection, address: Address) -> Format | None:
    """Returns the format of the store that is there; None if there is none. Notes who answers.

    Raises:
        UnsupportedFormat: only a newer perdure may use it.
    """
    try:
        row = connection.execute(statements(address.schema)["find_format"]).fetchone()
    except (errors.UndefinedTable, errors.InvalidSchemaName):
        return None
    if row is None:
        return None
    *fields, connection.server = row
    connection.asked = time.monotonic()
    found = Format(*fields)
    ours = max(migrations())
    if found.readable_by > ours:
        raise UnsupportedFormat(
            f"its tables are of format {found.version}, but this perdure knows only up to {ours}",
            target=f"store {address.shown}",
            hint="use a newer perdure",
        )
    return found


def prepare(connection: Connection, address: Address, *, create: bool) -> Format:
    """Finds the store; makes it, or upgrades it, if need be.

    Raises:
        NotFound: it is not there, and `create` is false.
        UnsupportedFormat: as `find`.
    """
    found = find(connection, address)
    if found is None and not create:
        raise NotFound(
            f"there is no store in schema {address.schema!r}",
            target=f"store {address.shown}",
            hint="check the URL; stores are created by programs, not by looking at them",
        )
    if found is not None and found.version >= max(migrations()):
        return found
    return upgrade(connection, address, max(migrations()))


def upgrade(connection: Connection, address: Address, to: int) -> Format:
    """Upgrades in one transaction, by one program at a time; the others find it done. Programs that
    read and write meanwhile wait for its end. On a mutual wait it starts again, before the server
    ends one of them."""
    until = time.monotonic() + address.deadline_s
    while True:
        try:
            return _upgrade(connection, address, to)
        except (errors.DeadlockDetected, errors.LockNotAvailable):
            if time.monotonic() > until:
                raise
            time.sleep(GIVES_WAY_S)


def _upgrade(connection: Connection, address: Address, to: int) -> Format:
    with connection.transaction():
        connection.execute(
            "SELECT set_config('synchronous_commit', 'on', true), "
            "pg_advisory_xact_lock(hashtextextended(%s, 0))",
            (f"perdure migration {address.schema}",),
        )
        found = _found_now(connection, address)
        connection.execute(f"SET LOCAL lock_timeout = {LOCK_MAX_MS}")
        if found is None:
            found = Format(0, 0, address.partitions, secrets.token_hex(16))
            if not _has_schema(connection, address.schema):
                _run(connection, f"CREATE SCHEMA {quoted(address.schema)}")
        for number in range(found.version + 1, to + 1):
            _migrate(connection, address.schema, number, found.partitions)
        _note(connection, address.schema, found, to)
    return find(connection, address) or found


def _found_now(connection: Connection, address: Address) -> Format | None:
    """Finds the format inside of a transaction, which an error would end."""
    rows = connection.execute(
        "SELECT to_regclass(%s)", (f"{quoted(address.schema)}.format",)
    ).fetchone()
    return find(connection, address) if rows and rows[0] is not None else None


def _has_schema(connection: Connection, schema: str) -> bool:
    found = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,))
    return found.fetchone() is not None


def _migrate(connection: Connection, schema: str, number: int, partitions: int) -> None:
    script = migrations()[number].replace("{schema}", quoted(schema))
    by = r"PARTITION BY HASH (\1)" if partitions else ""
    _run(connection, _BY.sub(by, script))
    if number != 1:
        return
    for table in PARTITIONED:
        for part in range(partitions):
            _run(
                connection,
                f"CREATE TABLE {quoted(schema)}.{table}_{part} PARTITION OF "
                f"{quoted(schema)}.{table} FOR VALUES WITH (MODULUS {partitions}, "
                f"REMAINDER {part})",
            )
    for table, percent in ROOM.items():
        parts = partitions if table in PARTITIONED else 0
        for name in [f"{table}_{part}" for part in range(parts)] or [table]:
            _run(connection, f"ALTER TABLE {quoted(schema)}.{name} SET (fillfactor = {percent})")


def _note(connection: Connection, schema: str, before: Format, version: int) -> None:
    table = f"{quoted(schema)}.format"
    if before.version == 0:
        connection.execute(
            f"INSERT INTO {table} (version, readable_by, partitions, store) "
            + "VALUES (%s, %s, %s, %s)",
            (version, 1, before.partitions, before.store),
        )
    else:
        connection.execute(f"UPDATE {table} SET version = %s", (version,))


def _run(connection: Connection, script: str) -> None:
    """Executes statements without values; their names come from this file and from
    `address.parse`."""
    cursor = psycopg.ClientCursor(connection)
    cursor.execute(script)
