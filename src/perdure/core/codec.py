"""Plain values as bytes: msgpack, with extension types for what msgpack has not.

The wire forms are specified in docs/format.md ("Values"). Dicts keep their insertion order, because
programs iterate over them and a rehydrated state must iterate alike; `canonical` sorts, for hashes.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from perdure.core import stack, zones
from perdure.core.values import Plain
from perdure.errors import Unstorable, UnsupportedFormat

Ext = msgspec.msgpack.Ext

BIG_INT, WIDE_STR, DATETIME, DATE, TIME, TIMEDELTA, DECIMAL, UUID_, TUPLE, SET, FROZENSET, MAP = (
    range(1, 13)
)
"""Extension codes. They are part of the format: never renumber, only add."""

INT_MIN, INT_MAX = -(2**63), 2**64 - 1
_AS_IS = frozenset({str, float, bool, bytes, type(None)})

_encoder = msgspec.msgpack.Encoder()
_sorting_encoder = msgspec.msgpack.Encoder(order="deterministic")


NEWER = "it was written by a newer version: read it with a newer perdure"


class UndecodableError(ValueError):
    """The bytes are no value of this format."""


def encode(value: Plain, encoder: msgspec.msgpack.Encoder = _encoder) -> bytes:
    """The bytes of a plain value; see `decode`.

    Raises:
        TypeError: not a plain value (a bug of the caller: `values.take` comes first).
        Unstorable: nested so deep that it cannot be gone through.
    """
    try:
        try:
            kind = type(value)
            if kind is list:
                return encoder.encode(_wire_list(value, encoder, wide=False))
            as_is = kind in _AS_IS or (kind is int and INT_MIN <= value <= INT_MAX)
            return encoder.encode(value if as_is else _wire(value, encoder, wide=False))
        except UnicodeEncodeError:  # a lone surrogate somewhere: rare, so looked for only now
            return encoder.encode(_wire(value, encoder, wide=True))
    except RecursionError:
        try:
            return stack.afresh(encode, value, encoder)
        except RecursionError as error:  # of ours none is: a log that somebody made up can be read
            stack.pass_on(error)
            raise Unstorable("it is nested too deep", hint="flatten it") from error


def canonical(value: Plain) -> bytes:
    """The bytes of a plain value with dict keys and set members sorted: equal values give equal
    bytes."""
    return encode(value, _sorting_encoder)


def _wire(value: Any, encoder: msgspec.msgpack.Encoder, *, wide: bool) -> Any:
    """The value with what msgpack has not replaced by extensions; itself where nothing is.

    On the path of every commit: it skips what it may without a call.
    """
    kind = type(value)
    if kind is str and wide:
        return _wire_str(value)
    if kind in _AS_IS:
        return value
    if kind is int:
        if INT_MIN <= value <= INT_MAX:
            return value
        size = value.bit_length() // 8 + 1
        return Ext(BIG_INT, value.to_bytes(size, "big", signed=True))
    if kind is dict:
        return _wire_dict(value, encoder, wide=wide)
    if kind is list:
        return _wire_list(value, encoder, wide=wide)
    if kind is Ext:
        return value
    write = _WRITERS.get(kind)
    if write is None:
        raise TypeError(f"not a plain value: {kind!r}")
    return write(value, encoder)


def _wire_list(value: list[Any], encoder: msgspec.msgpack.Encoder, *, wide: bool) -> list[Any]:
    changed: list[Any] | None = None
    for index, item in enumerate(value):
        kind = type(item)
        if (kind in _AS_IS and not wide) or (kind is list and not item):
            continue
        if kind is dict:
            wired = _wire_dict(item, encoder, wide=wide)
        elif kind is list:
            wired = _wire_list(item, encoder, wide=wide)
        elif kind is int and INT_MIN <= item <= INT_MAX:
            continue
        else:
            wired = _wire(item, encoder, wide=wide)
        if wired is not item:
            changed = list(value) if changed is None else changed
            changed[index] = wired
    return value if changed is None else changed


def _wire_dict(value: dict[Any, Any], encoder: msgspec.msgpack.Encoder, *, wide: bool) -> Any:
    changed: dict[str, Any] | None = None
    for key, item in value.items():
        if type(key) is not str or wide:
            return _wire_pairs(value, encoder)
        kind = type(item)
        if kind in _AS_IS:
            continue
        if kind is dict:
            wired = _wire_dict(item, encoder, wide=wide)
        elif kind is int and INT_MIN <= item <= INT_MAX:
            continue
        else:
            wired = _wire(item, encoder, wide=wide)
        if wired is not item:
            changed = dict(value) if changed is None else changed
            changed[key] = wired
    return value if changed is None else changed


def _wire_pairs(value: dict[Any, Any], encoder: msgspec.msgpack.Encoder) -> Any:
    """A dict with keys that msgpack's maps have not: its items as pairs."""
    pairs = [[key, item] for key, item in value.items()]
    if encoder is _sorting_encoder:
        pairs.sort(key=lambda pair: canonical(pair[0]))
    return Ext(MAP, _encode_pairs(pairs, encoder))


def _encode_pairs(pairs: list[list[Any]], encoder: msgspec.msgpack.Encoder) -> bytes:
    """As `encode`, with few calls for each level: nesting is bounded by the stack."""
    for wide in (False, True):
        wired = []
        for key, item in pairs:
            wired.append([_wire(key, encoder, wide=wide), _wire(item, encoder, wide=wide)])
        try:
            return encoder.encode(wired)
        except UnicodeEncodeError:
            continue
    raise AssertionError("unreachable")


def _wire_str(value: str) -> Any:
    try:
        value.encode()
    except UnicodeEncodeError:
        return Ext(WIDE_STR, value.encode("utf-8", "surrogatepass"))
    return value


def _zone(zone: dt.tzinfo | None) -> Any:
    if zone is None:
        return None
    if isinstance(zone, dt.timezone):
        return _offset(zone)
    key = zones.key_of(zone)
    return _offset(zone) if key is None else key


def _offset(zone: dt.tzinfo) -> Any:
    offset = zone.utcoffset(None)
    if offset is None:
        raise TypeError(f"a time zone without an offset: {zone!r}")
    fields = [offset.days, offset.seconds, offset.microseconds]
    own_name = zone.tzname(None) != dt.timezone(offset).tzname(None)
    return [*fields, zone.tzname(None)] if own_name else fields


def _read_zone(zone: Any) -> dt.tzinfo | None:
    if zone is None:
        return None
    if isinstance(zone, str):
        return zones.named(zone)
    days, seconds, microseconds, *name = zone
    return dt.timezone(dt.timedelta(days, seconds, microseconds), *name)


def _raw(data: bytes) -> Any:
    return _decoder.decode(data)


def _write_datetime(value: dt.datetime, _: Any) -> Any:
    naive = value.replace(tzinfo=None, fold=0)
    return Ext(DATETIME, _encoder.encode([naive.isoformat(), value.fold, _zone(value.tzinfo)]))


def _read_datetime(data: bytes) -> dt.datetime:
    text, fold, zone = _raw(data)
    value = dt.datetime.fromisoformat(text).replace(tzinfo=_read_zone(zone), fold=fold)
    if type(value.tzinfo) is zones.MissingZone:
        zones.keep_hash(value)  # it may stand in a set
    return value


def _write_time(value: dt.time, _: Any) -> Any:
    naive = value.replace(tzinfo=None, fold=0)
    return Ext(TIME, _encoder.encode([naive.isoformat(), value.fold, _zone(value.tzinfo)]))


def _read_time(data: bytes) -> dt.time:
    text, fold, zone = _raw(data)
    value = dt.time.fromisoformat(text).replace(tzinfo=_read_zone(zone), fold=fold)
    if type(value.tzinfo) is zones.MissingZone:
        zones.keep_hash(value)
    return value


def _members(value: Any, encoder: msgspec.msgpack.Encoder) -> bytes:
    # Sets have no order of their own: sorted by their bytes, equal sets are stored alike.
    return encoder.encode(sorted(_sorted_member(item) for item in value))


def _sorted_member(item: Any) -> bytes:
    return canonical(item)


_WRITERS: dict[type, Callable[[Any, msgspec.msgpack.Encoder], Any]] = {
    dt.datetime: _write_datetime,
    dt.time: _write_time,
    dt.date: lambda v, _: Ext(DATE, v.isoformat().encode()),
    dt.timedelta: lambda v, _: Ext(TIMEDELTA, _encoder.encode([v.days, v.seconds, v.microseconds])),
    Decimal: lambda v, _: Ext(DECIMAL, str(v).encode()),
    UUID: lambda v, _: Ext(UUID_, v.bytes),
    tuple: lambda v, e: Ext(TUPLE, encode(list(v), e)),
    set: lambda v, e: Ext(SET, _members(v, e)),
    frozenset: lambda v, e: Ext(FROZENSET, _members(v, e)),
}

_READERS: dict[int, Callable[[bytes], Any]] = {
    BIG_INT: lambda d: int.from_bytes(d, "big", signed=True),
    WIDE_STR: lambda d: d.decode("utf-8", "surrogatepass"),
    DATETIME: _read_datetime,
    DATE: lambda d: dt.date.fromisoformat(d.decode()),
    TIME: _read_time,
    TIMEDELTA: lambda d: dt.timedelta(*_raw(d)),
    DECIMAL: lambda d: Decimal(d.decode()),
    UUID_: lambda d: UUID(bytes=d),
    TUPLE: lambda d: tuple(_raw(d)),
    SET: lambda d: {_raw(item) for item in _raw(d)},
    FROZENSET: lambda d: frozenset(_raw(item) for item in _raw(d)),
    MAP: lambda d: dict(_raw(d)),
}


def _read_ext(code: int, data: memoryview) -> Any:
    reader = _READERS.get(code)
    if reader is None and code > MAP:
        raise UnsupportedFormat(
            f"a value of a kind that this version does not know, {code}", hint=NEWER
        )
    if reader is None:
        raise UndecodableError(f"an unknown extension type, {code}")
    return reader(bytes(data))


_decoder = msgspec.msgpack.Decoder(ext_hook=_read_ext)


def decode(data: bytes) -> Plain:
    """The plain value of bytes that `encode` made. Never imports or evaluates anything (I10).

    Raises:
        UndecodableError: the bytes are something else.
        UnsupportedFormat: there is a value in it of a kind that only a newer version knows.
    """
    try:
        return _decoder.decode(data)
    except UndecodableError:
        raise
    except RecursionError:
        return _decode_afresh(data)
    except _STRANGE as error:
        raise UndecodableError(f"not a value of this format: {error}") from error


_STRANGE = (
    msgspec.MsgspecError, ValueError, TypeError, ArithmeticError, LookupError, OSError, struct.error
)  # fmt: skip


def _decode_afresh(data: bytes) -> Plain:
    """What somebody deep in calls asks for is not damaged for that."""
    try:
        return stack.afresh(decode, data)
    except RecursionError as error:
        stack.pass_on(error)
        raise UndecodableError(f"not a value of this format: {error}") from error
