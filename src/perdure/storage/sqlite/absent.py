"""Transactions that surely did not happen, found by looking when the file has no room to be written
again.

The story: a disk was full, and the commit that met it was reported as "unknown". After an error the
WAL is written again and moved into the main file before any answer, as after a failed sync; but the
main file could not grow. So after a full disk people had to look for a commit that could not be
there.

That SQLite does not show a transaction is no proof. It may lie in the WAL as a whole, while the
shared index of the WAL does not say so, because there was no room for the next part of that index.
After a crash such a transaction appears. So the WAL is examined as a recovery would do it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

import apsw

from perdure.errors import PerdureError
from perdure.storage.sqlite.btree import PAGE_SIZE
from perdure.storage.sqlite.faults import NO_ROOM, unmasked
from perdure.storage.sqlite.file_complete import open_wal
from perdure.storage.sqlite.frames import Frames
from perdure.storage.sqlite.wal_index import FRAMES, SALTS, UNKNOWN, wal_index
from perdure.storage.unknown_outcome import unknown

Connect = Callable[[], apsw.Connection]

Find = Callable[[apsw.Connection], object]
"""Finds what a transaction did; None: that is not there."""


def is_refused_room(error: BaseException, connection: apsw.Connection | None) -> bool:
    """Returns True if an error says only that there was no room to write something. A sync without
    room does not count: which frames it left out is unknown."""
    if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_FSYNC:
        return False
    error = unmasked(error, connection)
    if isinstance(error, OSError):
        return error.errno in NO_ROOM
    return isinstance(error, apsw.FullError)


def judged(
    problem: PerdureError, path: str, finds: Sequence[Find], connect: Connect | None
) -> list[PerdureError]:
    """Returns the errors for the parts of a transaction that failed with `problem`: each is surely
    not there, and will not appear later, or is unknown.

    Args:
        connect: opens a connection to look; None: no look can tell.
    """
    absent = [False] * len(finds)
    with suppress(Exception):  # then nobody can tell, either
        if connect is not None:
            absent = _are_absent(connect(), path, finds)
    return [problem if surely else unknown(problem, f"store {path}") for surely in absent]


def _are_absent(connection: apsw.Connection, path: str, finds: Sequence[Find]) -> list[bool]:
    try:
        connection.execute("BEGIN IMMEDIATE")  # nobody else writes to the WAL meanwhile
        for_good = not _may_come_to_light(connection, path)
        return [for_good and find(connection) is None for find in finds]
    finally:
        connection.close(True)


def _may_come_to_light(connection: apsw.Connection, path: str) -> bool:
    """True if a recovery of the WAL may find more than SQLite takes for valid now."""
    words = wal_index(connection)
    if words is UNKNOWN:
        return True
    valid, salts = words[FRAMES], b"".join(word.to_bytes(4, sys.byteorder) for word in words[SALTS])
    wal = open_wal(path)
    try:
        frames = Frames(wal, PAGE_SIZE)
        if frames.is_headless or (valid and (frames.salts != salts or frames.count < valid)):
            return True
        # If none is valid, the salts mean nothing: the index may get those of a new WAL only with
        # its first transaction.
        return frames.has_commit_behind(valid)
    finally:
        wal.xClose()
