"""Removal of deleted incarnations, part by part (`Backend.purge`).

The room is free for new rows once the server has vacuumed, as it does by itself. A role that may
only append cannot purge: the owner of the tables does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.errors import Conflict
from perdure.storage.appending import Append
from perdure.storage.postgres.connection import Connection
from perdure.storage.postgres.rows import text

TABLES = (
    "purge_leaves",
    "purge_snapshots",
    "purge_commits",
    "purge_keys",
    "purge_refs",
    "purge_runs",
)
"""Leaves before the snapshots that name them, and the rest in any order."""


def to_purge(db: Connection, sql: Mapping[str, str], after: int, limit: int) -> list[Any]:
    return db.cursor(binary=True).execute(sql["list_to_purge"], (after, limit)).fetchall()


def purge(db: Connection, sql: Mapping[str, str], no: int, limit: int) -> bool:
    """Removes one part, in one transaction; returns True if there may be more."""
    with db.transaction():
        db.execute(sql["feed_again"], {"no": no})
        if not db.execute(sql["begin_purge"], (no,)).rowcount:
            raise Conflict("is not deleted", target=f"agent number {no}")
        left = limit
        for name in TABLES:
            left -= db.execute(sql[name], {"no": no, "limit": left}).rowcount
            if left <= 0:
                return True
        db.execute(sql["end_purge"], (no,))
    return False


def trim(
    db: Connection,
    sql: Mapping[str, str],
    no: int,
    word: int,
    remains: Mapping[int, bytes],
    snapshots: Sequence[int],
) -> bool:
    """See `Backend.trim`. Writers wait: a snapshot on its way shares no leaf that is removed."""
    with db.transaction():
        db.execute(sql["lock_log"], (no,))
        if not remains:  # asked of no row, the server says whether this role may
            db.execute(sql["trim_commits"], ([], [], no), binary=True)
        row = db.execute(sql["find_word"], (no,)).fetchone()
        if word != (row[0] if row is not None else 0):
            return False
        if remains:
            db.execute(
                sql["trim_commits"], (list(remains), list(remains.values()), no), binary=True
            )
        if snapshots:
            db.execute(sql["trim_snapshots"], {"no": no, "seqs": list(snapshots)})
    return True


def bury(db: Connection, sql: Mapping[str, str], item: Append) -> None:
    """Puts in one of `Shipment.graves`, in the open transaction."""
    name = text(item.agent)
    db.execute(sql["make_agent"], (name, item.incarnation))
    row = db.execute(sql["lock_agent"], (name, item.incarnation)).fetchone()
    assert row is not None
    values = {
        "no": row[0],
        "seq": item.seq,
        "header": item.header,
        "payload": item.payload,
        "agent": name,
    }
    if not db.execute(sql["add_grave"], values, binary=True).rowcount:
        return
    for step in ("end_agent", "end_refs", "end_inbox", "end_runs"):
        db.execute(sql[step], values)
