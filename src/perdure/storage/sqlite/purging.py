"""Removal of deleted incarnations, part by part (`Backend.purge`).

The rows of an agent are adjacent, so their whole pages become free, and SQLite reuses them. A part
is small: its transaction ends before a writer notices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import apsw

from perdure.errors import Conflict
from perdure.storage.appending import Append
from perdure.storage.retention import RETENTION
from perdure.storage.sqlite.rows import do, find_ref, ids_json, place, run, span, unpack_ids

PART_BYTES = 4_000_000
"""About as much goes at once, but one row at least."""


def mark(db: apsw.Connection, no: int) -> None:
    """Marks it to be purged, in the transaction that deletes it."""
    do(db, "add_mark", (f"purge {no}",))


def to_purge(db: apsw.Connection, after: int, limit: int) -> list[int]:
    return [no for (no,) in run(db, "list_to_purge", (after, limit))]


def purge(db: apsw.Connection, no: int, limit: int) -> bool:
    """Removes one part, in the open transaction; returns True if there may be more."""
    found = run(db, "find_deleted", (no,))
    if not found or not found[0][0]:
        raise Conflict("is not deleted", target=f"agent number {no}")
    do(db, "note_purged", (no,))
    mark(db, no)
    left = _snapshots(db, no, limit)
    left -= _commits(db, no, left)
    for name in ("purge_keys", "purge_refs", "purge_runs"):
        if left > 0:
            do(db, name, (no, left))
            left -= db.changes()
    if left <= 0:
        return True
    do(db, "end_mark", (f"purge {no}",))
    return False


def _snapshots(db: apsw.Connection, no: int, limit: int) -> int:
    """Removes snapshots, each after its leaves; returns the rest of the limit."""
    for at, packed in run(db, "list_snapshots", (*span(no), limit)):
        ids = unpack_ids(packed)
        sizes = run(db, "measure_leaves", (ids_json(ids), limit))
        part = _in_part(sizes)
        do(db, "purge_leaves", (ids_json(part),))
        limit -= len(part)
        if len(part) < len(sizes) or limit <= 0:
            return 0
        do(db, "purge_snapshot", (at,))
        limit -= 1
        if limit <= 0:
            return 0
    return limit


def _commits(db: apsw.Connection, no: int, limit: int) -> int:
    """Removes all commits but the last; returns their number, or `limit` if there may be more."""
    first, end = span(no)
    last = run(db, "last_place", (first, end))[0][0]
    sizes = run(db, "measure_commits", (first, last - 1, limit))
    part = _in_part(sizes)
    if part:
        do(db, "purge_commits", (first, part[-1]))
    return limit if len(part) < len(sizes) else len(part)


def _in_part(sizes: list[tuple[int, int]]) -> list[int]:
    """Returns the ids of those that are removed at once."""
    part: list[int] = []
    total = 0
    for at, size in sizes:
        if part and total + size > PART_BYTES:
            break
        part.append(at)
        total += size
    return part


def trim(
    db: apsw.Connection,
    no: int,
    word: int,
    remains: Mapping[int, bytes],
    snapshots: Sequence[int],
) -> bool:
    """See `Backend.trim`; in the open transaction."""
    ref = find_ref(db, no, RETENTION)
    if word != (ref.seq if ref is not None else 0):
        return False
    for seq, data in remains.items():
        do(db, "trim_commit", (place(no, seq), data))
    gone: set[int] = set()
    for seq in snapshots:
        for _, packed in run(db, "list_snapshots", (place(no, seq), place(no, seq), 1)):
            gone.update(unpack_ids(packed))
        do(db, "purge_snapshot", (place(no, seq),))
    if gone:
        for (packed,) in run(db, "leaf_ids", span(no)):
            gone.difference_update(unpack_ids(packed))
        do(db, "purge_leaves", (ids_json(gone),))
    return True


def bury(db: apsw.Connection, item: Append) -> None:
    """Puts in one of `Shipment.graves`."""
    found = run(db, "find_agent", (item.agent, item.incarnation))
    no = found[0][0] if found else run(db, "add_agent", (item.agent, item.incarnation))[0][0]
    last = run(db, "last_place", span(no))
    if last and last[0][0] >= place(no, item.seq):
        return
    do(db, "add_commit", (place(no, item.seq), item.header, item.payload))
    do(db, "end_agent", (no,))
    do(db, "note_purged", (no,))
    do(db, "end_refs", (no,))
    do(db, "end_inbox", (item.agent,))
    do(db, "purge_runs", (no, -1))
    mark(db, no)


def mark_one(db: apsw.Connection, agent: str, incarnation: int) -> None:
    """Marks one of `Shipment.to_purge`."""
    for no, _, _, deleted, *_ in run(db, "find_agent", (agent, incarnation)):
        if deleted == 1:  # and not purged yet
            mark(db, no)
