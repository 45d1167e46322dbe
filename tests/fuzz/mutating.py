"""Small damages of an input: of its parts, of their bytes, and of the msgpack or JSON in them.

An input is a list of byte strings, its parts. What they are, the target says: a header and a body,
the words of a command line, one envelope. A damage knows nothing of the target; so that it gets
behind lengths and hashes, the targets make those anew.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

Parts = list[bytes]

PART_MAX = 1 << 16
PARTS_MAX = 64
DAMAGES_MAX = 4
DEPTHS = (3, 101, 900, 3000)
"""Nesting: harmless; one too deep for a state; just within what the interpreter can go through,
and beyond that."""

NUMBERS = (
    0,
    1,
    -1,
    2,
    127,
    128,
    255,
    256,
    2**15,
    2**31 - 1,
    2**31,
    2**32,
    2**35,
    2**36,
    2**53,
    2**62,
    2**63 - 1,
    -(2**63),
    2**64 - 1,
)
EXT_CODES = (*range(14), 77, 127, -1)
WORDS = (
    "",
    "main",
    "state",
    "t",
    "run",
    "place",
    "@",
    "dict",
    "$decimal",
    "\0",
    "é",
    "\ud800",
    "..",
    "%00",
    "1e999",
    "nan",
    "9" * 5000,
    "-",
    "--json",
    "2026-08-12T14:03:22Z",
    "America",
)
BYTES = (
    b"",
    b"\0",
    b"\xff",
    b"NaN",
    b"sNaN",
    b"1E+999999999",
    b"9" * 5000,
    b"../../etc",
    b"America",
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\xdb\x7f\xff\xff\xff",
    b"\xc9\xff\xff\xff\xff\x09",
    b"2026-08-12",
    b"24:00",
    b'["a",1e999]',
    b"[" * 3000,
)


def mutate(parts: Sequence[bytes], others: Sequence[Parts], rng: random.Random) -> Parts:
    """A damaged copy. `others`: inputs of the same target, pieces of which may come in."""
    made = list(parts)
    for _ in range(rng.randint(1, DAMAGES_MAX)):
        if not made or rng.random() < 0.15:
            _mutate_list(made, others, rng)
        else:
            at = rng.randrange(len(made))
            made[at] = _mutate_part(made[at], others, rng)[:PART_MAX]
    return made[:PARTS_MAX]


def _mutate_list(parts: Parts, others: Sequence[Parts], rng: random.Random) -> None:
    other = rng.choice(others) if others else []
    at = rng.randint(0, len(parts))
    what = rng.randrange(4)
    if what == 0 and other:
        parts.insert(at, rng.choice(other))
    elif what == 1 and parts:
        parts.insert(at, rng.choice(parts))
    elif what == 2 and parts:
        del parts[rng.randrange(len(parts))]
    elif len(parts) > 1:
        one, two = rng.sample(range(len(parts)), 2)
        parts[one], parts[two] = parts[two], parts[one]


def _mutate_part(data: bytes, others: Sequence[Parts], rng: random.Random) -> bytes:
    ways: list[Callable[[], bytes | None]] = [
        lambda: _flip(data, rng),
        lambda: _overwrite(data, rng),
        lambda: _cut(data, rng),
        lambda: _splice(data, others, rng),
        lambda: _tree(data, others, rng),
        lambda: _tree(data, others, rng),
        lambda: _tree(data, others, rng),
    ]
    made = rng.choice(ways)()
    return _flip(data, rng) if made is None else made


# -- bytes ----------------------------------------------------------------------------------


def _flip(data: bytes, rng: random.Random) -> bytes:
    if not data:
        return rng.choice(BYTES)
    whole = bytearray(data)
    whole[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
    return bytes(whole)


def _overwrite(data: bytes, rng: random.Random) -> bytes:
    """Also over fields that give lengths, which is what most such bytes are for."""
    at = rng.randint(0, len(data))
    piece = rng.choice(BYTES) if rng.random() < 0.5 else rng.randbytes(rng.randint(1, 4))
    keep = rng.choice((0, len(piece)))
    return data[:at] + piece + data[at + keep :]


def _cut(data: bytes, rng: random.Random) -> bytes:
    one, two = sorted((rng.randint(0, len(data)), rng.randint(0, len(data))))
    return rng.choice((data[:one], data[:one] + data[two:], data[:two] + data[one:]))


def _splice(data: bytes, others: Sequence[Parts], rng: random.Random) -> bytes:
    other = rng.choice(others) if others else []
    piece = rng.choice(other) if other else data
    return data[: rng.randint(0, len(data))] + piece[rng.randint(0, len(piece)) :]


# -- trees ----------------------------------------------------------------------------------


def _tree(data: bytes, others: Sequence[Parts], rng: random.Random) -> bytes | None:
    """One place of the value that the bytes hold, as msgpack or as JSON, is another one."""
    for read, write in ((_read_json, _write_json), (_read_msgpack, _write_msgpack)):
        tree = read(data)
        if tree is not None:
            other = None
            if others and (near := rng.choice(others)):
                other = read(rng.choice(near))
            return write(_changed(tree, other, rng))
    return None


def _read_json(data: bytes) -> Any:
    try:
        return json.loads(data) if data[:1] in (b"{", b"[") else None
    except (ValueError, RecursionError):
        return None


def _write_json(tree: Any) -> bytes | None:
    try:
        return json.dumps(tree, default=lambda _: None).encode()
    except (ValueError, TypeError, RecursionError):
        return None


def _read_msgpack(data: bytes) -> Any:
    try:
        tree = msgspec.msgpack.decode(data)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        return None
    return tree if isinstance(tree, list | dict | msgspec.msgpack.Ext) else None


def _write_msgpack(tree: Any) -> bytes | None:
    try:
        return msgspec.msgpack.encode(tree)
    except (ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError):
        return None


def _changed(tree: Any, other: Any, rng: random.Random) -> Any:
    """The tree with one place changed; places near its root as often as all that are below."""
    if isinstance(tree, msgspec.msgpack.Ext) and rng.random() < 0.7:
        return _changed_ext(tree, rng)
    if isinstance(tree, list) and tree and rng.random() < 0.75:
        items = list(tree)
        at = rng.randrange(len(items))
        what = rng.randrange(8)
        if what == 0:
            del items[at]
        elif what == 1:
            items.insert(at, _any_of(tree, other, rng))
        else:
            items[at] = _changed(items[at], other, rng)
        return items
    if isinstance(tree, dict) and tree and rng.random() < 0.8:
        entries = dict(tree)
        key = rng.choice(list(entries))
        what = rng.randrange(8)
        if what == 0:
            del entries[key]
        elif what == 1:
            entries[rng.choice(WORDS)] = _any_of(tree, other, rng)
        else:
            entries[key] = _changed(entries[key], other, rng)
        return entries
    return _any_of(tree, other, rng)


def _changed_ext(ext: Any, rng: random.Random) -> Any:
    code, data = ext.code, bytes(ext.data)
    what = rng.randrange(4)
    if what == 0:
        code = rng.choice(EXT_CODES)
    elif what == 1 and (inner := _read_msgpack(data)) is not None:
        data = _write_msgpack(_changed(inner, None, rng)) or data
    elif what == 2:
        data = rng.choice(BYTES)
    else:
        data = _flip(data, rng)
    return msgspec.msgpack.Ext(code, data)


def _any_of(tree: Any, other: Any, rng: random.Random) -> Any:
    """Some value: of the same kind and odd, of another kind, of another input, or nested deep."""
    what = rng.randrange(12)
    if what in (0, 7):
        return _deep(tree, rng)
    if what == 1 and other is not None:
        return _piece(other, rng)
    if what == 2:
        return msgspec.msgpack.Ext(rng.choice(EXT_CODES), rng.choice(BYTES))
    if what == 3:
        return rng.choice(BYTES)
    if what == 4 or type(tree) is str:
        return rng.choice(WORDS)
    if what in (5, 6) or type(tree) is int:
        return rng.choice(NUMBERS)
    return rng.choice((None, True, 0.5, float("nan"), 1e308, [], {}, [[]], {"t": "step"}, tree))


def _deep(tree: Any, rng: random.Random) -> Any:
    wrap = rng.choice((lambda item: [item], lambda item: {"": item}))
    for _ in range(rng.choice(DEPTHS)):
        tree = wrap(tree)
    return tree


def _piece(tree: Any, rng: random.Random) -> Any:
    while isinstance(tree, list | dict) and tree and rng.random() < 0.7:
        tree = rng.choice(list(tree.values()) if isinstance(tree, dict) else tree)
    return tree
