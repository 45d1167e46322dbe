"""Frames of SQLite's write-ahead log; see https://sqlite.org/fileformat2.html#walformat."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import apsw
from msgspec import Struct

WAL_HEADER_SIZE = 32
FRAME_HEADER_SIZE = 24
SALTS_AT, SALTS_SIZE = 8, 8
"""In a frame's header."""

SECTOR = 512
"""Bytes that a disk writes as one, at least."""

_HEAD = struct.Struct(">IIIIII")  # page number, database size at commit, salts, checksums
_MASK = 0xFFFFFFFF


class WalFrame(Struct, frozen=True):
    """One written page: its number. `pages`: the size of the database after a commit; 0: not a
    commit."""

    page: int
    salts: bytes
    pages: int
    checksum: tuple[int, int]
    summed: bytes
    """The bytes that its checksum covers."""


class Frames:
    """The frames of one write-ahead log, in an open file.

    Attributes:
        salts: of its generation.
        sums: the checksum from which the first frame's continues.
        orders: the byte orders in which its writer may have computed checksums.
        is_headless: True if its header is damaged; the frames are then those of the first one's
            generation.
    """

    def __init__(self, wal: apsw.VFSFile, page_size: int, header: bytes | None = None) -> None:
        """Reads the log's header, or takes the one that it should have."""
        self._wal = wal
        self._size = FRAME_HEADER_SIZE + page_size
        bytes_in_all = wal.xFileSize()
        self.count = max(bytes_in_all - WAL_HEADER_SIZE, 0) // self._size
        self.salts, self.orders, self.is_headless = b"", "<", False
        self.sums = 0, 0
        if bytes_in_all >= WAL_HEADER_SIZE:
            header = header or wal.xRead(WAL_HEADER_SIZE, 0)
            self.salts = header[16:24]
            self.orders = ">" if header[3] & 1 else "<"
            self.sums = struct.unpack(">II", header[24:])
            # It is synced before any frame is written. Zeros are a lost sector's, and add up.
            is_right = checksum(header[:24], (0, 0), self.orders) == self.sums
            self.is_headless = not (any(header) and is_right)
            if self.is_headless:
                salts = (self.read(number).salts for number in range(min(self.count, 2)))
                self.salts, self.orders = next(filter(any, salts), self.salts), "<>"

    def read(self, number: int) -> WalFrame:
        """Returns a frame, numbered from 0."""
        whole = self._wal.xRead(self._size, WAL_HEADER_SIZE + number * self._size)
        page, pages, _, _, first, second = _HEAD.unpack_from(whole)
        return WalFrame(
            page, whole[8:16], pages, (first, second), whole[:8] + whole[FRAME_HEADER_SIZE:]
        )

    def of_generation(self, first: int) -> Iterator[tuple[int, WalFrame]]:
        """Yields the frames from there on with the salts of this log, with their numbers. Of other
        frames only the salts are read: they are most of a WAL that has just been restarted."""
        at = WAL_HEADER_SIZE + SALTS_AT
        for number in range(first, self.count):
            if self._wal.xRead(SALTS_SIZE, at + number * self._size) == self.salts:
                frame = self.read(number)
                if frame.salts == self.salts:  # it may have been written meanwhile
                    yield number, frame

    def may_be_patched(self, number: int) -> bool:
        """True if a sector begins between a frame's commit mark and its salts, so that a torn write
        may have left the mark of an older frame beside new salts."""
        at = WAL_HEADER_SIZE + number * self._size
        return (at + 4) // SECTOR != (at + 15) // SECTOR

    def follows(self, frame: WalFrame, before: WalFrame) -> bool:
        """True if a frame was written after that one: its checksum continues from there."""
        return self.goes_on(frame, before.checksum)

    def has_commit_behind(self, count: int) -> bool:
        """True if a recovery, which goes from frame to frame while their checksums continue, would
        reach a commit after that many valid frames."""
        sums = self.read(count - 1).checksum if count else self.sums
        for number in range(count, self.count):
            frame = self.read(number)
            if frame.salts != self.salts or not self.goes_on(frame, sums):
                return False
            if frame.pages:
                return True
            sums = frame.checksum
        return False

    def goes_on(self, frame: WalFrame, sums: tuple[int, int]) -> bool:
        """True if a frame is what its checksum was made of, behind another checksum."""
        return any(checksum(frame.summed, sums, order) == frame.checksum for order in self.orders)


def checksum(summed: bytes, behind: tuple[int, int], order: str) -> tuple[int, int]:
    """Returns a checksum that continues another one; in the byte order of its writer. The checksums
    of pages in the main file are the same, from zeros, https://sqlite.org/cksumvfs.html."""
    first, second = behind
    words = struct.unpack(f"{order}{len(summed) // 4}I", summed)
    for place in range(0, len(words), 2):
        first = (first + words[place] + second) & _MASK
        second = (second + words[place + 1] + first) & _MASK
    return first, second
