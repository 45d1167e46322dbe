"""Whole SQLite files: with damaged pages, and with cells that say something else."""

from __future__ import annotations

import shutil
import struct
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import apsw
import msgspec

import perdure
from perdure.storage.sqlite.connection import checksum_vfs
from tests.fuzz.mutating import Parts
from tests.fuzz.target import Looks, Target
from tests.fuzz.targets.logs import look_at
from tests.source_tree import ROOT

FIXTURE = ROOT / "tests" / "compat" / "fixtures" / "format-2-dictionary.db"
PAGE = 4096
TABLES = (
    "agents",
    "commits",
    "refs",
    "keys",
    "snapshots",
    "leaves",
    "runs",
    "inbox",
    "marks",
    "executors",
)
ENDS = ("", "-wal", "-shm", "-in-doubt")


@cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="perdure-fuzz-"))


@cache
def _whole() -> bytes:
    return FIXTURE.read_bytes()


def fresh(data: bytes) -> Path:
    path = _folder() / "store.db"
    for end in ENDS:
        Path(f"{path}{end}").unlink(missing_ok=True)
    shutil.rmtree(f"{path}-executors", ignore_errors=True)
    path.write_bytes(data)
    return path


def _open(path: Path, looks: Looks) -> None:
    with looks.look(), perdure.open(path, create=False) as store:
        with looks.look():
            store.check_pages()
        look_at(store, looks)
        with looks.look():
            store.runner._context.backend.feed("")
        with looks.look(), store.agent("new").edit("written") as draft:
            draft["x"] = 1
    with looks.look():
        perdure.repair(path)
    with looks.look():
        perdure.repair(path, take_incomplete=True)


def _pages(parts: Parts, looks: Looks) -> None:
    """Each part: whether page checksums are made right again (one byte), where (four), bytes."""
    whole = bytearray(_whole())
    for part in parts:
        if len(part) < 6:
            continue
        right, at = part[0] % 2, struct.unpack_from("<I", part, 1)[0] % len(whole)
        piece = part[5 : 5 + PAGE]
        whole[at : at + len(piece)] = piece[: len(whole) - at]
        if right:
            _sum(whole, at // PAGE)
    _open(fresh(bytes(whole)), looks)


def _sum(whole: bytearray, page: int) -> None:
    """The page's checksum, as docs/format.md has it ("The file")."""
    start, one, two = page * PAGE, 0, 0
    words = struct.unpack_from(f"<{(PAGE - 8) // 4}I", whole, start)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        one = (one + even + two) & 0xFFFFFFFF
        two = (two + odd + one) & 0xFFFFFFFF
    struct.pack_into("<II", whole, start + PAGE - 8, one, two)


def _cells(parts: Parts, looks: Looks) -> None:
    """Each part: table, column and row by number, and a value; all page checksums are right."""
    path = fresh(_whole())
    db = apsw.Connection(str(path), vfs=checksum_vfs())
    try:
        for part in parts:
            with looks.look(apsw.Error, msgspec.MsgspecError, ValueError, TypeError, OverflowError):
                _set(db, *msgspec.msgpack.decode(part, type=tuple[int, int, int, Any]))
    finally:
        db.close()
    _open(path, looks)


def _set(db: apsw.Connection, table: int, column: int, row: int, value: Any) -> None:
    name = TABLES[table % len(TABLES)]
    columns: list[Any] = db.execute("SELECT name FROM pragma_table_info(?)", (name,)).fetchall()
    rows: list[Any] = db.execute(f"SELECT rowid FROM {name}").fetchall()
    if not columns or not rows:
        return
    where = columns[column % len(columns)][0], rows[row % len(rows)][0]
    db.execute(f"UPDATE {name} SET {where[0]} = ? WHERE rowid = ?", (value, where[1]))


pages = Target("pages", _pages)
cells = Target("cells", _cells)
