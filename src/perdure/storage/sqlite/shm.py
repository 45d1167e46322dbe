"""Room for the `-shm`, the file that all openers of a store map into memory as a shared index of
its WAL.

SQLite extends it by one byte in each 4 KiB, and maps it. On a file system with smaller blocks this
leaves holes, and on a full disk a write into a hole is not an error but SIGBUS, which kills the
process. So there, each part that SQLite maps is allocated before anybody writes to it, and a full
disk is an ordinary error.
"""

from __future__ import annotations

import _thread
import ctypes
import errno
import os
import sys
from contextlib import suppress
from functools import cache
from typing import Any

import apsw

from perdure.storage.sqlite.faults import NO_ROOM

NO_HOLES = 4096
"""Bytes of a block from which on SQLite's own way leaves none."""

SHM_MAP = 13
"""The place of `xShmMap` among SQLite's file methods, https://sqlite.org/c3ref/io_methods.html,
counted in pointers."""

_POINTERS = {2: 17, 3: 19}
"""Of all methods, by their version, which is the first; earlier ones cannot map."""


Map = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p
)
Pointer = ctypes.POINTER(ctypes.c_void_p)

_paths: dict[int, str] = {}
"""Of files that are open, by their addresses; of those that were, until there is another one."""


def give_room(connection: apsw.Connection, path: str) -> None:
    """Gives the `-shm` its room. Called before anything of the WAL is read; costs a microsecond if
    there is nothing to do.

    Raises:
        OSError: the block size cannot be determined.
    """
    if sys.platform != "linux" or os.statvfs(os.path.dirname(path) or ".").f_frsize >= NO_HOLES:
        return
    file = ctypes.c_void_p()
    connection.file_control("main", apsw.SQLITE_FCNTL_FILE_POINTER, ctypes.addressof(file))
    methods = ctypes.cast(file, Pointer)
    ours = _with_room(methods[0]) if file.value and methods[0] else None
    if file.value and ours is not None:
        _paths[file.value] = path + "-shm"
        methods[0] = ctypes.addressof(ours[0])


@cache
def _with_room(address: int) -> tuple[Any, Any] | None:
    """Returns SQLite's methods of a file with one replaced, and the replacement: both are kept for
    good."""
    pointers = _POINTERS.get(ctypes.c_int.from_address(address).value)
    if pointers is None:
        return None
    size = pointers * ctypes.sizeof(ctypes.c_void_p)
    table = (ctypes.c_void_p * pointers).from_buffer_copy(ctypes.string_at(address, size))
    theirs = Map(table[SHM_MAP] or 0)

    def shm_map(file: int, region: int, size: int, extend: int, found: int) -> int:
        code: int = theirs(file, region, size, extend, found)
        part = ctypes.cast(found, Pointer)
        try:
            mapped = code == apsw.SQLITE_OK and part[0]
            if mapped and not _has_room(_paths[file], region * size, size):
                part[0] = None  # or SQLite would not ask again
                return apsw.SQLITE_FULL
        except KeyboardInterrupt:
            _thread.interrupt_main()  # nothing can be raised from here
        except (OSError, KeyError, AttributeError):
            pass  # as without us
        return code

    ours = Map(shm_map)
    table[SHM_MAP] = ctypes.cast(ours, ctypes.c_void_p)
    return table, ours


def _has_room(path: str, at: int, size: int) -> bool:
    """Returns True if a part of a file has all of its blocks, allocating them if need be."""
    descriptor = _find_open(path)
    if descriptor is None:
        return True
    fallocate = ctypes.PyDLL(None, use_errno=True).fallocate
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    # Not `posix_fallocate`: if the file system cannot allocate, that writes zeros over what others
    # write.
    if not fallocate(descriptor, 0, at, size):
        return True
    if ctypes.get_errno() == errno.EOPNOTSUPP:
        room = os.statvfs(path)
        return room.f_bavail * room.f_frsize > size
    return ctypes.get_errno() not in NO_ROOM


def _find_open(path: str) -> int | None:
    """Returns SQLite's own descriptor of a file: closing another one would drop its locks."""
    status = os.stat(path)
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found = os.fstat(int(name))
            if (found.st_dev, found.st_ino) == (status.st_dev, status.st_ino):
                return int(name)
    return None
