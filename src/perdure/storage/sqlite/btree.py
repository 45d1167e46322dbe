"""Pages of SQLite's b-trees; see https://sqlite.org/fileformat2.html#b_tree_pages."""

from __future__ import annotations

import struct
from typing import Any

INTERIOR_INDEX, INTERIOR_TABLE, LEAF_INDEX, LEAF_TABLE = 2, 5, 10, 13
_HEADS = {INTERIOR_INDEX: 12, INTERIOR_TABLE: 12, LEAF_INDEX: 8, LEAF_TABLE: 8}
"""Bytes of the header of a page, by its kind."""

PAGE_SIZE = 4096
CHECKSUM_SIZE = 8
"""Bytes at each page's end that are none of the b-tree's."""

_SHORT, _LONG = struct.Struct(">H"), struct.Struct(">I")
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}

Key = tuple[tuple[int, Any], ...]
"""Columns that compare as SQLite compares them: NULL, then numbers, texts, blobs."""

NULL, NUMBER, TEXT, BLOB = range(4)


class NoPageError(Exception):
    """The bytes are not a page of a b-tree, or not one that can be recognised."""


def column(value: int | float | str | bytes | None) -> tuple[int, Any]:
    """Returns a value as a column of a `Key`."""
    if value is None:
        return NULL, 0
    if isinstance(value, str):
        return TEXT, value  # by code points, and so by bytes, as SQLite does
    return (BLOB, value) if isinstance(value, bytes) else (NUMBER, value)


class Page:
    """One page.

    Attributes:
        count: the number of its cells.
        leaf, table: its kind.
    """

    __slots__ = ("_at", "_data", "count", "leaf", "table")

    def __init__(self, data: bytes, begin: int = 0) -> None:
        """Reads a page, which begins there: the first one of a file does behind the file's header.

        Raises:
            NoPageError: the bytes are not one.
        """
        head = _HEADS.get(data[begin]) if data else None
        if head is None:
            raise NoPageError
        self._data = data
        self.leaf = data[begin] in (LEAF_INDEX, LEAF_TABLE)
        self.table = data[begin] in (INTERIOR_TABLE, LEAF_TABLE)
        (self.count,) = _SHORT.unpack_from(data, begin + 3)
        if begin + head + 2 * self.count > len(data):
            raise NoPageError
        self._at = struct.unpack_from(f">{self.count}H", data, begin + head)

    def child(self, number: int) -> int:
        """Returns the page left of a cell; for the number after the last, the rightmost page."""
        at = 8 if number == self.count else self._at[number]
        (found,) = _LONG.unpack_from(self._data, at)
        return int(found)

    def key(self, number: int, columns: int) -> Key:
        """Returns a table row's id, or the first columns of an index row.

        Raises:
            NoPageError: it is not on this page.
        """
        try:
            at = self._at[number] + (0 if self.leaf else 4)
            if not self.table:
                return tuple(self._row(at, columns))
            if self.leaf:
                _, at = _varint(self._data, at)
            return ((NUMBER, _signed(_varint(self._data, at)[0])),)
        except (IndexError, struct.error, UnicodeDecodeError) as error:
            raise NoPageError from error

    def shape(self, number: int) -> str:
        """Returns the kinds of all columns of a row, one letter each: null, int, float, text, blob.

        Raises:
            NoPageError: they are not on this page, or only the row's id is.
        """
        if self.table and not self.leaf:
            raise NoPageError
        try:
            at = self._at[number] + (0 if self.leaf else 4)
            _, at = _varint(self._data, at)
            if self.table:
                _, at = _varint(self._data, at)
            kinds, _ = self._kinds(at, len(self._data))
        except (IndexError, struct.error) as error:
            raise NoPageError from error
        return "".join(map(_letter, kinds))

    def row(self, number: int, columns: int) -> list[Any]:
        """Returns the first columns of a table's row, without its id, as far as they are on this
        page.

        Raises:
            NoPageError: it is not a row.
        """
        data = self._data
        try:
            size, at = _varint(data, self._at[number])
            _, at = _varint(data, at)
            end = at + _local(size, len(data) - CHECKSUM_SIZE, of_table=True)
            kinds, _ = self._kinds(at, columns)
            at += _varint(data, at)[0]
            found: list[Any] = []
            for kind in kinds:
                width = _width(kind)
                if at + width > min(end, len(data)):
                    break
                found.append(_value(kind, data[at : at + width])[1])
                at += width
        except (IndexError, struct.error, UnicodeDecodeError) as error:
            raise NoPageError from error
        return found

    def _kinds(self, at: int, most: int) -> tuple[list[int], int]:
        size, kind_at = _varint(self._data, at)
        end = at + size
        kinds: list[int] = []
        while kind_at < end and len(kinds) < most:
            kind, kind_at = _varint(self._data, kind_at)
            kinds.append(kind)
        return kinds, end

    def _row(self, at: int, columns: int) -> list[tuple[int, Any]]:
        data = self._data
        room = len(data) - CHECKSUM_SIZE
        size, at = _varint(data, at)
        end = at + _local(size, room)
        kinds, at = self._kinds(at, columns)
        found: list[tuple[int, Any]] = []
        for kind in kinds:
            width = _width(kind)
            if at + width > end:
                raise NoPageError  # the rest is on another page
            found.append(_value(kind, data[at : at + width]))
            at += width
        return found


def is_whole(page: bytes) -> bool:
    """Returns True if a page of the main file has a valid checksum,
    https://sqlite.org/cksumvfs.html."""
    first = second = 0
    words = struct.unpack(f"<{len(page) // 4}I", page)
    for at in range(0, len(words) - 2, 2):
        first = (first + words[at] + second) & 0xFFFFFFFF
        second = (second + words[at + 1] + first) & 0xFFFFFFFF
    return (first, second) == words[-2:]


def _local(size: int, room: int, *, of_table: bool = False) -> int:
    """Returns the number of bytes of a row that are on its page."""
    most, least = (room - 12) * 64 // 255 - 23, (room - 12) * 32 // 255 - 23
    most = room - 35 if of_table else most
    if size <= most:
        return size
    found = least + (size - least) % (room - 4)
    return found if found <= most else least


def _width(kind: int) -> int:
    if kind >= 12:
        return (kind - 12) // 2
    return 8 if kind == 7 else _INTEGERS.get(kind, 0)


def _value(kind: int, data: bytes) -> tuple[int, Any]:
    if kind >= 12:
        return (TEXT, data.decode()) if kind & 1 else (BLOB, data)
    if kind == 0:
        return NULL, 0
    if kind == 7:
        return NUMBER, struct.unpack(">d", data)[0]
    return NUMBER, int.from_bytes(data, "big", signed=True) if data else kind - 8


def _letter(kind: int) -> str:
    if kind >= 12:
        return "t" if kind & 1 else "b"
    return "n" if kind == 0 else "f" if kind == 7 else "i"


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns a number of one to nine bytes, and its end."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value = byte & 0x7F
    for place in range(at + 1, at + 8):
        byte = data[place]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, place + 1
    return value << 8 | data[at + 8], at + 9


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
