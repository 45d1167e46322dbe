"""Arguments as values of exactly the types that they were checked as.

A caller's object may lie: a subclass overrides what a check asks it, a `__class__` says what it is
not, a number answers its second question differently. What was checked would not be what is
written. So the type is asked, never the object; and the value is taken with the base's own methods.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TypeGuard, TypeVar

T = TypeVar("T")


def is_a(value: object, kind: type[T]) -> TypeGuard[T]:
    """True if the value is an instance of `kind` by its type. `isinstance` believes an object's own
    `__class__`, and then its methods fail deep within."""
    return issubclass(type(value), kind)


def text(value: str) -> str:
    return value if type(value) is str else str.__str__(value)


def whole(value: int) -> int:
    return value if type(value) is int else int.__index__(value)


def span(value: timedelta) -> timedelta:
    if type(value) is timedelta:
        return value
    base = timedelta.__dict__
    return timedelta(*(base[name].__get__(value) for name in ("days", "seconds", "microseconds")))


def moment(value: datetime) -> datetime:
    """Returns a moment as a plain datetime; what a subclass adds, e.g. nanoseconds, is left out."""
    if type(value) is datetime:
        return value
    return datetime.combine(datetime.date(value), datetime.timetz(value))
