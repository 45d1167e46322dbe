"""A copy of a store's file, kept beside it before something is written over damaged parts."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import count

import apsw

from perdure.private import PART, make_file
from perdure.storage.sqlite.connection import sync_folder

COPIED_AT_ONCE = 1 << 20


def copy_beside(path: str, end: str, *, with_wal: bool = False) -> str:
    """Copies a file to its path with `end` appended, and a number if that is taken; durably. If
    asked its WAL, too, to be the copy's.

    They get their names once they are complete, the WAL first: a copy without it would be another
    state. The caller keeps others from writing to the files.

    Raises:
        OSError, apsw.Error: there is no copy.
    """
    parts = [path + one + end + PART for one in ("", *(["-wal"] if with_wal else []))]
    for part in parts:
        with suppress(FileNotFoundError):
            os.unlink(part)  # of one that was killed
    try:
        for part, kind in zip(
            parts, (apsw.SQLITE_OPEN_MAIN_DB, apsw.SQLITE_OPEN_WAL), strict=False
        ):
            _copy(part.removesuffix(end + PART), part, kind)
        name = _take_names(parts, path + end)
    finally:
        for part in parts:
            with suppress(FileNotFoundError):  # `drop_parts`
                os.unlink(part)
    sync_folder(path)
    return name


def _copy(path: str, target: str, kind: int) -> None:
    flags = [kind | apsw.SQLITE_OPEN_READONLY, 0]
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


def _take_names(parts: list[str], wanted: str) -> str:
    for number in count(1):
        name = wanted if number == 1 else f"{wanted}-{number}"
        pairs = [*zip(parts, (name, name + "-wal"), strict=False)]
        if any(os.path.lexists(one) for one in (name, name + "-wal")):
            continue  # also where only one is: they would not belong together
        try:
            for part, one in reversed(pairs):
                os.link(part, one)
        except FileExistsError:
            continue
        return name
    raise AssertionError
