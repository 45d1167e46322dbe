"""The write-ahead log as a file: made durable, rewritten, and extended ahead of its use.

None of SQLite's locks is on this file, so closing a descriptor of it is safe.
"""

from __future__ import annotations

import os
from contextlib import suppress

import apsw

from perdure.storage.sqlite.frames import FRAME_HEADER_SIZE, WAL_HEADER_SIZE

COPIED_AT_ONCE = 1 << 20

FRAME_SIZE = FRAME_HEADER_SIZE + 4096

ROOM_BEHIND = WAL_HEADER_SIZE + 32 * 1024
"""Bytes of the file that are not of its frames, at least, when a commit is written: the header, and
what shall be there already behind the last one."""

ROOM = 120 * 1024
"""The number of bytes by which it is extended. More saves little, and whoever pays for it waits
longer."""

_ZEROS = bytes(4096)
"""Written one by one: what is written at once, Linux may keep in one piece, and then counts all of
it as written at each commit that changes a part."""


def make_room(path: str, vfs: str | None) -> None:
    """Extends the WAL by zeros. Called inside a write transaction, before its COMMIT.

    A commit that extends a file has the new length and blocks written to the file system's journal
    at its sync, which takes as long as the commit itself. Existing zeros are overwritten in place.
    (Blocks that are only reserved are not enough: the first write to each is a change of the file
    system, too.) SQLite's recovery ends at them, because their salts are not those of the WAL's
    header (https://sqlite.org/fileformat2.html#walformat). Only the holder of SQLite's write lock
    writes behind the last frame, and the zeros are synced with the commit.

    A full disk is not an error here: the commit finds out by itself whether it has room.
    """
    flags = [apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_READWRITE, 0]
    with suppress(apsw.Error):
        wal = apsw.VFSFile(vfs or "unix", path + "-wal", flags)
        try:
            end = wal.xFileSize()
            for at in range(end, end + ROOM, len(_ZEROS)):
                wal.xWrite(_ZEROS, at)
        finally:
            wal.xClose()


def sync_wal(path: str) -> None:
    """Makes what was written to the WAL durable."""
    descriptor = os.open(path + "-wal", os.O_RDONLY)
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def write_wal_again(connection: apsw.Connection, path: str) -> None:
    """Makes the WAL durable after a failed sync: the system may have forgotten what it had to
    write, and would report a second sync as a success. So all of it is written again, then synced.

    Raises:
        OSError, apsw.Error: it may still not be durable.
    """
    connection.execute("BEGIN IMMEDIATE")  # nobody else writes to it meanwhile
    try:
        descriptor = os.open(path + "-wal", os.O_RDWR)
        try:
            at = 0
            while data := os.pread(descriptor, COPIED_AT_ONCE, at):
                at += os.pwrite(descriptor, data, at)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
    finally:
        with suppress(apsw.Error):  # the connection is dropped then
            connection.execute("ROLLBACK")
