"""Checks that a store's file is complete, and its WAL has everything acknowledged."""

from __future__ import annotations

import os
import time
from contextlib import suppress

import apsw

from perdure.errors import Corrupt, StoreUnavailable
from perdure.storage.sqlite.btree import PAGE_SIZE
from perdure.storage.sqlite.faults import RESTORE, RESTORE_OR_CUT
from perdure.storage.sqlite.files import NOT_THERE, look
from perdure.storage.sqlite.frames import Frames, WalFrame
from perdure.system import logs

WAIT_S, PAUSE_S, _TRIED = 10.0, 0.005, 4
_log = logs.logger("perdure.sqlite")


class DamagedWalError(Corrupt):
    """The WAL is damaged, and there are commits behind the damage."""


def refuse_cut_page(connection: apsw.Connection, path: str) -> None:
    """Refuses a file that ends within a page: SQLite reads the missing part as zeros, without
    checking the page's checksum. A page of an unfinished checkpoint is in the WAL.

    Raises:
        Corrupt: the file ends within a page that is nowhere else.
        StoreUnavailable: it may only be read, and has a WAL.
        OSError: it cannot be checked.
    """
    size = os.path.getsize(path)
    while size % PAGE_SIZE:
        number = size // PAGE_SIZE + 1
        _refuse_unseen_wal(connection, path)
        if not connection.readonly("main") and _frames(connection)[0]:
            count = int(connection.pragma("page_count"))
            if number > count or number in _pending_pages(connection, path):
                return  # the next checkpoint puts it right
        before, size = size, os.path.getsize(path)
        if size == before:
            raise Corrupt(
                f"ends within its last page: the file was cut short, or copied in part ({size} "
                "bytes)",
                target=f"store {path}",
                hint=RESTORE,
            )


def refuse_missing_pages(connection: apsw.Connection, path: str) -> None:
    """Refuses a file that lacks whole pages that are in use. Takes as long as reading all pages if
    the file is shorter than SQLite expects.

    Raises:
        Corrupt, StoreUnavailable, OSError: as `refuse_cut_page`.
    """
    refuse_cut_page(connection, path)
    count = int(connection.pragma("page_count"))
    there = os.path.getsize(path) // PAGE_SIZE
    missing = set(range(there + 1, count + 1))
    if missing:
        _refuse_unseen_wal(connection, path)
    if missing and not connection.readonly("main"):
        missing -= _pending_pages(connection, path)
    if missing and os.path.getsize(path) // PAGE_SIZE == there:
        # A page that was never used need not exist.
        missing &= {int(number) for (number,) in connection.execute("SELECT pageno FROM dbstat")}
        if missing:
            raise Corrupt(
                f"ends before its page {min(missing)}: the file was cut short",
                target=f"store {path}",
                hint=RESTORE,
            )


def _refuse_unseen_wal(connection: apsw.Connection, path: str) -> None:
    """Refuses to call a file cut short whose end may be in a WAL that cannot be looked at: the
    system made the file system read-only, as it does when a disk fails, and that says nothing about
    what is there.

    Raises:
        StoreUnavailable: it is so.
    """
    if connection.readonly("main") and may_have_wal(path):
        raise part_is_in_wal(path)


def part_is_in_wal(path: str, part: str = "-wal") -> StoreUnavailable:
    """Returns the error for a store that may only be read, and is not all in its file."""
    return StoreUnavailable(
        f"is read-only for this user, and part of it is in its {part}",
        target=f"store {path}",
        hint=f"copy the file and its {part} to a folder where you may write, and look there",
    )


def _pending_pages(connection: apsw.Connection, path: str) -> set[int]:
    """Returns the numbers of pages that are read from the WAL, not from the main file."""
    valid, copied = _frames(connection)
    if valid <= copied:
        return set()
    try:
        wal = open_wal(path)
    except apsw.Error:
        return set()
    try:
        frames = Frames(wal, PAGE_SIZE)
        return {frames.read(number).page for number in range(copied, min(valid, frames.count))}
    finally:
        wal.xClose()


UNSYNCED = "unsynced"
UNSYNCED_MARK = "SELECT 1 FROM marks WHERE name = ?"
"""The mark of a store that was written to at a durability other than "sync"."""


def may_have_wal(path: str) -> bool:
    """True if anything may be in its WAL: usually the last process that had the store open tidied
    up."""
    try:
        return look(os.fsencode(path) + b"-wal")[1] > 0
    except NOT_THERE:
        return False
    except OSError:
        return True


def refuse_headless_wal(path: str) -> None:
    """Refuses a WAL with a damaged header, before anything else is read: SQLite takes it for an
    empty one, and the next write would overwrite everything acknowledged.

    Raises:
        Corrupt: there are commits behind such a header. The WAL is left as it is.
    """
    damaged: str | None = None
    for tried in range(_TRIED):
        if tried:
            time.sleep(PAUSE_S)  # it may just be written
        damaged = _damaged(path, 0, PAGE_SIZE, of_header=True)
        if damaged is None:
            return
    raise _damage(path, damaged)


def check_wal(connection: apsw.Connection, path: str) -> None:
    """Finds damage in the middle of a WAL that SQLite would take for its end.

    Recovery silently stops at the first frame whose checksum fails, and drops everything behind it.
    A torn write can only leave frames of one unfinished transaction there; a *commit* behind it
    that is followed by more was acknowledged, so its loss is damage, not a crash. (A damaged last
    transaction cannot be told from a torn one; `verify(anchor=…)` can.) In a store that was ever
    written to without syncing each commit, a power cut leaves such gaps, too, so there it counts as
    an end; but the transaction that made the tables was synced, whatever the durability is.

    Raises:
        Corrupt: with the frame's number. The WAL is left as it is.
    """
    if connection.readonly("main"):
        return  # it was opened without its WAL, which is empty
    damaged = _damage_behind(connection, path)
    if damaged is None:
        return
    with suppress(apsw.Error):  # there are no tables, or what is read is a mixture of two moments
        if connection.execute(UNSYNCED_MARK, (UNSYNCED,)).get:
            _log.warning("%s: a power cut lost commits that were not synced yet", path)
            return
    raise _damage(path, damaged)


def _damage_behind(connection: apsw.Connection, path: str) -> str | None:
    """Returns the damage behind everything that SQLite takes for valid, if there are commits behind
    that; else None."""
    while True:
        valid = _frames(connection)[0]
        if valid < 0:  # it has no WAL for this connection: another process is just giving it one
            return None
        damaged = _damaged(path, valid, connection.pragma("page_size"))
        if damaged is None or _frames(connection)[0] == valid:
            return damaged  # else another process appended meanwhile


def _damage(path: str, what: str | None) -> DamagedWalError:
    return DamagedWalError(
        f"{what} of its write-ahead log is damaged, with commits behind it",
        target=f"store {path}",
        hint=RESTORE_OR_CUT,
    )


def _frames(connection: apsw.Connection) -> tuple[int, int]:
    """Returns the number of frames that SQLite takes for valid, and of those that are surely in the
    main file. Retries while a checkpoint is busy."""
    until = time.monotonic() + WAIT_S
    while True:
        try:
            return connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
        except apsw.BusyError:
            if time.monotonic() > until:
                raise
            time.sleep(PAUSE_S)


def open_wal(path: str) -> apsw.VFSFile:
    """Opens the WAL through SQLite's own file layer: closing a plain descriptor would drop our
    locks."""
    flags = [apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_READONLY, 0]
    return apsw.VFSFile("unix", path + "-wal", flags)


def _damaged(path: str, valid: int, page_size: int, *, of_header: bool = False) -> str | None:
    """Returns what is damaged: the first frame that is not valid, or the header; see `has_lost`."""
    try:
        wal = open_wal(path)
    except apsw.Error:
        return None
    try:
        frames = Frames(wal, page_size)
        if (of_header and not frames.is_headless) or not has_lost(frames, valid):
            return None
        return "the header" if frames.is_headless else f"frame {valid + 1}"
    finally:
        wal.xClose()


def has_lost(frames: Frames, valid: int) -> bool:
    """True if a recovery that ends behind that many frames would lose what was acknowledged: behind
    them there is a frame of the current WAL generation that was written behind a later commit.

    The frame must continue from that commit: writers that were killed before they published theirs
    leave frames that the next writer overwrites from the same place on, as far as its own reach.
    And the commit mark must be the frame's own: while a transaction is being written, a part of a
    header may be an older one's.
    """
    commit: WalFrame | None = None
    for number, frame in frames.of_generation(valid):
        if commit is not None and frames.follows(frame, commit):
            return True
        commit = frame if frame.pages else None
        if commit is not None and frames.may_be_patched(number):
            commit = frame if frames.follows(frame, frames.read(number - 1)) else None
    return False
