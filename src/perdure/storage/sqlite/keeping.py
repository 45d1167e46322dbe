"""A copy of a store's file, kept beside it before something is written over damaged parts."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import count

import apsw

from perdure.private import PART, make_file
from perdure.storage.sqlite.connection import sync_folder

COPIED_AT_ONCE = 1 << 20


def copy_beside(path: str, end: str) -> str:
    """Copies a file to its path with `end` appended, and a number if that is taken; durably.

    It gets its name once it is complete. The caller keeps others from writing to the file.

    Raises:
        OSError, apsw.Error: there is no copy.
    """
    part = path + end + PART
    with suppress(FileNotFoundError):
        os.unlink(part)  # of one that was killed
    try:
        _copy(path, part)
        name = _take_name(part, path + end)
    finally:
        with suppress(FileNotFoundError):  # `drop_parts`
            os.unlink(part)
    sync_folder(path)
    return name


def _copy(path: str, target: str) -> None:
    flags = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0]
    # Through SQLite's own file layer: closing a plain descriptor would drop our locks.
    source = apsw.VFSFile("unix", path, flags)
    try:
        with os.fdopen(make_file(target, os.O_WRONLY, like=path), "wb") as file:
            size = source.xFileSize()
            for at in range(0, size, COPIED_AT_ONCE):
                file.write(source.xRead(min(COPIED_AT_ONCE, size - at), at))
            file.flush()
            os.fsync(file.fileno())
    finally:
        source.xClose()


def _take_name(part: str, wanted: str) -> str:
    for number in count(1):
        name = wanted if number == 1 else f"{wanted}-{number}"
        try:
            os.link(part, name)
        except FileExistsError:
            continue
        return name
    raise AssertionError
