"""Whether a WAL goes on from the very state of the main file that it lies beside.

The story: a machine crashed, and the store was found damaged. Its verified backup was copied over
it, and the WAL that the crash had left still lay there. SQLite moved that WAL's pages into the
backup: nothing in a WAL says which file it belongs to. What came out was malformed for good; or it
opened, with agents of two moments, and took edits.

So a row of the file, `wal_base`, has a number drawn by chance, and the one before. Whoever writes
where all of the WAL was moved into the main file draws the next, in that same transaction. Thus two
states of the main file with nothing left in a WAL never have the same number; and whatever WAL
begins, its first transaction holds that of the state that it goes on from, and its own. A crash
leaves the main file with one of the two.

That is looked at where a WAL was recovered, which is what SQLite does for whoever opens a file that
nobody has open. Until then it has written nothing but an index of the WAL.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Sequence
from contextlib import suppress

import apsw

from perdure.errors import Corrupt
from perdure.storage.sqlite.btree import LEAF_TABLE, is_whole
from perdure.storage.sqlite.frames import FRAME_HEADER_SIZE, WAL_HEADER_SIZE
from perdure.storage.sqlite.statements import statements
from perdure.storage.sqlite.wal_index import CHANGES, FRAMES, MOVED, STATE, wal_index
from perdure.system.shell import join, quote

_sql = statements()

_SIZE = 16
"""Bytes of a number."""

_NONE = bytes(_SIZE)

_ROW = bytes((3 + 2 * _SIZE, 1, 3, 12 + 2 * _SIZE, 12 + 2 * _SIZE))
"""How the only row of such a table begins: its size, its id, and the kinds of its columns. No other
table's can have these."""

_LEAF, _ONE = bytes((LEAF_TABLE,)), bytes((0, 1))
"""Of a page: its kind, and how many rows it has."""

_TRIED, _PAUSE_S = 4, 0.003
"""A page may just be written by who moves the WAL."""


class WalBase:
    """Of the connection that writes."""

    def __init__(self) -> None:
        self._words: Sequence[int] | None = None

    def forget(self) -> None:
        """It is another connection, or has left WAL mode."""
        self._words = None

    def begin(self, connection: apsw.Connection, *, always: bool = False) -> None:
        """In each transaction that writes, before anything else: draw the next number, if it is
        due, or `always`. Nobody moves a number but who has SQLite's write lock; and one transaction
        draws one, as the number before it must be that of a state that there was.
        """
        words = self._words
        if words is None:
            words = self._words = wal_index(connection)
        if always or words[FRAMES] == words[MOVED] or not words[CHANGES]:
            move(connection)

    def settle(self, connection: apsw.Connection) -> None:
        """Before the last one closes the file, and moves a WAL that it recovered: it may be a
        copy's, which ends where that of the original went on.

        Raises:
            apsw.Error: it may not be written. The WAL must stay.
        """
        words = wal_index(connection)
        if words[FRAMES] and not (words[CHANGES] or connection.in_transaction):
            connection.set_busy_timeout(0)  # who writes draws one
            connection.execute("BEGIN IMMEDIATE")
            if not words[CHANGES]:
                move(connection)
            connection.execute("COMMIT")


def make(connection: apsw.Connection) -> None:
    """In the transaction that makes the schema, or adds to an earlier one."""
    connection.execute(_sql["make_wal_base"])
    connection.execute(_sql["begin_wal_base"])


def move(connection: apsw.Connection, *, create: bool = True) -> None:
    """Draw the next number.

    Args:
        create: the table, in a store of an earlier version.
    """
    try:
        connection.execute(_sql["move_wal_base"])
    except apsw.SQLError:
        if create:
            make(connection)


def refuse_other_wal(connection: apsw.Connection, path: str) -> None:
    """To be asked by who opens a file beside which there is a WAL, before all else.

    Raises:
        Corrupt: that belongs to another file, or to another state of this one.
        OSError, apsw.Error: nobody can tell.
    """
    with suppress(apsw.Error):  # what is wrong is said by whoever needs it
        connection.execute("PRAGMA application_id").fetchall()  # recovers the WAL
    words = wal_index(connection)
    state = tuple(words[STATE])
    for tried in range(_TRIED):
        if not words[FRAMES] or words[CHANGES] or tuple(words[STATE]) != state:
            return  # it is in use: who opened it first has looked
        if tried:
            time.sleep(_PAUSE_S)
        if _belongs(path, words[FRAMES]):
            return
    name = os.path.basename(path)
    wal, shm = path + "-wal", path + "-shm"
    raise Corrupt(
        f"{name}-wal, which lies beside it, goes on from another state than {name} has, or from "
        "another file: read together, they would be a mixture of two moments",
        target=f"store {path}",
        hint="nothing was changed. If this file is a copy that was put here: move what belonged to "
        f"the one before away, `{join(('mv', wal, shm, 'ELSEWHERE/'))}`, and open it again. If the "
        f"file was exchanged by mistake: put the one back that {quote(name + '-wal')} belongs to, "
        "as commits may be in nothing else",
    )


def _belongs(path: str, frames: int) -> bool:
    flags = [apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_READONLY, 0]
    # Through SQLite's own file layer: closing a plain descriptor would drop our locks.
    file = apsw.VFSFile("unix", path + "-wal", flags)
    try:
        return _goes_on(path, _Wal(file, frames))
    finally:
        file.xClose()


def _goes_on(path: str, wal: _Wal) -> bool:
    for number in range(wal.frames):
        if (found := wal.row(number)) is not None:
            break
    else:
        return True  # an earlier version wrote it, or another SQLite: nobody can tell
    page = wal.page(number)
    there = _read(path, page, wal.page_size)
    row = _row_of(there)
    if row is not None and row[1] in found:
        return True
    if row is None and found[0] == _NONE:
        return True  # this WAL brought the table
    if there and not is_whole(there):
        return True  # the power went while it was written there; the WAL has it
    rows = [wal.row(other) for other in range(wal.frames) if wal.page(other) == page]
    if None in rows:
        return True  # a VACUUM put the table elsewhere
    if row is not None:
        return row[1] in {own for _, own in filter(None, rows)}
    return not wal.is_of_first_change(number)


class _Wal:
    """Its frames, so many of which SQLite found valid."""

    def __init__(self, file: apsw.VFSFile, frames: int) -> None:
        self._file = file
        self.frames = frames
        self.page_size = int.from_bytes(file.xRead(4, 8), "big")

    def page(self, number: int) -> int:
        """Of the main file, from 1; a frame's number is from 0."""
        return self._head(number)[0]

    def row(self, number: int) -> tuple[bytes, bytes] | None:
        """The numbers in it, if it is of `wal_base`."""
        return _row_of(self._file.xRead(self.page_size, self._at(number) + FRAME_HEADER_SIZE))

    def is_of_first_change(self, number: int) -> bool:
        """Whether it was written by the first transaction, and that was no VACUUM."""
        for other in range(self.frames):
            if pages := self._head(other)[1]:
                return number <= other < pages - 1
        return False

    def _head(self, number: int) -> tuple[int, int]:
        page, pages = struct.unpack(">II", self._file.xRead(8, self._at(number)))
        return page, pages

    def _at(self, number: int) -> int:
        return WAL_HEADER_SIZE + number * (FRAME_HEADER_SIZE + self.page_size)


def _read(path: str, page: int, size: int) -> bytes:
    """Of the main file, past SQLite; empty where it ends before."""
    flags = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0]
    file = apsw.VFSFile("unix", path, flags)
    try:
        return file.xRead(size, (page - 1) * size) if file.xFileSize() >= page * size else b""
    finally:
        file.xClose()


def _row_of(page: bytes) -> tuple[bytes, bytes] | None:
    if page[:1] != _LEAF or page[3:5] != _ONE:
        return None
    at = int.from_bytes(page[8:10], "big")
    numbers = page[at + len(_ROW) : at + len(_ROW) + 2 * _SIZE]
    if page[at : at + len(_ROW)] != _ROW or len(numbers) < 2 * _SIZE:
        return None
    return numbers[:_SIZE], numbers[_SIZE:]
