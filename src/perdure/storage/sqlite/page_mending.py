"""Pages of a store's file of which one bit is flipped, put right as their checksums prove.

The story: a bit of the first page was flipped, which has the tables' definitions. No command could
read anything any more, and the repair, which reads rows, had none to read. Another one was in the
frame of a b-tree's page, and what was under it could not be found.

A page's checksum is a linear function of its bytes, as a WAL frame's is: see `wal_mending`. Which
bit explains a wrong one is computed. Where several would, nothing tells them apart; but for the
first page, of which much is known.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence

import apsw
from msgspec import Struct

from perdure.storage.sqlite.alone import locked
from perdure.storage.sqlite.btree import (
    CHECKSUM_SIZE,
    LEAF_TABLE,
    PAGE_SIZE,
    NoPageError,
    Page,
    is_whole,
)
from perdure.storage.sqlite.connection import APPLICATION_ID
from perdure.storage.sqlite.faults import FAILED, translate
from perdure.storage.sqlite.keeping import copy_beside
from perdure.storage.sqlite.proofs import schemas
from perdure.storage.sqlite.statements import migrations
from perdure.storage.sqlite.wal_mending import flipped, flipped_bits
from perdure.system import logs

_log = logs.logger("perdure.sqlite")

_CONSTANT = {
    0: b"SQLite format 3\0"
    + PAGE_SIZE.to_bytes(2, "big")
    + bytes((2, 2, CHECKSUM_SIZE, 64, 32, 32)),
    44: bytes((0, 0, 0, 4)) + bytes(4),
    52: bytes(4) + bytes((0, 0, 0, 1)),
    64: bytes(4) + APPLICATION_ID.to_bytes(4, "big") + bytes(20),
}
"""Bytes that the first page of every store has, by their places:
https://sqlite.org/fileformat.html, 1.3."""

_ROOT = 100
"""The place in the first page from which on it is one of a b-tree."""


class MendedPages(Struct, frozen=True):
    """The pages that were put right, in words; and the path of the copy of the file as it was."""

    told: str
    copy: str


def mend_pages(path: str, numbers: Sequence[int]) -> MendedPages | None:
    """Puts those of some pages right of which one bit is flipped, durably, and keeps a copy of the
    file; and of its WAL, if there is one. None if there is no such page.

    Ask only for pages that cannot be used as they are: one that another SQLite moved has the
    checksum of the page before, and that may differ in one bit, too.

    Raises:
        StoreUnavailable: another process has the file open; or there is no room for the copies.
    """
    try:
        if not _mended_in(path, numbers):
            return None  # nobody has to be kept out
        with locked(path) as main:
            mended = _mended(main, numbers)
            copy = copy_beside(path, "-damaged", with_wal=os.path.exists(path + "-wal"))
            for number, page in mended.items():
                main.xWrite(page, (number - 1) * PAGE_SIZE)
            main.xSync(apsw.SQLITE_SYNC_FULL)
    except FAILED as error:
        raise translate(error, path) from error
    names = ", ".join(map(str, mended))
    told = f"a bit was flipped of page {names} of the file, and put right as the checksum says"
    _log.warning("%s: %s; the old file is kept as %s", path, told, copy)
    return MendedPages(told, copy)


def _mended_in(path: str, numbers: Sequence[int]) -> dict[int, bytes]:
    flags = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0]
    main = apsw.VFSFile("unix", path, flags)
    try:
        return _mended(main, numbers)
    finally:
        main.xClose()


def _mended(main: apsw.VFSFile, numbers: Sequence[int]) -> dict[int, bytes]:
    mended: dict[int, bytes] = {}
    count = main.xFileSize() // PAGE_SIZE
    for number in numbers:
        page = b""
        if 1 <= number <= count:
            page = main.xRead(PAGE_SIZE, (number - 1) * PAGE_SIZE)
        if not page or is_whole(page):
            continue
        data, sums = page[:-CHECKSUM_SIZE], page[-CHECKSUM_SIZE:]
        first, second = struct.unpack("<II", sums)
        found = [flipped(data, place) for place in flipped_bits(data, (0, 0), (first, second), "<")]
        if number == 1 and len(found) > 1:
            found = [one for one in found if _may_be_first(one + sums, count)]
            found = [one for one in found if one[28:32] == count.to_bytes(4, "big")] or found
        if len(found) == 1:
            mended[number] = found[0] + sums
    return mended


def _may_be_first(page: bytes, count: int) -> bool:
    """True for what can be the first page of a store of so many pages: its constant bytes, and the
    definitions of the tables, if it has all of them."""
    if any(page[at : at + len(value)] != value for at, value in _CONSTANT.items()):
        return False
    first_free, free, version = (int.from_bytes(page[at : at + 4], "big") for at in (32, 36, 60))
    if first_free > count or free > count or bool(first_free) != bool(free):
        return False
    if version not in migrations():
        return False
    if page[_ROOT] != LEAF_TABLE:
        return True
    made, known = schemas(version)
    rows, roots = set[tuple[object, ...]](), list[int]()
    try:
        # The page numbers of cells count from its begin, also on this one, which has a header.
        root = Page(page, begin=_ROOT)
        for number in range(root.count):
            kind, name, table, at, sql = root.row(number, 5)
            rows.add((kind, name, table, sql or None))
            roots.append(int(at))
    except (NoPageError, ValueError, TypeError):
        return False
    fit = len(rows) == len({*roots}) and min(roots) > 0 and max(roots) <= count
    return fit and made <= rows <= known
