"""A property that is worked out once, without a lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class cached(Generic[T]):  # noqa: N801 - it stands where `property` does
    """As `functools.cached_property` is from Python 3.12 on. That of 3.11 has a lock, one for all
    instances of a class: where a thread holds it while another one forks, the child waits for it
    for ever.

    Two threads may work it out at once; both are given the same.
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
