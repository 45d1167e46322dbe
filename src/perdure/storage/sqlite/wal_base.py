"""Checks that a WAL continues from the present state of the main file beside it.

The story: a machine crashed, and the store was found damaged. Its verified backup was copied over
it, but the WAL that the crash had left was still there. SQLite moved that WAL's pages into the
backup: nothing in a WAL says which file it belongs to. The result was malformed for good; or it
opened, with agents of two moments, and accepted edits.

So a row of the file, `wal_base`, has a random number, and the previous one. The first writer after
all of the WAL was moved into the main file draws the next, in the same transaction. So two states
of the main file with nothing left in a WAL never have the same number; and the first transaction of
any WAL holds the number of the state that it continues, and its own. A crash leaves the main file
with one of the two.

The check is made when a WAL was recovered, which SQLite does for the first opener of a file. Until
then it has written nothing but an index of the WAL.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import apsw

from perdure.errors import Corrupt
from perdure.storage.sqlite.btree import LEAF_TABLE, PAGE_SIZE, is_whole
from perdure.storage.sqlite.faults import translate
from perdure.storage.sqlite.frames import FRAME_HEADER_SIZE, WAL_HEADER_SIZE
from perdure.storage.sqlite.statements import statements
from perdure.storage.sqlite.wal_index import CHANGES, FRAMES, MOVED, STATE, wal_index
from perdure.system.shell import join, quote

_sql = statements()

_SIZE = 16
"""Bytes of a number."""

_NONE = bytes(_SIZE)

_ROW = bytes((3 + 2 * _SIZE, 1, 3, 12 + 2 * _SIZE, 12 + 2 * _SIZE))
"""The beginning of the only row of such a table: its size, its id, and the kinds of its columns. No
other table's rows can have these."""

_LEAF, _ONE = bytes((LEAF_TABLE,)), bytes((0, 1))
"""Of a page: its kind, and how many rows it has."""

_TRIED, _PAUSE_S = 4, 0.003
"""A page may just be written by who moves the WAL."""


class WalBase:
    """The `wal_base` of the writing connection."""

    def __init__(self) -> None:
        self._words: Sequence[int] | None = None

    def forget(self) -> None:
        """Forgets the index: the connection is another one, or has left WAL mode."""
        self._words = None

    def begin(
        self,
        connection: apsw.Connection,
        execute: Callable[[str], object],
        path: str,
        *,
        always: bool = False,
    ) -> None:
        """Begins a transaction that writes. Until it has begun, nothing is written: so a lock that
        others keep for too long leaves no doubt, nor does a file that may only be read (I1).
        Before anything else it draws the next number, if it is due, or `always`. Only the holder of
        SQLite's write lock changes the number; and one transaction draws one, because the previous
        number must be that of a real state.

        Args:
            execute: of the connection, or of a cursor of it.

        Raises:
            StoreUnavailable: others keep the lock, or the file may only be read.
        """
        if connection.readonly("main"):  # SQLite would begin one that reads
            raise translate(apsw.ReadOnlyError("it was opened so"), path)
        try:
            execute("BEGIN IMMEDIATE")
        except apsw.BusyError as busy:
            raise translate(busy, path) from busy
        words = self._words
        if words is None:
            words = self._words = wal_index(connection)
        if always or words[FRAMES] == words[MOVED] or not words[CHANGES]:
            move(connection)

    def settle(self, connection: apsw.Connection) -> None:
        """Draws a number before the last connection closes the file, and moves a WAL that it
        recovered: the WAL may be a copy's, which ends where the original's continued.

        Raises:
            apsw.Error: the number cannot be written. The WAL must stay.
        """
        words = wal_index(connection)
        if words[FRAMES] and not (words[CHANGES] or connection.in_transaction):
            connection.set_busy_timeout(0)  # who writes draws one
            connection.execute("BEGIN IMMEDIATE")
            if not words[CHANGES]:
                move(connection)
            connection.execute("COMMIT")


def make(connection: apsw.Connection) -> None:
    """Makes the table, in the transaction that makes the schema, or adds to an earlier one."""
    connection.execute(_sql["make_wal_base"])
    connection.execute(_sql["begin_wal_base"])


def move(connection: apsw.Connection, *, create: bool = True) -> None:
    """Draws the next number.

    Args:
        create: makes the table in a store of an earlier version.
    """
    try:
        connection.execute(_sql["move_wal_base"])
    except apsw.SQLError:
        if create:
            make(connection)


def refuse_other_wal(connection: apsw.Connection, path: str) -> None:
    """Refuses a foreign WAL beside a file that is opened, before anything else.

    Raises:
        Corrupt: it belongs to another file, or to another state of this one.
        OSError, apsw.Error: it cannot be checked.
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
    raise _foreign(path)


def refuse_foreign(path: str, wal: apsw.VFSFile, frames: int) -> None:
    """Refuses a foreign WAL, of which so many frames are to be moved into the main file.

    Raises:
        Corrupt: as `refuse_other_wal`.
    """
    if not _goes_on(path, _Wal(wal, frames)):
        raise _foreign(path)


def _foreign(path: str) -> Corrupt:
    name = os.path.basename(path)
    wal, shm = path + "-wal", path + "-shm"
    return Corrupt(
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
    """The frames of a WAL that SQLite found valid."""

    def __init__(self, file: apsw.VFSFile, frames: int) -> None:
        self._file = file
        self.frames = frames
        self.page_size = PAGE_SIZE

    def page(self, number: int) -> int:
        """Returns the page number of a frame; pages of the main file count from 1, frames from
        0."""
        return self._head(number)[0]

    def row(self, number: int) -> tuple[bytes, bytes] | None:
        """Returns the numbers in a frame, if it is a page of `wal_base`."""
        return _row_of(self._file.xRead(self.page_size, self._at(number) + FRAME_HEADER_SIZE))

    def is_of_first_change(self, number: int) -> bool:
        """True if it was written by the first transaction, and that was not a VACUUM."""
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
    """Reads the main file, past SQLite; empty if it ends before."""
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
