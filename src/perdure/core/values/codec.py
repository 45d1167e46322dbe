"""Plain values as bytes: msgpack, with extension types for what msgpack lacks.

The wire forms are specified in docs/format.md ("Values"). Dicts keep their insertion order, because
programs iterate over them and a rehydrated state must iterate alike; `canonical` sorts, for hashes.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable, Set
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from perdure.core.values import zones
from perdure.core.values.plain_values import DECIMALS, Plain
from perdure.errors import Unstorable, UnsupportedFormat
from perdure.system import stack_room

Ext = msgspec.msgpack.Ext

BIG_INT, WIDE_STR, DATETIME, DATE, TIME, TIMEDELTA, DECIMAL, UUID_, TUPLE, SET, FROZENSET, MAP = (
    range(1, 13)
)
"""Extension codes. They are part of the format: never renumber, only add."""

INT_MIN, INT_MAX = -(2**63), 2**64 - 1
_FLAT: frozenset[type] = frozenset({str, int, float, bool, bytes, type(None)})
"""Types that msgpack has. Its encoder raises an error for a number of more than 64 bits and for a
lone surrogate; both are rare, so they are searched for only then."""

_BUT_INTS = _FLAT - {int}
_BUT_TEXTS = _BUT_INTS - {str}
_REFUSED = (OverflowError, UnicodeEncodeError)

_encoder = msgspec.msgpack.Encoder()
_sorting_encoder = msgspec.msgpack.Encoder(order="deterministic")


NEWER = "it was written by a newer version: read it with a newer perdure"


class _Again:
    """An encoder of a value that msgpack refused, and that is gone through again.

    Containers in it that are extensions are not: each level of them would double what the levels
    below it cost.
    """

    def __init__(self, encoder: msgspec.msgpack.Encoder) -> None:
        self.encode = encoder.encode
        self.sorts = encoder is _sorting_encoder
        self.known: dict[int, Ext] = {}
        """The extensions, by the identity of their containers, which the value holds."""
        self._sorting: _Again | None = self if self.sorts else None

    @property
    def sorting(self) -> _Again:
        """The one for members of sets, and for what keys are sorted by."""
        if self._sorting is None:
            self._sorting = _Again(_sorting_encoder)
        return self._sorting


_Encoder = msgspec.msgpack.Encoder | _Again


class UndecodableError(ValueError):
    """The bytes are not a value of this format."""


def encode(value: Plain, encoder: _Encoder = _encoder) -> bytes:
    """Returns the bytes of a plain value; see `decode`.

    Raises:
        TypeError: not a plain value (a bug of the caller: `values.take` comes first).
        Unstorable: nested too deeply to be encoded.
    """
    try:
        try:
            wire: Callable[..., Any] = _wire_list if type(value) is list else _wire
            return encoder.encode(wire(value, encoder, _FLAT))
        except _REFUSED:
            return _encode_again(value, encoder, _wire)
    except RecursionError:
        try:
            return stack_room.afresh(encode, value, encoder)
        except RecursionError as error:  # of ours none is: a log that somebody made up can be read
            stack_room.pass_on(error)
            raise Unstorable("it is nested too deeply", hint="flatten it") from error


def canonical(value: Plain) -> bytes:
    """Returns the bytes of a plain value with dict keys and set members sorted: equal values give
    equal bytes."""
    if type(value) in _FLAT:  # as most arguments of calls, each of which is digested
        try:
            return _sorting_encoder.encode(value)
        except _REFUSED:
            pass
    return encode(value, _sorting_encoder)


def _encode_again(value: Any, encoder: _Encoder, wire: Callable[..., Any]) -> bytes:
    again = encoder if isinstance(encoder, _Again) else _Again(encoder)
    try:
        return again.encode(wire(value, again, _BUT_INTS))
    except _REFUSED:
        return again.encode(wire(value, again, _BUT_TEXTS))


def _wire(value: Any, encoder: _Encoder, as_is: frozenset[type]) -> Any:
    """Returns the value with extensions in place of what msgpack lacks; the value itself where
    there are none.

    On the path of every commit: a value without extensions is not copied, and there is no call for
    each container. A step takes 0.96 of the CPU that it takes with them.

    Args:
        as_is: types whose values msgpack has, unless the encoder refused one.
    """
    kind = type(value)
    if kind in as_is:
        return value
    if kind is dict:
        return _wire_dict(value, encoder, as_is)
    if kind is list:
        return _wire_list(value, encoder, as_is)
    if kind is int:
        if INT_MIN <= value <= INT_MAX:
            return value
        size = value.bit_length() // 8 + 1
        return Ext(BIG_INT, value.to_bytes(size, "big", signed=True))
    if kind is str:
        return _wire_str(value)
    if kind is Ext:
        return value
    write = _WRITERS.get(kind)
    if write is None:
        raise TypeError(f"not a plain value: {kind!r}")
    return write(value, encoder)


def _wire_list(value: list[Any], encoder: _Encoder, as_is: frozenset[type]) -> list[Any]:
    items = iter(value)
    for item in items:  # without a number for each: mostly none is replaced
        if type(item) in as_is:
            continue
        kind = type(item)
        if kind is dict:
            wired = _wire_dict(item, encoder, as_is)
        elif kind is list:
            flat = as_is.issuperset(map(type, item))
            wired = item if flat else _wire_list(item, encoder, as_is)
        else:
            wired = _wire(item, encoder, as_is)
        if wired is not item:
            behind = [_wire(one, encoder, as_is) for one in items]
            return [*value[: len(value) - len(behind) - 1], wired, *behind]
    return value


def _wire_dict(value: dict[Any, Any], encoder: _Encoder, as_is: frozenset[type]) -> Any:
    if as_is is _BUT_TEXTS and value:
        return _wire_pairs(value, encoder)
    changed: dict[str, Any] | None = None
    for key, item in value.items():
        if type(key) is not str:
            return _wire_pairs(value, encoder)
        if type(item) in as_is:
            continue
        kind = type(item)
        if kind is dict:
            wired = _wire_dict(item, encoder, as_is)
        elif kind is list:
            flat = as_is.issuperset(map(type, item))
            wired = item if flat else _wire_list(item, encoder, as_is)
        else:
            wired = _wire(item, encoder, as_is)
        if wired is not item:
            changed = dict(value) if changed is None else changed
            changed[key] = wired
    return value if changed is None else changed


def _wire_pairs(value: dict[Any, Any], encoder: _Encoder) -> Ext:
    """Returns a dict whose keys msgpack's maps cannot have as pairs of its items."""
    return _once(value, encoder, _write_pairs)


def _once(value: Any, encoder: _Encoder, write: Callable[[Any, Any], Ext]) -> Ext:
    """Returns the extension of a container, made once for all tries of what it is in."""
    if not isinstance(encoder, _Again):
        return write(value, encoder)
    made = encoder.known.get(id(value))
    if made is None:
        made = encoder.known[id(value)] = write(value, encoder)
    return made


def _write_pairs(value: dict[Any, Any], encoder: _Encoder) -> Ext:
    pairs = [[key, item] for key, item in value.items()]
    if encoder.sorts if isinstance(encoder, _Again) else encoder is _sorting_encoder:
        pairs.sort(key=lambda pair: _sorted_bytes(pair[0], encoder))
    try:
        data = encoder.encode(_wire_each(pairs, encoder, _FLAT))
    except _REFUSED:
        data = _encode_again(pairs, encoder, _wire_each)
    return Ext(MAP, data)


def _wire_each(
    pairs: list[list[Any]], encoder: _Encoder, as_is: frozenset[type]
) -> list[list[Any]]:
    """Applies `_wire` to pairs, with few calls for each level: nesting is bounded by the stack."""
    return [[_wire(key, encoder, as_is), _wire(item, encoder, as_is)] for key, item in pairs]


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


def _sorted_bytes(item: Any, encoder: _Encoder) -> bytes:
    return encode(item, encoder.sorting) if isinstance(encoder, _Again) else canonical(item)


def _write_set(value: Set[Any], encoder: _Encoder) -> Ext:
    # Sets have no order of their own: sorted by their bytes, equal sets are stored alike.
    data = encoder.encode(sorted(_sorted_bytes(item, encoder) for item in value))
    return Ext(SET if type(value) is set else FROZENSET, data)


_WRITERS: dict[type, Callable[[Any, Any], Any]] = {
    dt.datetime: _write_datetime,
    dt.time: _write_time,
    dt.date: lambda v, _: Ext(DATE, v.isoformat().encode()),
    dt.timedelta: lambda v, _: Ext(TIMEDELTA, _encoder.encode([v.days, v.seconds, v.microseconds])),
    Decimal: lambda v, _: Ext(DECIMAL, DECIMALS.to_sci_string(v).encode()),
    UUID: lambda v, _: Ext(UUID_, v.bytes),
    tuple: lambda v, e: _once(v, e, lambda v, e: Ext(TUPLE, encode(list(v), e))),
    set: lambda v, e: _once(v, e, _write_set),
    frozenset: lambda v, e: _once(v, e, _write_set),
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
    """Returns the plain value of bytes that `encode` made. Never imports or evaluates anything
    (I10).

    Raises:
        UndecodableError: the bytes are something else.
        UnsupportedFormat: it holds a value of a kind that only a newer version knows.
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
    msgspec.MsgspecError,
    ValueError,
    TypeError,
    ArithmeticError,
    LookupError,
    OSError,
    struct.error,
)


def _decode_afresh(data: bytes) -> Plain:
    """Decodes on a fresh stack: bytes are not damaged because the caller is deep in calls."""
    try:
        return stack_room.afresh(decode, data)
    except RecursionError as error:
        stack_room.pass_on(error)
        raise UndecodableError(f"not a value of this format: {error}") from error
