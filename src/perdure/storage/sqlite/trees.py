"""Checks that the pages on the way to a key are the right ones.

A page's checksum says that it is whole, not that it is in its place. If the disk put another one
there, a look-up goes astray, and existing rows are "not found": an agent is created again, a key is
taken twice. SQLite checks the order of pages only when told to check all of them
(https://sqlite.org/pragma.html#pragma_integrity_check).

So after a look-up that found nothing, its way is checked: each page on it must belong to that tree,
and have no key outside the range that the pages above leave to it. The result is remembered for a
moment: the way to a leaf costs some microseconds, and the next look at it nothing.

The main file is checked, because the disk can only misplace pages there. It may be older than what
SQLite sees, and in the middle of a checkpoint it mixes several moments. So a suspicious page is
only a reason to ask SQLite, which then checks the whole table.
"""

from __future__ import annotations

import re
import time
from bisect import bisect_left, insort
from typing import Any

import apsw

from perdure.core.arguments.bounds import index_key
from perdure.core.format import chain
from perdure.errors import PerdureError
from perdure.storage.sqlite.btree import PAGE_SIZE, Key, NoPageError, Page
from perdure.storage.sqlite.faults import MisplacedError
from perdure.storage.sqlite.forest import KEYED, TREES, Tree

DEPTH_MAX = 20
RANGES_MAX = 10_000
"""Leaves that are remembered of a tree."""

FRESH_S = 1.0
"""The length of that moment. SQLite reads pages again whenever somebody else wrote, and may get a
wrong one then."""

TRIED, PAUSE_S = 4, 0.003
"""A checkpoint may be under way."""

LEAST: Key = ((-2, 0),)
FIRST: Key = ((-1, 0),)
LAST: Key = ((8, 0),)
MOST: Key = ((9, 0),)
"""In this order, less and greater than every key; LAST behind a key: greater than all that begin
with it, and less than the next."""


class Trees:
    """The checked ranges of one file's trees."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._until = 0.0
        self._forget()

    def _forget(self) -> None:
        """Begins anew, and leaves what other threads are looking at to them."""
        self._ranges: dict[str, list[tuple[Key, Key]]] = {name: [] for name in TREES}
        self._asked: set[tuple[str, Key]] = set()

    def prove(self, db: apsw.Connection, name: str, key: Key) -> None:
        """Proves that SQLite, which looked for a key in a tree of this name, looked in the right
        place.

        Raises:
            MisplacedError: it did not.
        """
        if (now := time.monotonic()) > self._until:
            self._forget()
            self._until = now + FRESH_S
        ranges = self._ranges[name]
        at = bisect_left(ranges, (key,)) - 1
        if at >= 0 and ranges[at][0] < key <= ranges[at][1]:
            return
        if (name, key) in self._asked:
            return
        if len(ranges) + len(self._asked) >= RANGES_MAX:
            self._forget()
            ranges = self._ranges[name]
        if (found := self._look(db, name, key)) is not None:
            insort(ranges, found)
        else:
            self._asked.add((name, key))

    def _look(self, db: apsw.Connection, name: str, key: Key) -> tuple[Key, Key] | None:
        """Returns the bounds of the leaf; None if SQLite's check of the table found nothing
        wrong."""
        tree = TREES[name]
        for tried in range(TRIED):
            if tried:
                time.sleep(PAUSE_S)
            try:
                return self._descend(db, name, tree, key)
            except NoPageError:
                continue
        if db.execute(f"PRAGMA integrity_check({tree.table})").fetchall() != [("ok",)]:
            raise MisplacedError
        return None

    def _descend(self, db: apsw.Connection, name: str, tree: Tree, key: Key) -> tuple[Key, Key]:
        """Returns the bounds of the key's leaf. Raises NoPageError if a page looks wrong."""
        query = "SELECT rootpage FROM main.sqlite_schema WHERE name = ?"
        number = db.execute(query, (name,)).get
        if number is None:  # not in this format
            return LEAST, MOST
        flags = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0]
        low, high = LEAST, MOST
        # Through SQLite's own file layer: closing a plain descriptor would drop our locks.
        file = apsw.VFSFile("unix", self._path, flags)
        try:
            if number * PAGE_SIZE > file.xFileSize():
                return low, high  # all of it is in the WAL, where each page has its number
            for depth in range(DEPTH_MAX):
                page = _read(file, number)
                _check(page, tree, low, high, depth)
                if page.leaf:
                    if not depth and _lacks(db, tree):
                        raise MisplacedError
                    _check_rows(db, page, tree)
                    return low, high
                at = _first_from(page, tree.columns, key)
                if at:
                    low = page.key(at - 1, tree.columns)
                if at < page.count:
                    high = page.key(at, tree.columns)
                number = page.child(at)
        finally:
            file.xClose()
        raise NoPageError


def _read(file: apsw.VFSFile, number: int) -> Page:
    try:
        return Page(file.xRead(PAGE_SIZE, (number - 1) * PAGE_SIZE))
    except apsw.Error as error:
        raise NoPageError from error


def _lacks(db: apsw.Connection, tree: Tree) -> bool:
    """True if a tree lacks a row that other tables imply."""
    found: list[Any] = db.execute(tree.lacks).fetchall()
    if tree.lacks != KEYED:
        return bool(found)
    for no, header in found:
        key = _key_of(header)
        if key and not db.execute(_IS_NOTED, (no, index_key(key), key)).get:
            return True
    return False


_IS_NOTED = (
    "SELECT EXISTS (SELECT 1 FROM keys WHERE agent_no = ?1 AND key IN (?2, ?3)) "
    "OR NOT EXISTS (SELECT 1 FROM agents WHERE no = ?1 AND deleted = 0)"
)
"""As `perdure.storage.keys.find_key`; of an agent that was deleted meanwhile nothing is noted."""


def _key_of(header: bytes) -> str | None:
    try:
        return chain.read_cause(chain.read_header(header, "")[11]).key
    except (PerdureError, ValueError, IndexError):
        return None


def _check_rows(db: apsw.Connection, page: Page, tree: Tree) -> None:
    """Checks rows of an index against its table."""
    if not page.count or not (tree.words or tree.whose):
        return
    for number in {0, page.count - 1}:
        (_, value), (_, row) = page.key(number, tree.columns)
        if tree.words and value not in tree.words:
            raise NoPageError
        if tree.whose:
            known = db.execute(tree.whose, (row,)).get
            if known is not None and known != value:
                raise NoPageError


def _check(page: Page, tree: Tree, low: Key, high: Key, depth: int) -> None:
    if page.table is not (tree.columns == 1):
        raise NoPageError
    if not page.count:
        if depth:
            raise NoPageError
        return
    if not (page.table and not page.leaf) and not re.fullmatch(tree.shape, page.shape(0)):
        raise NoPageError
    last = page.key(page.count - 1, tree.columns)
    if page.key(0, tree.columns) <= low or last > high or (last == high and not page.table):
        raise NoPageError


def _first_from(page: Page, columns: int, key: Key) -> int:
    """Returns the number of the first cell whose key is not less."""
    low, high = 0, page.count
    while low < high:
        middle = (low + high) // 2
        if page.key(middle, columns) < key:
            low = middle + 1
        else:
            high = middle
    return low
