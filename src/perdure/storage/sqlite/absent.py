"""What surely did not happen, where the file has no room to be written anew: found out by looks.

The story: a disk was full, and the commit that met it was said to be "unknown". After an error the
WAL is written anew and moved into the main file before any answer, as after a sync that failed; but
the main file could not grow. So whoever's disk was full had to look for a commit that could not be
there.

That SQLite does not show a transaction is no proof. It may lie in the WAL as a whole, and only the
index of it, which is shared, does not say so: there was no room for the next part of that index. A
crash brings such a one to light. So the WAL is looked at as a recovery would.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

import apsw

from perdure.errors import PerdureError
from perdure.storage.doubts import unknown
from perdure.storage.sqlite.btree import PAGE_SIZE
from perdure.storage.sqlite.faults import NO_ROOM, unmasked
from perdure.storage.sqlite.frames import Frames
from perdure.storage.sqlite.wal_index import FRAMES, SALTS, UNKNOWN, wal_index
from perdure.storage.sqlite.whole import open_wal

Connect = Callable[[], apsw.Connection]

Find = Callable[[apsw.Connection], object]
"""Finds what a transaction did; None: that is not there."""


def is_refused_room(error: BaseException, connection: apsw.Connection | None) -> bool:
    """Whether an error says that there was no room to write something, and no more. A sync that
    found none is another matter: which of the frames it left out, nobody can tell."""
    if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_FSYNC:
        return False
    error = unmasked(error, connection)
    if isinstance(error, OSError):
        return error.errno in NO_ROOM
    return isinstance(error, apsw.FullError)


def judged(
    problem: PerdureError, path: str, finds: Sequence[Find], connect: Connect | None
) -> list[PerdureError]:
    """The errors for what was to be done in one transaction that failed, by its problem: each thing
    is surely not there, and will not be seen later, or is unknown.

    Args:
        connect: to look; None: no look can tell.
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
    """Whether a recovery of the WAL may find more than what SQLite takes for valid now."""
    words = wal_index(connection)
    if words is UNKNOWN:
        return True
    valid, salts = words[FRAMES], b"".join(word.to_bytes(4, sys.byteorder) for word in words[SALTS])
    wal = open_wal(path)
    try:
        frames = Frames(wal, PAGE_SIZE)
        if frames.is_headless or (valid and (frames.salts != salts or frames.count < valid)):
            return True
        # Where none is valid, the salts say nothing: the index may get those of a new WAL only
        # with its first transaction.
        return frames.has_commit_behind(valid)
    finally:
        wal.xClose()
