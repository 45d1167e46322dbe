"""Housekeeping of the store as a whole: sizes, reading every row, and tidying tables."""

from __future__ import annotations

from typing import Any

from psycopg import errors

from perdure.errors import StoreUnavailable
from perdure.storage.answers import Sizes
from perdure.storage.postgres.connection import Connection
from perdure.storage.postgres.statements import quoted, statements
from perdure.system import logs

_log = logs.logger("perdure.postgres")


def sizes(db: Connection, schema: str, no: int | None) -> Sizes:
    """See `Backend.maintain`, "sizes"."""
    sql, values = statements(schema), {"no": no}

    def one(name: str, bound: Any = values) -> Any:
        return db.execute(sql[name], bound).fetchone()

    commits, headers, payloads = one("count_commits")
    snapshots, manifests = one("count_snapshots")
    leaves, leaf_bytes = one("count_leaves")
    on_disk = one("file_bytes", (quoted(schema),))[0]
    return Sizes(commits, headers, payloads, snapshots, manifests, leaves, leaf_bytes, on_disk)


def read_all(db: Connection, schema: str) -> Sizes:
    """Reads every row that this user may see, completely. With data checksums (initdb
    --data-checksums) the server finds bytes that changed on its disk; that is `Corrupt`."""
    unread = []
    for table in _tables(db, schema):
        # A row as text: that also reads what is stored outside the table.
        statement = f"SELECT max(length(t::text)) FROM {quoted(schema)}.{table} t"
        try:
            db.execute(statement)
        except errors.InsufficientPrivilege:  # an auditor's, who proves the logs
            unread.append(table)
    return Sizes(extra={"unread": sorted(unread)} if unread else {})


def clean(db: Connection, schema: str) -> None:
    """Frees deleted and changed rows; the server's autovacuum does, too. Only the owner of the
    tables may."""
    for table in _tables(db, schema):
        try:
            db.execute(f"VACUUM (ANALYZE) {quoted(schema)}.{table}")
        except errors.InsufficientPrivilege:
            _log.info("cannot vacuum %s: this user does not own it", table)


def shrink(db: Connection, schema: str, url: str) -> None:
    """Writes the tables anew, without the free room in them; each is locked meanwhile.

    Raises:
        StoreUnavailable: this user does not own them.
    """
    owns = db.execute(statements(schema)["owns_tables"], (quoted(schema),)).fetchone()
    if owns != (True,):
        raise StoreUnavailable(
            "this user does not own the tables",
            target=f"store {url}",
            hint="have their owner return the room; nothing was changed",
        )
    for table in _tables(db, schema):
        db.execute(f"VACUUM (FULL, ANALYZE) {quoted(schema)}.{table}")


def _tables(db: Connection, schema: str) -> list[str]:
    rows = db.execute(statements(schema)["list_tables"], (quoted(schema),)).fetchall()
    return [str(row[0]) for row in rows]
