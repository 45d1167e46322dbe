"""Instances of subclasses of plain types as values of the plain type itself, without asking the
subclass."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID


def _date(value: Any) -> dt.date:
    return dt.date(value.year, value.month, value.day)


def _time(value: Any) -> dt.time:
    clock = value.hour, value.minute, value.second, value.microsecond
    return dt.time(*clock, value.tzinfo, fold=value.fold)


BASE_VALUES: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (int, int.__pos__),
    (float, float.__pos__),
    (str, str.__str__),
    (bytes, lambda value: b"".join((value,))),
    (dict, lambda value: dict(dict.items(value))),
    (list, lambda value: list(list.__iter__(value))),
    (tuple, lambda value: tuple(tuple.__iter__(value))),
    (set, lambda value: set(set.__iter__(value))),
    (frozenset, lambda value: frozenset(frozenset.__iter__(value))),
    (dt.datetime, lambda value: dt.datetime.combine(_date(value), _time(value))),
    (dt.date, _date),
    (dt.time, _time),
    (dt.timedelta, lambda value: dt.timedelta(value.days, value.seconds, value.microseconds)),
    (Decimal, Decimal),
    (UUID, lambda value: UUID(int=value.int)),
)
"""Each kind with what gives its value. The first that fits: a datetime is a date, too."""


class StandIn:
    """Marks a subclass of a plain kind. A state stores its instances as the plain values that they
    are. Those of other subclasses are refused: they would not come back."""

    __slots__ = ()

    def plain(self) -> Any:
        return next(take(self) for base, take in BASE_VALUES if isinstance(self, base))
