"""Arguments that are neither names nor words, checked where a caller gives them.

What is wrong is refused there, by the argument's name: a number that is no number would only fail
at some commit, in a worker, or where the log is read.
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
    """A duration in seconds.

    Raises:
        TypeError: it is none. ValueError: it is longer than `DURATION_MAX`, or no number.
    """
    if is_a(value, timedelta):
        said = exact_types.span(value).total_seconds()
    else:
        found = _float(value)
        if found is None:
            raise TypeError(f"{of}: {shown(value)} is no duration: give seconds or a timedelta")
        said = found
    if not -_SECONDS_MAX <= said <= _SECONDS_MAX:  # nor is NaN
        raise ValueError(
            f"{of}: {shown(value)} is no time that can be waited for: "
            f"a thousand years ({DURATION_MAX.days:,} days) at most"
        )
    return said


def _float(value: Any) -> float | None:
    """A number as a plain float, infinite where it is too large for one; None: it is none."""
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
    """A number as a plain float; it may be infinite.

    Raises:
        TypeError: it is none. ValueError: it is NaN.
    """
    said = _float(value)
    if said is None:
        raise TypeError(f"{of} is a number, not {shown(value)}")
    if said != said:
        raise ValueError(f"{of} is a number, not {shown(value)}")
    return said


def count(value: int, of: str, *, least: int = 0, most: int = COUNT_MAX) -> int:
    """A whole number as a plain int.

    Raises:
        TypeError: it is none. ValueError: it is outside the bounds.
    """
    if is_a(value, bool) or not is_a(value, int):
        raise TypeError(f"{of} is a whole number, not {shown(value)}")
    said = exact_types.whole(value)
    if not least <= said <= most:
        bounds = f"{least} at least" if said < least else f"{most:,} at most"
        raise ValueError(f"{of}{shown(value)}: must be {bounds}")
    return said


def flag(value: bool, of: str) -> bool:
    """True or False, and nothing that only counts as one of them: it may be recorded, or decide
    what is removed.

    Raises:
        TypeError: it is something else.
    """
    if value is True or value is False:
        return value
    raise TypeError(f"{of} is True or False, not {shown(value)}")


def flags(**given: bool) -> None:
    """Several of them by their names. Raises TypeError as `flag`."""
    for name, value in given.items():
        flag(value, f"{name}=")


def function(value: Callable[..., Any], of: str) -> None:
    """Raises TypeError where it cannot be called."""
    if not callable(value):
        raise TypeError(f"{of} is a function, not {shown(value)}")


def mapping(value: Mapping[K, T], of: str) -> dict[K, T]:
    """A mapping as a plain dict, of what a dict has, whatever a subclass says that it has.

    Raises:
        TypeError: it is none. ValueError: it changed while it was read.
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
    """Raises TypeError where it cannot be gone through."""
    try:
        iter(value)
    except TypeError as error:
        raise TypeError(f"{of} can be gone through, e.g. a list, not {shown(value)}") from error
    return value


def one_of(value: Any, of: str, choices: Sequence[W]) -> W:
    """One of a few words, as it is written among them.

    Raises:
        ValueError: it is none.
    """
    said = exact_types.text(value) if is_a(value, str) else None
    for word in choices:
        if word == said:
            return word
    raise ValueError(f"{of}{shown(value)}: must be one of {', '.join(choices)}")
