"""Caches without locks: a property that is computed once, and the results of functions of short
texts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")
One = TypeVar("One", bound=str | tuple[str, ...])
Two = TypeVar("Two", bound=str | tuple[str, ...])

LONG = 1000
"""Results for longer texts are not kept. Texts come from outside: limiting their number does not
limit their size."""


def kept_of_one(count: int) -> Callable[[Callable[[One], T]], Callable[[One], T]]:
    """Decorates a function of one text like `functools.lru_cache`; only results for short texts are
    kept."""

    def decorate(make: Callable[[One], T]) -> Callable[[One], T]:
        kept = functools.lru_cache(count)(make)

        @functools.wraps(make)
        def of(text: One, /) -> T:
            return kept(text) if len(text) <= LONG else make(text)

        return of

    return decorate


def kept_of_two(count: int) -> Callable[[Callable[[One, Two], T]], Callable[[One, Two], T]]:
    """Decorates a function of two texts like `kept_of_one`."""

    def decorate(make: Callable[[One, Two], T]) -> Callable[[One, Two], T]:
        kept = functools.lru_cache(count)(make)

        @functools.wraps(make)
        def of(text: One, other: Two, /) -> T:
            return kept(text, other) if len(text) + len(other) <= LONG else make(text, other)

        return of

    return decorate


class cached(Generic[T]):  # noqa: N801 - it stands where `property` does
    """A cached property, like `functools.cached_property` from Python 3.12 on. That of 3.11 has a
    lock, one for all instances of a class: if a thread holds it while another one forks, the child
    waits for it for ever.

    Two threads may compute it at once; both get the same value.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._name = make.__name__
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> cached[T]: ...

    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> T: ...

    def __get__(self, instance: object | None, owner: type[Any] | None = None) -> cached[T] | T:
        if instance is None:
            return self
        kept: T = instance.__dict__.setdefault(self._name, self._make(instance))
        return kept
