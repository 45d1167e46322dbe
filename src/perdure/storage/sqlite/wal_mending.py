"""Damaged frames of a WAL, put right where the checksums around them prove what they were.

A frame's checksum continues that of the frame before, and is a linear function of its bytes. So
behind a damaged frame all others are still proved, by the checksum that stands in their
predecessor; and which single bit explains a wrong checksum can be computed. Mostly that is one;
high bits of a word have the same effect in every third word, or sixth, and so on.
"""

from __future__ import annotations

import struct

import apsw
from msgspec import Struct
from msgspec.structs import replace

from perdure.storage.sqlite.btree import CHECKSUM_SIZE, PAGE_SIZE
from perdure.storage.sqlite.frames import WAL_HEADER_SIZE, Frames, WalFrame, checksum

_MAGICS = (0x377F0682, 0x377F0683)
_VERSION = 3007000
_HEADER = struct.Struct(">IIII")  # magic, version, page size, number of the checkpoint
_NUMBERS = struct.Struct(">II")
_HEAD_SIZE = _NUMBERS.size
"""Bytes of a frame's header that its checksum covers: the page's number, the commit mark."""

_MASK = 0xFFFFFFFF


def mended_header(wal: apsw.VFSFile) -> bytes | None:
    """Returns the header that a damaged one was: the one that the first frame continues. None if
    that cannot be told."""
    raw = wal.xRead(WAL_HEADER_SIZE, 0)
    first = Frames(wal, PAGE_SIZE).read(0)
    (number,) = struct.unpack_from(">I", raw, 12)
    for magic in _MAGICS:
        order = ">" if magic & 1 else "<"
        for tried in (number, *(number ^ 1 << bit for bit in range(32))):
            header = _HEADER.pack(magic, _VERSION, PAGE_SIZE, tried) + first.salts
            sums = checksum(header, (0, 0), order)
            if checksum(first.summed, sums, order) == first.checksum:
                return header + _NUMBERS.pack(*sums)
    return None


class Mended(Struct, frozen=True):
    """A damaged frame, put right.

    Attributes:
        proved: True if that is what it was; otherwise its page is as it was found, and only the
            page's number and the commit mark can be believed.
        nearly: True if all but a bit of that page is right.
    """

    frame: WalFrame
    proved: bool = True
    nearly: bool = True


def mended_frame(
    frames: Frames, number: int, sums: tuple[int, int], there: bytes, sizes: tuple[int, int]
) -> Mended | None:
    """Returns what a damaged frame was; None if not even its page's number can be told.

    Args:
        sums: the checksum that it continues.
        there: its page in the main file, into which it may have been moved.
        sizes: of the file in pages, at the commit before and at the one behind.
    """
    frame = frames.read(number)
    if frames.goes_on(frame, sums):
        return Mended(frame)  # its salts were damaged
    order = frames.orders
    behind = frames.read(number + 1) if number + 1 < frames.count else None
    computed = checksum(frame.summed, sums, order)
    if behind is not None and frames.goes_on(behind, computed):
        return Mended(replace(frame, checksum=computed))
    if there:
        moved = frame.summed[:_HEAD_SIZE] + there[:-CHECKSUM_SIZE] + frame.summed[-CHECKSUM_SIZE:]
        if checksum(moved, sums, order) == frame.checksum:
            return Mended(_with(frame, moved))
    possible = [
        made
        for place in flipped_bits(frame.summed, sums, frame.checksum, order)
        if _fits(made := _with(frame, flipped(frame.summed, place)), sizes)
    ]
    if len(possible) == 1:
        return Mended(possible[0])
    head = frame.summed[:_HEAD_SIZE]
    if (
        frame.salts != frames.salts
        or behind is None
        or not frames.follows(behind, frame)
        or not _fits(frame, sizes)
        or any(made.summed[:_HEAD_SIZE] != head for made in possible)
    ):
        return None
    return Mended(frame, proved=False, nearly=bool(possible))


def _fits(frame: WalFrame, sizes: tuple[int, int]) -> bool:
    """True if there can be such a page, and such a size of the file."""
    before, behind = sizes
    return 1 <= frame.page <= behind and (not frame.pages or before <= frame.pages <= behind)


def flipped_bits(
    summed: bytes, sums: tuple[int, int], wanted: tuple[int, int], order: str
) -> list[int]:
    """Returns the bits any one of which gives the wanted checksum if it is flipped: 8 times the
    byte's place, plus the bit's."""
    found = checksum(summed, sums, order)
    first, second = (wanted[0] - found[0]) & _MASK, (wanted[1] - found[1]) & _MASK
    words = struct.unpack(f"{order}{len(summed) // 4}I", summed)
    effects = (1, 1), (0, 1)  # of a 1 more in the words of the last pair
    places: list[int] = []
    for pair in range(len(words) - 2, -1, -2):
        for word, (a, b) in zip((pair, pair + 1), effects, strict=True):
            for bit in range(32):
                more = -(1 << bit) if words[word] >> bit & 1 else 1 << bit
                if (more * a) & _MASK == first and (more * b) & _MASK == second:
                    byte = bit // 8 if order == "<" else 3 - bit // 8
                    places.append(8 * (4 * word + byte) + bit % 8)
        effects = tuple(((a + b) & _MASK, (a + 2 * b) & _MASK) for a, b in effects)  # type: ignore[assignment]
    return places


def flipped(data: bytes, place: int) -> bytes:
    """Returns the bytes with one bit flipped, by its place as in `flipped_bits`."""
    changed = bytearray(data)
    changed[place // 8] ^= 1 << place % 8
    return bytes(changed)


def _with(frame: WalFrame, summed: bytes) -> WalFrame:
    page, pages = _NUMBERS.unpack_from(summed)
    return replace(frame, page=page, pages=pages, summed=summed)
