"""Time zones by their keys; and a stand-in for a zone that this machine's tz database lacks.

A value with such a zone is healthy: its known parts are read, kept, and written back byte for byte.
Whatever needs the rules of the zone raises `UnknownZone`; nothing is guessed.
"""

from __future__ import annotations

import copy
import datetime as dt
import struct
import sys
import time
from collections.abc import Callable
from hashlib import sha256
from types import FrameType
from typing import Any, NoReturn, TypeVar
from weakref import WeakValueDictionary

from perdure.errors import UnknownZone
from perdure.system.late_imports import loading
from perdure.system.locks import Lock

R = TypeVar("R")

LOOK_AGAIN_S = 1.0
"""A look for a zone that is not there goes through all of the places where it might be."""

_found: dict[str, dt.tzinfo] = {}
"""One object for each zone, whatever `ZoneInfo.clear_cache` does: to Python, an hour that comes
twice is never the same hour of another object, and a dict key could not be found again."""

_missing: WeakValueDictionary[str, MissingZone] = WeakValueDictionary()
_lock = Lock()


class MissingZone(dt.tzinfo):
    """A zone that is not in this machine's tz database, by its key. There is one for each key.

    Datetimes in one missing zone are compared and subtracted as those in one known zone are: by
    their wall clocks. Whatever needs an offset from UTC raises `UnknownZone`: other comparisons,
    `astimezone`, `timestamp`, `isoformat`, `str`. `repr` tells all that is known.

    A datetime that was read, and a `copy.deepcopy` of it, can be a dict key and a set member. The
    hash of one that was made from it, or that was unpickled, needs the offset.
    """

    key: str
    tried: float
    _stand_in: dt.timedelta

    def __new__(cls, key: str) -> MissingZone:
        with _lock:  # one for each key: Python compares by the wall clock within one object only
            found = _missing.get(key)
            if found is None:
                found = super().__new__(cls)
                found.key, found.tried = key, -LOOK_AGAIN_S
                found._stand_in = _stand_in(key)
                _missing[key] = found
            return found

    def utcoffset(self, at: dt.datetime | None, /) -> dt.timedelta:
        asking = sys._getframe(1)
        if asking.f_code in _WHATEVER:
            return _WHATEVER[asking.f_code]
        if _only_hashes(asking):
            return self._stand_in
        self._refuse()

    def dst(self, at: dt.datetime | None, /) -> NoReturn:
        self._refuse()

    def tzname(self, at: dt.datetime | None, /) -> NoReturn:
        self._refuse()

    def fromutc(self, at: dt.datetime, /) -> NoReturn:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise UnknownZone(self.key)

    def __repr__(self) -> str:
        return f"MissingZone({self.key!r})"

    def __str__(self) -> str:
        return self.key

    def __copy__(self) -> MissingZone:
        return self

    def __deepcopy__(self, memo: Any) -> MissingZone:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return named, (self.key,)  # where it is unpickled, the zone may be known


def _stand_in(key: str) -> dt.timedelta:
    """Returns the offset that the hash of a moment is made with: any will do, as long as it stays
    the same. Each zone has its own; otherwise equal wall clocks of two zones would have one hash,
    and would have to be compared."""
    number = int.from_bytes(sha256(key.encode("utf-8", "surrogatepass")).digest()[:8], "big")
    return dt.timedelta(microseconds=number % 86_400_000_000)


def _only_hashes(asking: FrameType) -> bool:
    """True if the offset can only be wanted for a hash. Python asks for it in the same way for
    anything else, and keeps a hash once it has it."""
    return asking.f_code is keep_hash.__code__ or asking.f_globals is vars(copy)


def keep_hash(value: dt.datetime | dt.time) -> None:
    """Makes a value with a missing zone remember its hash."""
    hash(value)


def _at_the_earliest(call: Callable[..., R], *args: Any, **kwargs: Any) -> R:
    return call(*args, **kwargs)


def _at_the_latest(call: Callable[..., R], *args: Any, **kwargs: Any) -> R:
    return call(*args, **kwargs)


_FURTHEST = dt.timedelta(hours=16)
"""From UTC. No zone is, or was, so far from it: the furthest was 15:13:42 (Asia/Manila, Juneau)."""

_WHATEVER = {_at_the_earliest.__code__: _FURTHEST, _at_the_latest.__code__: -_FURTHEST}


def whatever_the_offset(call: Callable[..., R], *args: Any, **kwargs: Any) -> R:
    """Returns what a check written in C says of moments in missing zones, if they pass it at both
    the earliest and the latest moment that they may be: then they pass at all between.

    Raises:
        Exception: they do not pass; or what the call raises in any case.
    """
    _at_the_earliest(call, *args, **kwargs)
    return _at_the_latest(call, *args, **kwargs)


def named(key: str) -> dt.tzinfo:
    """Returns the zone of a key; a `MissingZone` if this machine lacks it."""
    found = _found.get(key)
    return found if found is not None else _look_for(key)


def _look_for(key: str) -> dt.tzinfo:
    missing = _missing.get(key)
    now = time.monotonic()
    if missing is not None and now - missing.tried < LOOK_AGAIN_S:
        return missing
    with loading:
        from zoneinfo import ZoneInfo  # 5 ms to import, for this alone

    try:
        return _found.setdefault(key, ZoneInfo(key))
    except _NOT_TO_BE_HAD:
        missing = MissingZone(key)
        missing.tried = now
        return missing


_NOT_TO_BE_HAD = (LookupError, ValueError, OSError, ImportError, EOFError, struct.error)
"""Not there; no key that a database can have; its file cannot be opened now, or is damaged."""


def forget() -> None:
    """Forgets all zones, because the tz database has changed: each is looked up again."""
    _found.clear()
    for missing in list(_missing.values()):
        missing.tried = -LOOK_AGAIN_S


def can_be_named(zone: dt.tzinfo) -> bool:
    """True if its key identifies the zone: not if it was read from a user's own file."""
    if type(zone) is MissingZone:
        return True
    with loading:
        from zoneinfo import ZoneInfo

    if type(zone) is not ZoneInfo or not zone.key:
        return False
    try:
        zone.__reduce__()
    except Exception:  # pickle's own word for: no key gives this zone again
        return False
    return True


def wall_clock(value: dt.datetime | dt.time, sep: str = "T") -> str:
    """Returns ISO 8601, without an offset where that is not known."""
    if type(value.tzinfo) is MissingZone:
        value = value.replace(tzinfo=None)
    return value.isoformat(sep) if isinstance(value, dt.datetime) else value.isoformat()


def key_of(zone: dt.tzinfo) -> str | None:
    """Returns the key that a zone was found by; None if it has none."""
    if type(zone) is MissingZone:
        return zone.key
    with loading:
        from zoneinfo import ZoneInfo

    return zone.key if isinstance(zone, ZoneInfo) else None
