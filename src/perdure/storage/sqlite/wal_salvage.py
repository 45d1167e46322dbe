"""The way back from a damaged WAL: everything in it that can be proved goes into the main file.

The story: a bit of the WAL was flipped, with commits of all agents behind it. SQLite takes the
damaged frame for the WAL's end, and would drop them; so opening refused, for good: also the repair
did, and all the commits before.

Frames are read past the damage, see `wal_mending`. Their pages are written into the main file, as a
checkpoint does, and the WAL is emptied: a page that is not proved gets a wrong checksum there, and
is treated as any damaged page of the file. Where not even a frame's page is known, what is behind
it is lost: all up to the last commit before it is kept.

Killed at any moment, it leaves a WAL that is still refused, as nothing in it changes before it is
emptied; and it gives the same again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

import apsw
from msgspec import Struct, field

from perdure.core.format import chain
from perdure.errors import Corrupt, UnsupportedFormat
from perdure.storage.sqlite.alone import locked
from perdure.storage.sqlite.btree import CHECKSUM_SIZE, PAGE_SIZE, NoPageError, Page, is_whole
from perdure.storage.sqlite.connection import APPLICATION_ID
from perdure.storage.sqlite.faults import FAILED, translate
from perdure.storage.sqlite.file_complete import has_lost, open_wal
from perdure.storage.sqlite.frames import Frames, WalFrame, checksum
from perdure.storage.sqlite.keeping import copy_beside
from perdure.storage.sqlite.rows import SEQ_BITS, place
from perdure.storage.sqlite.wal_base import refuse_foreign
from perdure.storage.sqlite.wal_mending import mended_frame, mended_header
from perdure.system import logs

_log = logs.logger("perdure.sqlite")

_FROM_A_COPY = "restore the store from a copy; do not write to it. Nothing was changed"
_APPLICATION = slice(68, 72)
"""Of the first page: https://sqlite.org/fileformat.html."""


class Salvaged(Struct, frozen=True):
    """The result.

    Attributes:
        told: what was done, in words.
        copy: the path of the copy of the file; that of the WAL lies beside it, as its -wal.
        is_cut: True if commits are lost.
        lost: the agents that were seen in what is lost, by number: name, if known, and last seq.
    """

    told: str
    copy: str
    is_cut: bool
    lost: dict[int, tuple[str, int]]


def salvage(path: str) -> Salvaged:
    """Moves what a damaged WAL proves into the main file, and empties it; copies of both are kept.

    Raises:
        Corrupt: nothing would be left, or a mixture of two moments. Nothing was changed.
        StoreUnavailable: another process has the file open; or there is no room for the copies.
    """
    try:
        with locked(path) as main:
            wal = open_wal(path)
            try:
                return _salvage(path, main, wal)
            finally:
                wal.xClose()
    except FAILED as error:
        raise translate(error, path) from error


class _Found(Struct):
    """Frames that are to be kept.

    Attributes:
        latest: the number of the last one of each page; and its content, if it is mended.
        doubtful: the numbers of frames whose content is not proved; `hopeless`: or not there.
        count: the number of all up to the last commit; pages: the size of the file there.
        damaged: the numbers of damaged frames.
        is_cut: True if they end at a damaged one.
    """

    latest: dict[int, tuple[int, bytes | None]] = field(default_factory=dict)
    doubtful: set[int] = field(default_factory=set)
    hopeless: set[int] = field(default_factory=set)
    count: int = 0
    pages: int = 0
    damaged: list[int] = field(default_factory=list)
    is_cut: bool = False


class _Pages:
    """The pages of the main file."""

    def __init__(self, main: apsw.VFSFile) -> None:
        self._main = main
        self._count = main.xFileSize() // PAGE_SIZE

    def read(self, page: int) -> bytes:
        """Returns a page; empty if it is not there."""
        if not 1 <= page <= self._count:
            return b""
        return self._main.xRead(PAGE_SIZE, (page - 1) * PAGE_SIZE)

    def has(self, frame: WalFrame) -> bool:
        """True if a frame was moved there."""
        there = self.read(frame.page)
        return _data(there) == _data(frame.summed[-PAGE_SIZE:]) and is_whole(there)


def _salvage(path: str, main: apsw.VFSFile, wal: apsw.VFSFile) -> Salvaged:
    frames = Frames(wal, PAGE_SIZE)
    pages = _Pages(main)
    if frames.is_headless:
        header = mended_header(wal) if frames.count else None
        found = _Found(is_cut=True, damaged=[-1])
        if header is not None:
            frames = Frames(wal, PAGE_SIZE, header)
            found = _read(frames, pages)
            found.damaged.insert(0, -1)
    else:
        found = _read(frames, pages)
    refuse_foreign(path, wal, found.count)
    lost: dict[int, tuple[str, int]] = {}
    if found.is_cut:
        _look_behind(path, frames, pages, found)
    if found.is_cut:
        lost = _lost(frames, found.count)
    first = found.latest.get(1)
    page = pages.read(1) if first is None else _content(frames, first)
    if page[_APPLICATION] != APPLICATION_ID.to_bytes(4, "big"):
        raise _nothing_left(path)
    copy = copy_beside(path, "-damaged", with_wal=True)
    told = _told(frames, found)
    _log.warning("%s: %s; the old files are kept as %s and its -wal", path, told, copy)
    _move(main, frames, found)
    _empty_wal(path)
    return Salvaged(told, copy, found.is_cut, lost)


def _read(frames: Frames, pages: _Pages) -> _Found:
    """Reads all frames up to their end, or to a damaged one without which the rest is of no use."""
    found = _read_up_to(frames, pages, frames.count)
    hopeless = {number for number, _ in found.latest.values()} & found.hopeless
    return _read_up_to(frames, pages, min(hopeless)) if hopeless else found


def _read_up_to(frames: Frames, pages: _Pages, end: int) -> _Found:
    found, sums = _Found(), frames.sums
    begun: dict[int, tuple[int, bytes | None]] = {}
    for number in range(frames.count):
        frame, content = frames.read(number), None
        if frame.salts != frames.salts or not frames.goes_on(frame, sums):
            if not has_lost(frames, found.count):
                break  # where they end, or a transaction that was never acknowledged begins
            sizes = found.pages, _size_behind(frames, number + 1)
            mended = mended_frame(frames, number, sums, pages.read(frame.page), sizes)
            found.damaged.append(number)
            if mended is None or number == end:
                found.is_cut = True
                break
            frame = mended.frame
            content = frame.summed[-PAGE_SIZE:]
            if not mended.proved:
                (found.doubtful if mended.nearly else found.hopeless).add(number)
        begun[frame.page] = number, content
        if frame.pages:
            found.latest |= begun
            found.count, found.pages = number + 1, frame.pages
            begun = {}
        sums = frame.checksum
    return found


def _size_behind(frames: Frames, first: int) -> int:
    """Returns the size of the file in pages at the next commit, which is behind a damaged frame."""
    return next((frame.pages for _, frame in frames.of_generation(first) if frame.pages), 0)


def _content(frames: Frames, latest: tuple[int, bytes | None]) -> bytes:
    number, content = latest
    return frames.read(number).summed[-PAGE_SIZE:] if content is None else content


def _look_behind(path: str, frames: Frames, pages: _Pages, found: _Found) -> None:
    """Looks for pages behind the cut that were moved into the main file already. If all were, the
    file is all there is, and nothing has to be lost.

    Raises:
        Corrupt: some were: what is before the cut does not fit to them any more.
    """
    ahead, latest = False, dict[int, int]()
    begun = dict[int, int]()
    for number, frame in frames.of_generation(0):
        if not frame.page or number in found.damaged:
            continue
        begun[frame.page] = number
        if frame.pages:
            latest |= begun
            begun = {}
        if number >= found.count and pages.has(frame):
            before = found.latest.get(frame.page)
            ahead |= before is None or _data(_content(frames, before)) != _data(
                frame.summed[-PAGE_SIZE:]
            )
    if not ahead:
        return
    missing = [number for number in latest.values() if not pages.has(frames.read(number))]
    # A lost sector is of two frames, maybe; what was there of their pages before is in the way.
    if len(missing) > 2 or max(missing, default=-1) >= found.count:
        raise Corrupt(
            f"frame {found.damaged[-1] + 1} of its write-ahead log is damaged, and some of what is "
            "behind it was moved into the file: read without the rest, it would be a mixture of "
            "two moments",
            target=f"store {path}",
            hint=_FROM_A_COPY,
        )
    found.latest, found.pages, found.is_cut = {}, 0, False


def _data(page: bytes) -> bytes:
    return page[:-CHECKSUM_SIZE]


def _lost(frames: Frames, count: int) -> dict[int, tuple[str, int]]:
    """Returns the agents of whom there is anything behind that many frames, by their numbers: the
    name, if it is there, and the last seq."""
    lost: dict[int, tuple[str, int]] = {}
    for _, frame in frames.of_generation(count):
        for no, name, seq in _said(frame.summed[-PAGE_SIZE:]):
            known, last = lost.get(no, ("", 0))
            lost[no] = name or known, max(seq, last)
    return lost


_NO_ROW = (NoPageError, Corrupt, UnsupportedFormat, ValueError, TypeError, IndexError)


def _said(data: bytes) -> Iterator[tuple[int, str, int]]:
    """Yields what a page has of agents, if it is one of commits or of branches: the number, the
    name, if it is there, and the seq of a commit."""
    try:
        page = Page(data)
    except NoPageError:
        return
    for number in range(page.count if page.leaf else 0):
        with suppress(*_NO_ROW):
            if page.table:
                _, name, _, seq, *_ = chain.read_header(page.row(number, 2)[1], "")
                ((_, key),) = page.key(number, 1)
                if place(key >> SEQ_BITS, seq) == key:
                    yield key >> SEQ_BITS, str(name), seq
            else:
                (_, no), _, (_, kind), (_, seq) = page.key(number, 4)
                if kind == "branch" and type(no) is type(seq) is int:
                    yield no, "", seq


def _nothing_left(path: str) -> Corrupt:
    return Corrupt(
        "its write-ahead log is damaged where its tables were made, and they are nowhere else",
        target=f"store {path}",
        hint=_FROM_A_COPY,
    )


def _told(frames: Frames, found: _Found) -> str:
    names = ["the header" if number < 0 else f"frame {number + 1}" for number in found.damaged]
    were = "was" if len(names) == 1 else "were"
    told = f"{', '.join(names)} of its write-ahead log {were} damaged"
    if found.is_cut:
        behind = sum(bool(frame.pages) for _, frame in frames.of_generation(found.count))
        return f"{told}: it was cut there, and what was behind is lost, about {behind} transactions"
    if {number for number, _ in found.latest.values()} & found.doubtful:
        return f"{told}: it costs what is on that page, which is treated like a damaged one"
    return f"{told}, and put right: nothing of it is lost"


def _move(main: apsw.VFSFile, frames: Frames, found: _Found) -> None:
    """Writes the pages into the main file, durably."""
    for page, latest in sorted(found.latest.items()):
        data = _data(_content(frames, latest))
        first, second = checksum(data, (0, 0), "<")
        if latest[0] in found.doubtful:
            first, second = ~first & 0xFFFFFFFF, ~second & 0xFFFFFFFF
        sums = first.to_bytes(4, "little") + second.to_bytes(4, "little")
        main.xWrite(data + sums, (page - 1) * PAGE_SIZE)
    if found.pages and main.xFileSize() > found.pages * PAGE_SIZE:
        main.xTruncate(found.pages * PAGE_SIZE)
    main.xSync(apsw.SQLITE_SYNC_FULL)


def _empty_wal(path: str) -> None:
    descriptor = os.open(path + "-wal", os.O_WRONLY)  # none of SQLite's locks is on it
    try:
        os.ftruncate(descriptor, 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
