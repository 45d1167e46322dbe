"""Whether the files that an open connection works on are still those at their paths.

It is asked at every commit, so it must not ask for times. Since Linux 6.13 a file of which somebody
has seen the time of its last change gets a new one at the next write, in a finer grain
(https://docs.kernel.org/filesystems/multigrain-ts.html): a change of the file system with each
commit. `os.stat` asks for times, `statx` for what it is told to; Python has no `os.statx` yet.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
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
    """As https://man7.org/linux/man-pages/man2/statx.2.html and <linux/stat.h> have it."""

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


_identity_and_size = struct.Struct("=32xQQ88xII").unpack_from
"""Of a `_Statx`, in one go: inode, size, device."""

_AT_FDCWD = -100
_LINKS, _INODE_AND_SIZE = 0x4, 0x100 | 0x200
_MOUNT_ROOT = 0x2000


def look_with_times(path: bytes) -> Look:
    """Where nothing else can be had.

    Raises:
        OSError: the file cannot be looked at.
    """
    status = os.stat(os.fsdecode(path))  # errors name it as text
    device = status.st_dev
    return (os.major(device), os.minor(device), status.st_ino), status.st_size


def _look_without_times() -> Callable[[bytes], Look]:
    statx = _find_statx()
    idle: list[Any] = []  # taken and put back by single operations: nobody shares

    def look(path: bytes) -> Look:
        try:
            room = idle.pop()
        except IndexError:
            room = ctypes.create_string_buffer(ctypes.sizeof(_Statx))  # passed as it is: a pointer
        if statx(_AT_FDCWD, path, 0, _INODE_AND_SIZE, room):
            raise _failed(path)
        inode, size, major, minor = _identity_and_size(room)
        idle.append(room)
        return (major, minor, inode), size

    return look


def _find_statx() -> Any:
    # PyDLL: to let other threads run meanwhile costs more than the call, which waits for no disk.
    return ctypes.PyDLL(None, use_errno=True).statx


def _failed(path: bytes) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), os.fsdecode(path))


def choose_look() -> Callable[[bytes], Look]:
    """What looks at a file. The C library or a container's filter may not have `statx`."""
    with suppress(AttributeError, OSError):
        look = _look_without_times()
        look(b"/")
        return look
    return look_with_times


look = choose_look()
"""Of a path as the system calls take it. Raises OSError."""


def names_of(path: str) -> tuple[int, bool]:
    """How many names a file has, and whether it is mounted there by itself, as far as the kernel
    says so (Linux 5.8).

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
"""What says that there is no such file, and no other error does."""


def exists(path: str) -> bool:
    """Whether there is a file.

    Raises:
        OSError: nobody can tell (I12: `os.path.exists` would say no).
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
    """Whether this user may write to a file or folder.

    Raises:
        OSError: nobody can tell (`os.access` would say no).
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

    path, wal_path: as the system calls take them.
    wal_size: the WAL's length in bytes when it was checked last; 0: it was not yet.
    """

    path: bytes
    wal_path: bytes
    database: Identity
    wal: Identity | None
    wal_size: int = 0

    @classmethod
    def of(cls, path: str) -> Files:
        """Of a file that is open now; one that may only be looked at has no WAL."""
        own = os.fsencode(path)
        wal = own + b"-wal"
        database = look(own)[0]
        try:
            return cls(own, wal, database, look(wal)[0])
        except NOT_THERE:
            return cls(own, wal, database, None)

    def check(self) -> None:
        """I1: what was written to a file that is no longer at its path is not durable.

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
