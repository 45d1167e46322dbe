"""Checks of arguments that are neither names nor words, made where a caller gives them.

What is wrong is refused there, by the argument's name: a wrong number would otherwise only fail at
some commit, in a worker, or where the log is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from math import inf
from numbers import Real
from typing import Any, TypeVar

from perdure.core.arguments import exact_types
from perdure.core.arguments.bounds import DURATION_MAX
from perdure.core.arguments.exact_types import is_a
from perdure.core.arguments.names import shown

T = TypeVar("T")
K = TypeVar("K")
W = TypeVar("W", bound=str)
Seconds = float | timedelta
COUNT_MAX = 2**62
_SECONDS_MAX = DURATION_MAX.total_seconds()


def seconds(value: Seconds, of: str = "a duration") -> float:
    """Returns a duration in seconds.

    Raises:
        TypeError: it is not a duration. ValueError: it is longer than `DURATION_MAX`, or NaN.
    """
    if is_a(value, timedelta):
        said = exact_types.span(value).total_seconds()
    else:
        found = _float(value)
        if found is None:
            raise TypeError(f"{of}: {shown(value)} is not a duration: give seconds or a timedelta")
        said = found
    if not -_SECONDS_MAX <= said <= _SECONDS_MAX:  # nor is NaN
        raise ValueError(
            f"{of}: {shown(value)} cannot be waited for: at most "
            f"a thousand years ({DURATION_MAX.days:,} days) at most"
        )
    return said


def _float(value: Any) -> float | None:
    """Returns a number as a plain float, infinite where it is too large for one; None if it is not
    a number."""
    if is_a(value, bool) or not issubclass(type(value), Real):
        return None
    try:
        if is_a(value, float):
            return float.__float__(value)
        return float(exact_types.whole(value) if is_a(value, int) else value)
    except OverflowError:
        return inf if value > 0 else -inf
    except (TypeError, ValueError):  # the class's own, and no number after all
        return None


def number(value: float, of: str) -> float:
    """Returns a number as a plain float; it may be infinite.

    Raises:
        TypeError: it is not a number. ValueError: it is NaN.
    """
    said = _float(value)
    if said is None:
        raise TypeError(f"{of} must be a number, not {shown(value)}")
    if said != said:
        raise ValueError(f"{of} must be a number, not {shown(value)}")
    return said


def count(value: int, of: str, *, least: int = 0, most: int = COUNT_MAX) -> int:
    """Returns a whole number as a plain int.

    Raises:
        TypeError: it is not a whole number. ValueError: it is outside the bounds.
    """
    if is_a(value, bool) or not is_a(value, int):
        raise TypeError(f"{of} must be a whole number, not {shown(value)}")
    said = exact_types.whole(value)
    if not least <= said <= most:
        bounds = f"{least} at least" if said < least else f"{most:,} at most"
        raise ValueError(f"{of}{shown(value)}: must be {bounds}")
    return said


def flag(value: bool, of: str) -> bool:
    """Returns True or False, and refuses what only counts as one of them: a flag may be recorded,
    or decide what is removed.

    Raises:
        TypeError: it is something else.
    """
    if value is True or value is False:
        return value
    raise TypeError(f"{of} must be True or False, not {shown(value)}")


def flags(**given: bool) -> None:
    """Checks several flags by their names. Raises TypeError as `flag`."""
    for name, value in given.items():
        flag(value, f"{name}=")


def function(value: Callable[..., Any], of: str) -> None:
    """Raises TypeError unless the value can be called."""
    if not callable(value):
        raise TypeError(f"{of} must be a function, not {shown(value)}")


def mapping(value: Mapping[K, T], of: str) -> dict[K, T]:
    """Returns a mapping as a plain dict. Only the dict's own items are read, whatever a subclass
    overrides.

    Raises:
        TypeError: it is not a mapping. ValueError: it changed while it was read.
    """
    try:
        return _items(value, of)
    except RuntimeError as error:
        if type(error) is not RuntimeError:  # e.g. no stack is left
            raise
        raise ValueError(f"{of}: it changed while it was read; give a copy of it") from error


def _items(value: Mapping[K, T], of: str) -> dict[K, T]:
    if is_a(value, dict):
        return dict(dict.items(value))
    if not issubclass(type(value), Mapping):
        raise TypeError(f"{of}, not {shown(value)}")
    return dict(value)


def iterable(value: Iterable[T], of: str) -> Iterable[T]:
    """Returns the value. Raises TypeError unless it is iterable."""
    try:
        iter(value)
    except TypeError as error:
        raise TypeError(f"{of} must be iterable, e.g. a list, not {shown(value)}") from error
    return value


def one_of(value: Any, of: str, choices: Sequence[W]) -> W:
    """Returns the word among `choices` that equals the value.

    Raises:
        ValueError: it is none of them.
    """
    said = exact_types.text(value) if is_a(value, str) else None
    for word in choices:
        if word == said:
            return word
    raise ValueError(f"{of}{shown(value)}: must be one of {', '.join(choices)}")
