"""Opening one SQLite file the safe way: checksummed pages, a supervised journal.

Every rule here was learnt by breaking it; each has a test in tests/crash. Facts about SQLite are
from its documentation: https://sqlite.org/wal.html, https://sqlite.org/cksumvfs.html,
https://sqlite.org/howtocorrupt.html.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import apsw
import apsw.sqlite_extra

from perdure.errors import Corrupt, NotAStore, PerdureError, StoreUnavailable, UnsupportedFormat
from perdure.private import make_empty
from perdure.storage.sqlite import wal_base
from perdure.storage.sqlite.btree import CHECKSUM_SIZE, PAGE_SIZE
from perdure.storage.sqlite.faults import FAILED, RESTORE_OR_REPAIR, translate, unmasked
from perdure.storage.sqlite.file_complete import (
    check_wal,
    part_is_in_wal,
    refuse_cut_page,
    refuse_headless_wal,
)
from perdure.storage.sqlite.files import NOT_THERE, exists, writable
from perdure.storage.sqlite.guards import Connection
from perdure.storage.sqlite.shm import give_room
from perdure.storage.sqlite.sites import has_pages, refuse_lone_wal, refuse_network_file_system
from perdure.storage.sqlite.statements import migrations
from perdure.storage.sqlite.trees import Trees
from perdure.storage.sqlite.upgrade import is_old, see_as_new
from perdure.system.locks import Lock

APPLICATION_ID = 0x50726475  # "Prdu"
VERSION_MIN = (3, 51, 3)
"""Older ones have a bug in which a checkpoint that races a writer can corrupt the WAL."""

BUSY_MS = 10_000
MADE_MEANWHILE_S = 0.005

_setup_lock = Lock()


def checksum_vfs() -> str:
    """Returns the name of the VFS that keeps a checksum in each page, loaded at the first call."""
    with _setup_lock:
        if "cksmvfs" not in apsw.vfs_names():
            version = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
            if version < VERSION_MIN:
                raise StoreUnavailable(
                    f"SQLite {apsw.sqlite_lib_version()} is too old",
                    hint="install a newer apsw wheel; it carries its own SQLite",
                )
            default = apsw.vfs_names()[0]
            try:
                apsw.sqlite_extra.load(apsw.Connection(":memory:"), "cksumvfs")
            except Exception as error:
                raise StoreUnavailable(
                    "this apsw was installed without SQLite's checksum extension",
                    hint="install apsw from its wheel: pip install --only-binary apsw apsw",
                ) from error
            apsw.set_default_vfs(default)  # other users of apsw in this process keep theirs
    return "cksmvfs"


def connect(
    path: str,
    *,
    synchronous: str,
    create: bool,
    vfs: str | None = None,
    checked: bool = True,
    trees: Trees | None = None,
    has_wal: bool = False,
) -> apsw.Connection:
    """Opens the file as a store, creating it if asked. One of an earlier format that may not be
    written to is seen as if it were of this one; otherwise call `upgrade` before anything else.

    Args:
        checked: False: read pages whose checksum is wrong, too; only for their repair.
        trees: the parts of this file that were checked so far.
        has_wal: True if there is one beside it that may belong to another file.

    Raises:
        StoreUnavailable, NotAStore, UnsupportedFormat, Corrupt: the file cannot be used. A file
        that is not a store is left exactly as it was.
    """
    try:
        refuse_network_file_system(path)
        connection = _connect_in_time(path, synchronous, create, vfs, checked, has_wal)
    except OSError as error:
        raise translate(error, path) from error
    if checked and not connection.is_old:
        connection.trees = trees
    return connection


def _connect_in_time(
    path: str, synchronous: str, create: bool, vfs: str | None, checked: bool, has_wal: bool
) -> Connection:
    until = time.monotonic() + BUSY_MS / 1000
    while True:
        try:
            return _connect(path, synchronous, create, vfs, checked, has_wal)
        except _MadeMeanwhileError as again:
            if time.monotonic() > until:
                raise again.problem from again.__cause__
            time.sleep(MADE_MEANWHILE_S)


class _MadeMeanwhileError(Exception):
    """Another process seems to be making the file a store at this moment: it has to be opened
    again."""

    def __init__(self, problem: PerdureError) -> None:
        super().__init__(str(problem))
        self.problem = problem


def _connect(
    path: str, synchronous: str, create: bool, vfs: str | None, checked: bool, has_wal: bool
) -> Connection:
    empty = _size(path) == 0
    if empty:
        refuse_lone_wal(path)
    if not empty and not may_write(path):
        return _connect_to_look(path, vfs or checksum_vfs())
    if create and empty:
        with suppress(OSError):  # SQLite says why it is not there
            make_empty(path)
    try:
        # Not created by SQLite, which would let others read it.
        flags = apsw.SQLITE_OPEN_READWRITE
        connection = Connection(path, flags=flags, vfs=vfs or checksum_vfs())
    except apsw.Error as error:
        raise translate(error, path) from error
    try:
        # Closing must not checkpoint by itself: from a WAL that another program truncated, or that
        # is not this file's, it would copy garbage into the main file.
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        give_room(connection, path)
        connection.set_busy_timeout(BUSY_MS)
        if not checked:
            connection.pragma("checksum_verification", "OFF")
        if has_wal:
            refuse_headless_wal(path)
            wal_base.refuse_other_wal(connection, path)
            check_wal(connection, path)
        try:
            _adopt(connection, path, create=create, checked=checked)
            if checked:
                refuse_cut_page(connection, path)
        except Corrupt as problem:
            # The VFS reads the byte that switches checksums on when it opens the file. It cannot,
            # if the file was empty then and another process made it a store in the meantime.
            if empty:
                raise _MadeMeanwhileError(problem) from problem
            raise
        connection.pragma("synchronous", synchronous)
        connection.wal_autocheckpoint(0)
        # Otherwise SQLite would plan a query again whenever other values are bound to it, and that
        # takes several times as long as the query. Our plans depend on no values.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        connection.pragma("cache_size", -16_000)
        if not checked:
            see_as_new(connection)
    except BaseException as error:
        error = unmasked(error, connection)
        connection.close(True)
        if isinstance(error, apsw.NotADBError) and _was_a_store(path):
            raise Corrupt(
                "its first page is damaged", target=f"store {path}", hint=RESTORE_OR_REPAIR
            ) from error
        if isinstance(error, FAILED):
            raise translate(error, path) from error
        raise
    return connection


def _size(path: str) -> int:
    """Returns the size of the file in bytes; 0 if there is none.

    SQLite takes a file of one byte for an empty one, and writes over it; on a device or a pipe it
    fails as a bad disk does, or waits for ever.

    Raises:
        NotAStore: it is not a file that SQLite could use; it is not changed.
    """
    try:
        status = os.stat(path)
    except NOT_THERE:
        return 0
    hint = "check the path; nothing was changed"
    if not stat.S_ISREG(status.st_mode):
        raise NotAStore("is not a regular file", target=f"store {path}", hint=hint)
    if status.st_size == 1:
        raise NotAStore("is not a Perdure store", target=f"store {path}", hint=hint)
    return status.st_size


def may_write(path: str) -> bool:
    """True if this user may write to the file and beside it, as a WAL needs."""
    return writable(path) and writable(os.path.dirname(path) or ".")


def _connect_to_look(path: str, vfs: str) -> Connection:
    """Opens a file that may only be read: nothing is made beside it, and nothing can be written.

    Raises:
        StoreUnavailable: part of it is in its WAL, or in the journal of a repair that was killed,
            which cannot be read without writing.
    """
    refuse_changed = _changes_from_now_on(path)
    refuse_changed()
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    try:
        connection = Connection(f"file:{quote(path)}?immutable=1", flags=flags, vfs=vfs)
        _adopt(connection, path, create=False, checked=True)
        refuse_cut_page(connection, path)
        connection.is_old = is_old(connection)
        see_as_new(connection)
    except apsw.Error as error:
        raise translate(error, path) from error
    connection.refuse_changed = refuse_changed
    return connection


def _changes_from_now_on(path: str) -> Callable[[], None]:
    """Returns the `Connection.refuse_changed` of a file as it is now."""

    def look() -> tuple[int, int, int]:
        status = os.stat(path)
        return status.st_ino, status.st_size, status.st_mtime_ns

    before, wal, journal = look(), path + "-wal", path + "-journal"

    def refuse() -> None:
        if exists(wal) and os.path.getsize(wal):
            raise part_is_in_wal(path)
        with suppress(*NOT_THERE):
            if has_pages(journal):
                raise part_is_in_wal(path, "-journal")
        if look() != before:
            raise StoreUnavailable(
                "is read-only for this user, and was written to meanwhile",
                target=f"store {path}",
                hint="make the call again",
            )

    return refuse


def _was_a_store(path: str) -> bool:
    """True if a file that SQLite does not recognise has our mark in its header."""
    flags = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0]
    try:
        file = apsw.VFSFile("unix", os.path.abspath(path), flags)
        try:
            return bool(file.xRead(4, 68) == APPLICATION_ID.to_bytes(4, "big"))
        finally:
            file.xClose()
    except apsw.Error:
        return False


def _adopt(connection: apsw.Connection, path: str, *, create: bool, checked: bool) -> None:
    """Makes sure that the file is a store of a known format; creates the schema in an empty one."""
    application, version = _marks(connection)
    if (application, version) == (0, 0):
        if create and _is_bare(connection):
            _create(connection, path)
        application, version = _marks(connection)  # it may have been made meanwhile
    if application != APPLICATION_ID:
        hint = "check the path; nothing was changed"
        if (application, version) == (0, 0):
            hint += ". If it was copied from a store in use: its -wal belongs to it"
        raise NotAStore("is not a Perdure store", target=f"store {path}", hint=hint)
    known = max(migrations())
    if version > known:
        raise UnsupportedFormat(
            f"has format {version}; this Perdure knows up to {known}",
            target=f"store {path}",
            hint="install a newer perdure",
        )
    if connection.pragma("journal_mode") != "wal" and not connection.readonly("main"):
        connection.pragma("journal_mode", "wal")
    verifying = connection.pragma("checksum_verification")  # answers as text
    if (checked and verifying not in (1, "1")) or (
        connection.reserve_bytes("main", -1) != CHECKSUM_SIZE
    ):
        # The byte that switches checksums on is itself in the file: without this check, one flipped
        # bit there would switch them off silently.
        raise Corrupt(
            "its pages carry no checksums", target=f"store {path}", hint=RESTORE_OR_REPAIR
        )


MARKS = "SAVEPOINT marks; PRAGMA application_id; PRAGMA user_version; RELEASE marks"


def _marks(connection: apsw.Connection) -> tuple[int, int]:
    # Both in one snapshot: between two, another process may make the file a store. (Joining the two
    # pragmas' tables takes as long as the rest of an opening's statements.)
    marks: Any = connection.execute(MARKS).fetchall()
    return marks[0][0], marks[1][0]


def _is_bare(connection: apsw.Connection) -> bool:
    return not connection.execute("SELECT count(*) FROM sqlite_schema").get


def _create(connection: apsw.Connection, path: str) -> None:
    if connection.pragma("page_count") == 0:
        connection.reserve_bytes("main", CHECKSUM_SIZE)
        connection.pragma("page_size", PAGE_SIZE)
    try:
        connection.pragma("journal_mode", "wal")
    except apsw.BusyError as error:  # at once: SQLite does not wait here, or two would for ever
        raise _MadeMeanwhileError(translate(error, path)) from error
    connection.pragma("synchronous", "FULL")
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        if _marks(connection) == (0, 0):  # else another process was faster
            for number, script in migrations().items():
                connection.execute(script)
                connection.execute(f"PRAGMA user_version = {number}")
            wal_base.make(connection)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("COMMIT")
    sync_folder(path)


def sync_folder(path: str) -> None:
    """Makes the file's name durable, too: without this a power cut may forget a new file."""
    folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
