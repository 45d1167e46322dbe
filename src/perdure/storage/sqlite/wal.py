"""The write-ahead log as a file: made durable, written anew, and made longer ahead of its use.

None of SQLite's locks lives on this file, so that closing a descriptor of it is safe.
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
"""What it is made longer by, in bytes. More saves little, and whoever pays for it waits longer."""

_ZEROS = bytes(4096)
"""Written one by one: what is written at once, Linux may keep in one piece, and then counts all of
it as written at each commit that changes a part."""


def make_room(path: str, vfs: str | None) -> None:
    """Make the WAL longer, by zeros. To be called inside a write transaction, before its COMMIT.

    A commit that makes a file longer has its new length and new blocks written to the file system's
    journal at its sync, which takes as long as the commit itself. Zeros that lie there already are
    written over in place. (Blocks that are only reserved are not enough: the first write to each is
    a change of the file system, too.) SQLite's recovery ends at them, as their salts are not those
    of the WAL's header (https://sqlite.org/fileformat2.html#walformat). Whoever holds SQLite's
    write lock is alone in writing behind the last frame, and they are synced with the commit.

    A disk that is full is no error here: the commit finds out by itself whether it has room.
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
    """Make what was written to the WAL durable."""
    descriptor = os.open(path + "-wal", os.O_RDONLY)
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def write_wal_again(connection: apsw.Connection, path: str) -> None:
    """Make the WAL durable after a sync of it failed: the system may have forgotten what it had to
    write, and would then call a second sync a success. So all of it is written anew, then synced.

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
