"""A copy of a store's file while programs use it: all of its pages, as of one moment.

The pages are copied as they are, within one read of the database, so that writers neither wait nor
make it begin anew. They keep their numbers: if somebody puts the copy in the place of the store and
leaves a WAL of that beside it, the two make a state that was; pages in another order would not.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from uuid import uuid4

import apsw

from perdure.errors import Conflict
from perdure.private import PART, new_file
from perdure.storage.sqlite.btree import CHECKSUM_SIZE, PAGE_SIZE
from perdure.storage.sqlite.connection import checksum_vfs, sync_folder
from perdure.storage.sqlite.files import exists

PAGES_AT_ONCE = 256
"""One megabyte: between two such parts Ctrl-C gets its turn."""

BACKUP_PART = f".backup{PART}"
_ABANDONED = re.compile(rf"\.[0-9a-f]{{32}}{re.escape(BACKUP_PART)}$")

BESIDE = ("", "-wal", "-journal")
"""Endings of names at which nothing may be: SQLite would take it for a part of the copy."""


def copy_pages(source: apsw.Connection, target: str, progress: Callable[[int, int], None]) -> None:
    """Copies the database as it is now into an empty file, durably.

    Args:
        progress: called with the pages done and the pages in all.

    Raises:
        apsw.Error, OSError: a page is damaged, or cannot be read or written.
    """
    flags = apsw.SQLITE_OPEN_READWRITE
    copy = apsw.Connection(target, flags=flags, vfs=checksum_vfs())
    try:
        copy.pragma("synchronous", "FULL")
        # First of all the byte that switches checksums on: pages of the WAL have none yet, and what
        # does not fit into the copy's cache is written before its first page.
        copy.reserve_bytes("main", CHECKSUM_SIZE)
        copy.pragma("page_size", PAGE_SIZE)
        copy.pragma("user_version", 1)
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_schema").fetchall()  # from here on: this moment
        with copy.backup("main", source, "main") as pages:
            while not pages.done:
                pages.step(PAGES_AT_ONCE)
                progress(pages.page_count - pages.remaining, pages.page_count)
    finally:
        copy.close(True)
        if source.in_transaction:
            source.execute("ROLLBACK")


@contextmanager
def part_of(target: str) -> Iterator[str]:
    """Gives the path of a new, empty file, which only its owner can open. When the block ends, it
    is at `target`, durably; nothing is, if the block raises. What backups have left in that folder
    whose processes were killed is removed first.

    Raises:
        Conflict: something is at the target, or beside it.
        OSError: the file cannot be made.
    """
    for ending in BESIDE:
        if exists(target + ending):
            raise _taken(target + ending)
    _remove_abandoned(os.path.dirname(target) or os.curdir)
    part = f"{target}.{uuid4().hex}{BACKUP_PART}"
    held = new_file(part, os.O_WRONLY)
    try:
        # To its end: closed before, it would take SQLite's own locks on the file along.
        fcntl.flock(held, fcntl.LOCK_EX)
        yield part
        _sync(part)
        _name(part, target)
    finally:
        _remove(part)
        os.close(held)
    sync_folder(target)


def _remove(part: str) -> None:
    for ending in (*BESIDE, "-shm"):
        with suppress(FileNotFoundError):
            os.unlink(part + ending)


def _remove_abandoned(folder: str) -> None:
    """Removes the parts of backups that nobody is making any more; nothing tells of the rest."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not _ABANDONED.search(entry.name) or entry.is_symlink():
                continue
            with suppress(OSError):
                descriptor = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove(entry.path)
                finally:
                    os.close(descriptor)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _name(part: str, target: str) -> None:
    """Gives the file its name, unless somebody else's has it by now."""
    try:
        os.link(part, target)
    except FileExistsError:
        raise _taken(target) from None
    except OSError:  # a file system without links
        if exists(target):
            raise _taken(target) from None
        os.rename(part, target)


def _taken(path: str) -> Conflict:
    return Conflict(
        "is there already",
        target=f"file {path}",
        hint="name another file, or move this one away; a backup overwrites nothing",
    )
