"""PostgreSQL's binary form of values: for statements that are called without a cursor.

An array, the form of a batch, is that of `array_recv` in PostgreSQL's source: dimensions, whether
there are NULLs, the elements' type, their number, the first one's place, then each with its length
before it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from psycopg import Connection
from psycopg.adapt import Dumper
from psycopg.pq import Format

BOOL, BYTEA, BIGINT, TEXT = 16, 17, 20, 25
BYTEAS, TEXTS, BIGINTS, JSONBS = 1001, 1009, 1016, 3807
"""PostgreSQL's own numbers of types, and of arrays of them."""

TRUE, FALSE = b"\x01", b"\x00"

_HEAD = struct.Struct("!iiIii")
_BIGINT = struct.Struct("!q")
_NUMBER = struct.Struct("!iq")
_LENGTH = struct.Struct("!i")
_NULL = _LENGTH.pack(-1)


bigint = _BIGINT.pack
"""A bigint that is not NULL."""


def number(value: int | None) -> bytes | None:
    """Returns a bigint."""
    return None if value is None else bigint(value)


def truth(value: bool) -> bytes:
    """Returns a boolean."""
    return TRUE if value else FALSE


def to_text(value: bytes | None) -> str | None:
    """Returns the str of a text."""
    return None if value is None else value.decode()


def to_number(value: bytes | None) -> int | None:
    """Returns the int of a bigint."""
    if value is None:
        return None
    result: int = _BIGINT.unpack(value)[0]
    return result


def to_numbers(value: bytes | None) -> list[int]:
    """Returns the ints of a bigint[] without NULLs."""
    if value is None:
        return []
    return [number for _, number in _NUMBER.iter_unpack(value[_HEAD.size :])]


class Numbers(bytes):
    """bigint[]"""


class Texts(bytes):
    """text[]"""


class Blobs(bytes):
    """bytea[]"""


class Jsons(bytes):
    """jsonb[]"""


def numbers(values: Sequence[int | None]) -> Numbers:
    packed = [_NULL if value is None else _NUMBER.pack(8, value) for value in values]
    return Numbers(_head(BIGINT, values) + b"".join(packed))


def texts(values: Sequence[str | None]) -> Texts:
    return Texts(_packed(TEXT, [None if value is None else value.encode() for value in values]))


def blobs(values: Sequence[bytes | None]) -> Blobs:
    return Blobs(_packed(BYTEA, values))


def jsons(values: Sequence[str | None]) -> Jsons:
    """Returns a jsonb[]: each value has the number of its format before it."""
    encoded = [None if value is None else b"\x01" + value.encode() for value in values]
    return Jsons(_packed(3802, encoded))


def _packed(element: int, values: Sequence[bytes | None]) -> bytes:
    parts = [_head(element, values)]
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            parts += (_LENGTH.pack(len(value)), value)
    return b"".join(parts)


def _head(element: int, values: Sequence[object]) -> bytes:
    return _HEAD.pack(1, None in values, element, len(values), 1)


def register(connection: Connection) -> None:
    """Lets a connection send these types."""
    for kind, oid in ((Numbers, BIGINTS), (Texts, TEXTS), (Blobs, BYTEAS), (Jsons, JSONBS)):
        members = {"format": Format.BINARY, "oid": oid, "dump": _dump}
        connection.adapters.register_dumper(
            kind, type(f"{kind.__name__}Dumper", (Dumper,), members)
        )


def _dump(_: Dumper, value: bytes) -> bytes:
    return value
