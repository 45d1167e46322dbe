"""Subclasses of plain types, kept as the plain value, as LangGraph keeps them.

The text of a LangChain message is a subclass of str, a graph's answer may be one of dict, and a
`defaultdict` is one.
"""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID


def _moment(value: Any) -> dt.datetime:
    return dt.datetime(
        value.year,
        value.month,
        value.day,
        value.hour,
        value.minute,
        value.second,
        value.microsecond,
        value.tzinfo,
        fold=value.fold,
    )


_PLAIN: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (dict, lambda value: dict(dict.items(value))),
    (list, lambda value: list(list.__iter__(value))),
    (tuple, lambda value: tuple(tuple.__iter__(value))),
    (bytes, lambda value: b"".join((value,))),
    (bytearray, lambda value: bytearray(memoryview(value))),
    (set, lambda value: set(set.__iter__(value))),
    (frozenset, lambda value: frozenset(frozenset.__iter__(value))),
    (deque, lambda value: deque(deque.__iter__(value), value.maxlen)),
    (dt.datetime, _moment),
    (dt.date, lambda value: dt.date(value.year, value.month, value.day)),
    (
        dt.time,
        lambda value: dt.time(
            value.hour, value.minute, value.second, value.microsecond, value.tzinfo, fold=value.fold
        ),
    ),
    (dt.timedelta, lambda value: dt.timedelta(value.days, value.seconds, value.microseconds)),
    (Decimal, Decimal),
    (UUID, lambda value: UUID(int=value.int)),
)
"""What a subclass is an instance of, and the plain value in it, without asking the subclass."""

NOT_PLAIN = object()


def plain_of(value: Any) -> Any:
    """The plain value that an instance of a subclass of its type stands for, as LangGraph keeps it:
    of that type exactly. `NOT_PLAIN` if it is of no such class, or an enum's, or a named tuple."""
    if isinstance(value, Enum) or (isinstance(value, tuple) and hasattr(value, "_fields")):
        return NOT_PLAIN
    for base, take in _PLAIN:
        if isinstance(value, base):
            made = take(value)
            return made if type(made) is base else NOT_PLAIN
    return NOT_PLAIN


def plain_key(key: Any) -> Any:
    """A dict's key: a subclass of str as the text that it is."""
    return str.__str__(key) if isinstance(key, str) and not isinstance(key, Enum) else key
