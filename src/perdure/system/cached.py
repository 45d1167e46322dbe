"""Caches without locks: a property that is computed once, and the results of functions of short
texts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")

LONG = 1000
"""Results for longer texts are not kept. Texts come from outside: limiting their number does not
limit their size."""


def kept_of_one(count: int) -> Callable[[Callable[[str], T]], Callable[[str], T]]:
    """Decorates a function of one text like `functools.lru_cache`; only results for short texts are
    kept. With it LangGraph's `get_tuple` takes 0.94 of its CPU."""

    def decorate(make: Callable[[str], T]) -> Callable[[str], T]:
        kept = functools.lru_cache(count)(make)

        @functools.wraps(make)
        def of(text: str, /) -> T:
            return kept(text) if len(text) <= LONG else make(text)

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
