"""Frames of SQLite's write-ahead log, as https://sqlite.org/fileformat2.html#walformat has them."""

from __future__ import annotations

import struct

import apsw
from msgspec import Struct

WAL_HEADER_SIZE = 32
FRAME_HEADER_SIZE = 24
SECTOR = 512
"""Bytes that a disk writes as one, at least."""

_HEAD = struct.Struct(">IIIIII")  # page number, database size at commit, salts, checksums
_MASK = 0xFFFFFFFF


class Frame(Struct, frozen=True):
    """One page that was written: its number. `pages`: of the database after a commit; 0: no
    commit."""

    page: int
    salts: bytes
    pages: int
    checksum: tuple[int, int]
    summed: bytes
    """What its checksum is over."""


class Frames:
    """The frames of one write-ahead log, in a file that is open already."""

    def __init__(self, wal: apsw.VFSFile, page_size: int) -> None:
        self._wal = wal
        self._size = FRAME_HEADER_SIZE + page_size
        bytes_in_all = wal.xFileSize()
        self.count = max(bytes_in_all - WAL_HEADER_SIZE, 0) // self._size
        self.salts, self._order = b"", "<"
        if bytes_in_all >= WAL_HEADER_SIZE:
            header = wal.xRead(WAL_HEADER_SIZE, 0)
            self.salts = header[16:24]
            self._order = ">" if header[3] & 1 else "<"

    def read(self, number: int) -> Frame:
        """A frame, from 0."""
        whole = self._wal.xRead(self._size, WAL_HEADER_SIZE + number * self._size)
        page, pages, _, _, first, second = _HEAD.unpack_from(whole)
        return Frame(
            page, whole[8:16], pages, (first, second), whole[:8] + whole[FRAME_HEADER_SIZE:]
        )  # fmt: skip

    def may_be_patched(self, number: int) -> bool:
        """Whether a sector begins between a frame's mark of a commit and its salts, so that a torn
        write may have left the mark of the frame that was there before beside new salts."""
        at = WAL_HEADER_SIZE + number * self._size
        return (at + 4) // SECTOR != (at + 15) // SECTOR

    def follows(self, frame: Frame, before: Frame) -> bool:
        """Whether a frame was written behind that one: its checksum goes on from there."""
        first, second = before.checksum
        words = struct.unpack(f"{self._order}{len(frame.summed) // 4}I", frame.summed)
        for place in range(0, len(words), 2):
            first = (first + words[place] + second) & _MASK
            second = (second + words[place + 1] + first) & _MASK
        return (first, second) == frame.checksum
