"""Checks that the files of an open connection are still those at their paths.

The check runs at every commit, so it must not ask for times. Since Linux 6.13 a file whose time of
last change was read gets a new one at the next write, in a finer grain
(https://docs.kernel.org/filesystems/multigrain-ts.html): a change of the file system with each
commit. `os.stat` asks for times, `statx` only for what it is told to; Python has no `os.statx` yet.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from msgspec import Struct

from perdure.storage.sqlite.faults import ReplacedError

Identity = tuple[int, int, int]
"""Of a file: the major and minor number of its device, its inode."""

Look = tuple[Identity, int]
"""A file's identity, its length in bytes."""


class _Statx(ctypes.Structure):
    """See https://man7.org/linux/man-pages/man2/statx.2.html and <linux/stat.h>."""

    _fields_ = (
        ("mask", ctypes.c_uint32),
        ("block_size", ctypes.c_uint32),
        ("attributes", ctypes.c_uint64),
        ("links", ctypes.c_uint32),
        ("until_inode", ctypes.c_byte * 12),
        ("inode", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("until_device", ctypes.c_byte * 88),
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("rest", ctypes.c_byte * 112),
    )


_AT_FDCWD = -100
_LINKS, _INODE_AND_SIZE = 0x4, 0x100 | 0x200
_MOUNT_ROOT = 0x2000


def look_with_times(path: bytes) -> Look:
    """Looks at a file by `os.stat`, where nothing else is available.

    Raises:
        OSError: the file cannot be looked at.
    """
    status = os.stat(os.fsdecode(path))  # errors name it as text
    device = status.st_dev
    return (os.major(device), os.minor(device), status.st_ino), status.st_size


def _look_without_times() -> Callable[[bytes], Look]:
    statx = _find_statx()

    def look(path: bytes) -> Look:
        found = _Statx()
        if statx(_AT_FDCWD, path, 0, _INODE_AND_SIZE, ctypes.byref(found)):
            raise _failed(path)
        return (found.major, found.minor, found.inode), found.size

    return look


def _find_statx() -> Any:
    # PyDLL: releasing the interpreter's lock costs more than the call, which waits for no disk.
    return ctypes.PyDLL(None, use_errno=True).statx


def _failed(path: bytes) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), os.fsdecode(path))


def choose_look() -> Callable[[bytes], Look]:
    """Returns the function that looks at a file. The C library or a container's filter may not have
    `statx`."""
    with suppress(AttributeError, OSError):
        look = _look_without_times()
        look(b"/")
        return look
    return look_with_times


look = choose_look()
"""Of a path as the system calls take it. Raises OSError."""


def names_of(path: str) -> tuple[int, bool]:
    """Returns the number of names of a file, and whether it is mounted there by itself, as far as
    the kernel knows (Linux 5.8).

    Raises:
        OSError: the file cannot be looked at.
    """
    if look is look_with_times:
        return os.stat(path).st_nlink, False
    found = _Statx()
    name = os.fsencode(path)
    if _statx_of_names()(_AT_FDCWD, name, 0, _LINKS, ctypes.byref(found)):
        raise _failed(name)
    return found.links, bool(found.attributes & _MOUNT_ROOT)


_statx_of_names = cache(_find_statx)

NOT_THERE = (FileNotFoundError, NotADirectoryError, ValueError)
"""The errors that say that there is no such file; no other error does."""


def exists(path: str) -> bool:
    """Returns True if there is a file.

    Raises:
        OSError: it cannot be told (I12: `os.path.exists` would say no).
    """
    try:
        os.stat(path)
    except NOT_THERE:
        return False
    return True


_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)


def _find_access() -> Any:
    with suppress(AttributeError, OSError, TypeError):  # TypeError: Windows has no such library
        return ctypes.PyDLL(None, use_errno=True).access
    return None


_access = _find_access()


def writable(path: str) -> bool:
    """Returns True if this user may write to a file or folder.

    Raises:
        OSError: it cannot be told (`os.access` would say no).
    """
    if _access is None:
        return os.access(path, os.W_OK)
    if not _access(os.fsencode(path), os.W_OK):
        return True
    number = ctypes.get_errno()
    if number in _REFUSED:
        return False
    raise OSError(number, os.strerror(number), path)


class Files(Struct):
    """The identity of the files that an open connection works on.

    path, wal_path: in the form for system calls. wal_size: the WAL's length in bytes at the last
    check; 0: there was none yet.
    """

    path: bytes
    wal_path: bytes
    database: Identity
    wal: Identity | None
    wal_size: int = 0

    @classmethod
    def of(cls, path: str) -> Files:
        """Returns the identity of an open file; one that may only be read has no WAL."""
        own = os.fsencode(path)
        wal = own + b"-wal"
        database = look(own)[0]
        try:
            return cls(own, wal, database, look(wal)[0])
        except NOT_THERE:
            return cls(own, wal, database, None)

    def check(self) -> None:
        """Checks that the files are still at their paths (I1): what was written to a replaced file
        is not durable.

        Raises:
            ReplacedError: another program deleted or replaced a file.
        """
        path = self.wal_path
        try:
            if self.wal is not None:
                found, self.wal_size = look(path)
                if found != self.wal:
                    raise _replaced(path, "was replaced by another file")
            path = self.path
            if look(path)[0] != self.database:
                raise _replaced(path, "was replaced by another file")
        except FileNotFoundError:
            raise _replaced(path, "was deleted") from None


def _replaced(path: bytes, what: str) -> ReplacedError:
    return ReplacedError(f"{os.path.basename(os.fsdecode(path))} {what}")
