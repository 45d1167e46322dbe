"""The shared index of an open store's WAL: https://sqlite.org/walformat.html, 2.1.

It is read where SQLite has it in memory: to open and close that file would drop SQLite's locks.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import addressof, c_int, c_void_p
from functools import cache
from typing import Any

import apsw

from perdure.storage.sqlite.shm import SHM_MAP, Map, Pointer

CHANGES, FRAMES, SALTS, MOVED = 2, 4, slice(8, 10), 24
"""Places of 32-bit words: of the number of transactions since the WAL was recovered, of the frames
in it that are valid, of its salts, and of those frames that are in the main file for sure."""

STATE = slice(FRAMES, 12)
"""Those that are others once the WAL is."""

UNKNOWN = (1,) * MOVED + (0,)
"""As of a WAL that is in use, of which nothing was moved: where it cannot be had."""

_REGION = 32 * 1024
_Words = ctypes.c_uint32 * (MOVED + 1)


def wal_index(connection: apsw.Connection) -> Sequence[int]:
    """Returns its first words, which change from moment to moment. Call it once the connection has
    read, and use the words only while it is open and in WAL mode: then that memory is gone."""
    if connection.readonly("main"):
        return UNKNOWN  # it has opened no WAL, and a look would make what lies beside one
    found = c_void_p()
    connection.file_control("main", apsw.SQLITE_FCNTL_FILE_POINTER, addressof(found))
    file = found.value
    methods = c_void_p.from_address(file).value if file else None
    if not methods or c_int.from_address(methods).value < 2:  # of a file that has no WAL
        return UNKNOWN
    if _map_of(methods)(file, 0, _REGION, 0, addressof(found)) or not found.value:
        return UNKNOWN
    return memoryview(_Words.from_address(found.value)).cast("B").cast("I")


@cache
def _map_of(methods: int) -> Any:
    pointers = ctypes.cast(methods, Pointer)
    return Map(pointers[SHM_MAP] or 0)
