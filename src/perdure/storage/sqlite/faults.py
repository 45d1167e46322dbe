"""SQLite's errors translated into the one tree: what happened, to which file, and the way out."""

from __future__ import annotations

import ctypes
import errno
import os
import re
from collections.abc import Iterable
from contextlib import suppress

import apsw

with suppress(ImportError):  # it is not there on Windows
    import resource

from perdure.errors import Corrupt, NotAStore, PerdureError, StoreUnavailable

IOERR_DATA = 8202
"""SQLITE_IOERR_DATA: a page whose checksum (cksumvfs) does not fit what was read."""

RESTORE = "run `perdure verify`, and restore the store from a copy; do not write to it"

RESTORE_OR_REPAIR = (
    "do not write to it. `perdure repair` proves the data and rebuilds the checksums, if another "
    "SQLite had it open after a crash. If it names damage: restore the store from a copy; or, "
    "if there is none, `perdure repair --take-incomplete` keeps the file as it is beside it, "
    "and makes everything usable that is whole"
)

RESTORE_OR_CUT = (
    "do not write to it. Restore the store from a copy; or, if there is none, `perdure repair "
    "--take-incomplete` keeps the file and its -wal as they are beside it, and makes everything "
    "usable that is whole"
)


class ReplacedError(Exception):
    """The files behind the open store are no longer at their paths."""


class MisplacedError(Exception):
    """Rows are not what their table can have. Each page has a checksum, but none says where it
    belongs: the disk may have put one in the place of another."""


class NoTextError(MisplacedError):
    """A column of text has bytes that are not valid text."""


FAILED = (apsw.Error, OSError, ReplacedError, MisplacedError)
"""The errors of a failure of SQLite or the system; none of them reaches a caller as it is."""

_UNREAD = (errno.EIO, errno.ENXIO, errno.ERANGE)


NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The system's errors if nothing more can be written. SQLite knows only the first one, and only
where it writes."""


def unmasked(error: BaseException, connection: apsw.Connection | None) -> BaseException:
    """Returns the error that SQLite reported as damage, as it does if the disk cannot read; or as
    an input/output error, as it does if a quota is used up.

    See SQLITE_IOERR_CORRUPTFS, https://sqlite.org/rescode.html: no byte is wrong then.
    """
    if connection is None or not isinstance(error, apsw.Error):
        return error
    extended = getattr(error, "extendedresult", 0)
    meant: tuple[int, ...] = ()
    doing = "written"
    if type(error) is apsw.CorruptError and extended == apsw.SQLITE_CORRUPT:
        meant, doing = _UNREAD, "read"
    elif extended in _GROWING:
        meant = NO_ROOM
    try:
        numbers = (_last_of_database(connection), _last_of_wal(connection)) if meant else ()
    except apsw.Error:
        return error
    for number in numbers:
        if number in meant:
            return OSError(number, f"{errno.errorcode[number]} when it was {doing}")
    return error


_UNREAD_PAGE = re.compile(r"unable to get the page. error code=([0-9]+)")
_NO_CODE = re.compile(r"failed to (?:get page|read ptrmap)", re.IGNORECASE)


def unread_page(found: Iterable[str], connection: apsw.Connection) -> BaseException | None:
    """Returns the error if `integrity_check` found that the disk cannot read a page; else None."""
    for words in found:
        for code in map(int, _UNREAD_PAGE.findall(words)):
            if code & 0xFF == apsw.SQLITE_IOERR and code != IOERR_DATA:
                return apsw.IOError(words)
        if _NO_CODE.search(words):  # of a page that is free: the system knows why, if it is that
            for number in (_last_of_database(connection), _last_of_wal(connection)):
                if number:
                    return OSError(number, words)
    return None


def _last_of_database(connection: apsw.Connection) -> int:
    number = ctypes.c_int(0)
    connection.file_control("main", apsw.SQLITE_FCNTL_LAST_ERRNO, ctypes.addressof(number))
    return number.value


_FILE_CONTROL = 10
"""The place of `xFileControl` among SQLite's file methods, https://sqlite.org/c3ref/io_methods.html,
counted in pointers."""


def _last_of_wal(connection: apsw.Connection) -> int:
    """Returns the last system error of the WAL file, in the way SQLite does for the database:
    `file_control` reaches no other file."""
    number, file = ctypes.c_int(0), ctypes.c_void_p()
    connection.file_control("main", apsw.SQLITE_FCNTL_JOURNAL_POINTER, ctypes.addressof(file))
    pointers = ctypes.POINTER(ctypes.c_void_p)
    methods = ctypes.cast(file, pointers)[0] if file.value else None
    if methods is None:  # it is not open
        return 0
    call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    control = ctypes.cast(methods, pointers)[_FILE_CONTROL]
    call(control)(file, apsw.SQLITE_FCNTL_LAST_ERRNO, ctypes.byref(number))
    return number.value


def translate(error: BaseException, path: str) -> PerdureError:
    """Returns the error of the tree for one of apsw's. `path` is its target."""
    target = f"store {path}"
    if isinstance(error, PerdureError):
        return error
    if isinstance(error, ReplacedError):
        return Corrupt(
            str(error),
            target=target,
            hint="another program deleted, moved or checkpointed the files while the store was "
            "open (a second SQLite in this process does, when it closes the file); stop it, close "
            "this store, and open it again to see what was kept",
        )
    if isinstance(error, NoTextError):
        return Corrupt(f"a text in it is not valid: {error}", target=target, hint=RESTORE_OR_REPAIR)
    if isinstance(error, MisplacedError):
        return Corrupt(
            "a page of the file is in the place of another one", target=target, hint=RESTORE
        )
    if isinstance(error, OSError):
        problem, hint = _SYSTEM.get(error.errno or 0, _UNAVAILABLE[apsw.IOError])
        no_room = error.errno in NO_ROOM
        return StoreUnavailable(f"{problem} ({error})", target=target, hint=hint, no_room=no_room)
    extended = getattr(error, "extendedresult", 0)
    if isinstance(error, apsw.NotADBError):
        return NotAStore(
            "is not a Perdure store", target=target, hint="check the path; nothing was changed"
        )
    if isinstance(error, apsw.CorruptError) or extended == IOERR_DATA:
        if extended == IOERR_DATA:
            return Corrupt(
                "a page of the file fails its checksum", target=target, hint=RESTORE_OR_REPAIR
            )
        return Corrupt(str(error), target=target, hint=RESTORE)
    full = isinstance(error, apsw.FullError)
    if (full or extended in _WRITING) and _limited(path):
        problem, hint = _SYSTEM[errno.EFBIG]
        other, more = _UNAVAILABLE[type(error)]
        problem = f"{other}, or {problem}" if full else problem
        return StoreUnavailable(
            f"{problem} ({error})",
            target=target,
            hint=f"{hint}; if it is not that, {more}",
            no_room=True,
        )
    problem, hint = _SHM.get(extended) or _UNAVAILABLE.get(
        type(error), (str(error), "see the system's log")
    )
    no_room = full or extended in _SHM
    return StoreUnavailable(f"{problem} ({error})", target=target, hint=hint, no_room=no_room)


_WRITING = (
    apsw.SQLITE_IOERR_WRITE,
    apsw.SQLITE_IOERR_TRUNCATE,
    apsw.SQLITE_IOERR_SHMOPEN,
)
"""SQLite's extended codes where a file could not be made larger; EFBIG has none of its own."""

_GROWING = (*_WRITING, apsw.SQLITE_IOERR_FSYNC)
"""And where the system says of what was written before that there is no room for it."""

_ROOM_BYTES = 64 * 1024 * 1024
"""The size that one transaction may well write."""


def _limited(path: str) -> bool:
    """True if the files of a store may have reached this process's limit for the size of files
    (`ulimit -f`). SQLite does not say why a write failed."""
    try:
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    except (NameError, OSError):
        return False
    if limit == resource.RLIM_INFINITY:
        return False
    used = 0
    for name in (path, path + "-wal", path + "-journal"):
        with suppress(OSError):
            used += os.path.getsize(name)
    return limit <= used + _ROOM_BYTES


_UNAVAILABLE: dict[type, tuple[str, str]] = {
    apsw.FullError: (
        "the disk is full",
        "free some space; nothing was half-written, and the same call may be made again",
    ),
    apsw.BusyError: (
        "locked by another process for too long",
        "make the call again; see who holds the file with `fuser`",
    ),
    apsw.LockedError: ("locked by another connection", "make the call again"),
    apsw.ReadOnlyError: ("the file is read-only", "give this user the right to write to it"),
    apsw.CantOpenError: (
        "the file cannot be opened",
        "the folder must exist, and this user must be allowed to write to it",
    ),
    apsw.PermissionsError: ("permission denied", "give this user the right to write to the file"),
    apsw.IOError: ("an input/output error", "see the system's log; the disk may be failing"),
    apsw.NoMemError: ("out of memory", "free some memory and make the call again"),
    apsw.ConnectionClosedError: ("the store is closed", "open it again"),
}

_SHM = {
    apsw.SQLITE_IOERR_SHMSIZE: (  # it does not say which
        "there is no space for its -shm, 32 kB that all who open it share: the disk is full, or a "
        "limit is reached",
        "free some space, or raise the limit (`ulimit -f`, quotas); nothing was changed",
    ),
}
"""By SQLite's extended code, of the file beside the WAL: it is made at each opening."""

_SYSTEM: dict[int, tuple[str, str]] = {
    errno.ENOSPC: _UNAVAILABLE[apsw.FullError],
    errno.EDQUOT: ("the user's quota is used up", _UNAVAILABLE[apsw.FullError][1]),
    errno.EFBIG: (
        "the file may not become larger",
        "raise the limit for files of this process (`ulimit -f`), then make the call again",
    ),
    errno.EROFS: ("the file system is read-only", "mount it so that it may be written to"),
    errno.EACCES: _UNAVAILABLE[apsw.PermissionsError],
    errno.EPERM: _UNAVAILABLE[apsw.PermissionsError],
    errno.EMFILE: (
        "this process has too many open files",
        "close some, or raise the limit (`ulimit -n`)",
    ),
    errno.ENFILE: ("the system has too many open files", "close some, then make the call again"),
    errno.ENOMEM: _UNAVAILABLE[apsw.NoMemError],
}
