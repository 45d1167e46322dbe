"""Operations on a whole file that need exclusive access.

SQLite leaves WAL mode only for the last connection to a file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import apsw

from perdure.errors import StoreUnavailable
from perdure.storage.sqlite.file_complete import PAUSE_S
from perdure.storage.sqlite.keeping import copy_beside
from perdure.storage.sqlite.upgrade import see_as_it_is, see_as_new
from perdure.storage.sqlite.wal_base import move

T = TypeVar("T")
_TRIED = 40


def without_wal(
    connection: apsw.Connection, path: str, work: Callable[[apsw.Connection], T], *, checked: bool
) -> T:
    """Does work while all of the store is in its main file.

    Raises:
        StoreUnavailable: another process has the file open.
    """
    try:
        see_as_it_is(connection)
        connection.pragma("journal_mode", "delete")
        result = work(connection)
        connection.pragma("journal_mode", "wal")
        connection.execute("SELECT count(*) FROM executors").fetchall()
        if not checked:
            see_as_new(connection)
    except apsw.BusyError as error:
        raise _in_use(path) from error
    return result


def write_anew(connection: apsw.Connection) -> None:
    """Writes every page again, with its checksum."""
    move(connection, create=False)
    connection.execute("VACUUM")


def keep_copy(connection: apsw.Connection, path: str) -> str:
    """Copies the file as it is, beside it; returns the copy's path."""
    connection.execute("BEGIN IMMEDIATE")  # who opens it meanwhile waits before it writes
    try:
        return copy_beside(path, "-damaged")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextmanager
def locked(path: str) -> Iterator[apsw.VFSFile]:
    """Gives the main file, below SQLite, locked: whoever has the store open has a lock on it, too.

    Raises:
        StoreUnavailable: another process has the file open.
    """
    flags = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READWRITE, 0]
    # Through SQLite's own file layer, which knows the locks of this process.
    main = apsw.VFSFile("unix", path, flags)
    try:
        for tried in range(_TRIED):
            try:
                main.xLock(apsw.SQLITE_LOCK_SHARED)
                main.xLock(apsw.SQLITE_LOCK_EXCLUSIVE)
                break
            except apsw.BusyError as error:
                main.xUnlock(apsw.SQLITE_LOCK_NONE)
                if tried + 1 == _TRIED:
                    raise _in_use(path) from error
            time.sleep(PAUSE_S)
        yield main
    finally:
        main.xUnlock(apsw.SQLITE_LOCK_NONE)
        main.xClose()


def _in_use(path: str) -> StoreUnavailable:
    return StoreUnavailable(
        "another process has it open",
        target=f"store {path}",
        hint="end the programs that use it (`fuser` names them), then try again",
    )
