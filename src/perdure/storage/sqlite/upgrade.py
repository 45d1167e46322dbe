"""A store of an earlier format, upgraded; or, if nothing may be written, seen as if it were.

The log stays as it is, byte for byte: only the tables beside it change.
"""

from __future__ import annotations

from typing import Any

import apsw

from perdure.core.format import chain
from perdure.core.format.records import Outcome, Record
from perdure.errors import PerdureError
from perdure.storage.sqlite import wal_base
from perdure.storage.sqlite.rows import place
from perdure.storage.sqlite.statements import migrations


def is_old(connection: apsw.Connection) -> bool:
    return _format(connection) < max(migrations())


def upgrade(connection: apsw.Connection) -> None:
    """Upgrades in one transaction: a crash leaves the old format, or the new one.

    Call it only after the file, with its WAL, was found sound: it writes.
    """
    if not is_old(connection):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for number in _missing(connection):  # of this moment: another process may have been faster
            connection.execute(migrations()[number])
            if number == 2:
                _add_times(connection)
            connection.execute(f"PRAGMA user_version = {number}")
        wal_base.make(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def see_as_new(connection: apsw.Connection) -> None:
    """Gives a read-only connection the tables of a later format, in its memory. Names resolve to
    temporary tables before those of the file."""
    missing = _missing(connection)
    if not missing:
        return
    connection.pragma("temp_store", "memory")
    for table in ("runs", "executors"):
        connection.execute(f"CREATE TEMP TABLE {table} AS SELECT * FROM main.{table}")
    for number in missing:
        script = migrations()[number].replace("CREATE TABLE", "CREATE TEMP TABLE")
        connection.execute(script)
    _add_times(connection)
    connection.pragma("query_only", True)  # or a message would be put into memory, and be gone


def see_as_it_is(connection: apsw.Connection) -> None:
    """Undoes `see_as_new`."""
    connection.pragma("query_only", False)
    names = connection.execute(
        "SELECT name FROM temp.sqlite_schema WHERE type = 'table'"
    ).fetchall()
    for (name,) in names:
        if not str(name).startswith("sqlite_"):
            connection.execute(f"DROP TABLE temp.{name}")


def _format(connection: apsw.Connection) -> int:
    return int(connection.pragma("user_version"))


def _missing(connection: apsw.Connection) -> list[int]:
    there = _format(connection)
    return [number for number in migrations() if number > there]


def _add_times(connection: apsw.Connection) -> None:
    """Fills in when each run began and last changed, according to the log."""
    query = "SELECT place, id, agent_no, started, ended FROM runs"
    rows: list[Any] = connection.execute(query).fetchall()
    for key, run_id, no, started, ended in rows:
        last = ended or _last_change(connection, run_id, no, started)
        times = _time(connection, no, started), _time(connection, no, last)
        connection.execute(
            "UPDATE runs SET started_at = ?, changed_at = ? WHERE place = ?", (*times, key)
        )


def _time(connection: apsw.Connection, no: int, seq: int) -> int:
    """Returns the time of a commit; 0 if it cannot be read: an upgrade does not report that."""
    found: Any = connection.execute(
        "SELECT header FROM commits WHERE id = ?", (place(no, seq),)
    ).fetchall()
    try:
        return chain.tail_of(found[0][0], "").at if found else 0
    except PerdureError:
        return 0


def _last_change(connection: apsw.Connection, run_id: str, no: int, started: int) -> int:
    """Returns the seq of the latest commit that changed the row of an unfinished run."""
    commits = connection.execute(
        "SELECT id - ?1, header, payload, (SELECT name FROM agents WHERE no = ?3) "
        "FROM commits WHERE id > ?2 AND id < ?4 ORDER BY id DESC",
        (place(no, 0), place(no, started), no, place(no + 1, 0)),
    )
    for seq, header, payload, agent in commits:
        try:
            records = chain.read_commit(agent, seq, header, payload).typed
        except PerdureError:
            continue
        if any(record.run == run_id and _changes_row(record) for record in records):
            return int(seq)
    return started


def _changes_row(record: Record) -> bool:
    if isinstance(record, Outcome):
        return record.by_person
    return record.t in ("run-resumed", "run-stopped", "run-cancelled", "run-finished")
