"""Arguments that are neither names nor words, checked where a caller gives them.

What is wrong is refused there, by the argument's name: a number that is no number would only fail
at some commit, in a worker, or where the log is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from numbers import Real
from typing import Any, TypeVar

from perdure.core.bounds import DURATION_MAX
from perdure.core.names import shown

T = TypeVar("T")
Seconds = float | timedelta
COUNT_MAX = 2**62
_SECONDS_MAX = DURATION_MAX.total_seconds()


def seconds(value: Seconds, of: str = "a duration") -> float:
    """A duration in seconds.

    Raises:
        TypeError: it is none. ValueError: it is longer than `DURATION_MAX`, or no number.
    """
    if isinstance(value, timedelta):
        said = value.total_seconds()
    else:
        if not _is_number(value):
            raise TypeError(f"{of}: {shown(value)} is no duration: give seconds or a timedelta")
        try:
            said = float(value)
        except OverflowError:
            said = _SECONDS_MAX * 2
    if not -_SECONDS_MAX <= said <= _SECONDS_MAX:  # nor is NaN
        raise ValueError(
            f"{of}: {shown(value)} is no time that can be waited for: "
            f"a thousand years ({DURATION_MAX.days:,} days) at most"
        )
    return said


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def number(value: float, of: str) -> float:
    """A number as a plain float; it may be infinite.

    Raises:
        TypeError: it is none. ValueError: it is NaN.
    """
    if not _is_number(value):
        raise TypeError(f"{of} is a number, not {shown(value)}")
    try:
        said = float(value)
    except OverflowError:
        said = float("inf") if value > 0 else float("-inf")
    if said != said:
        raise ValueError(f"{of} is a number, not {shown(value)}")
    return said


def count(value: int, of: str, *, least: int = 0, most: int = COUNT_MAX) -> int:
    """A whole number as a plain int.

    Raises:
        TypeError: it is none. ValueError: it is outside the bounds.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{of} is a whole number, not {shown(value)}")
    if not least <= value <= most:
        bounds = f"{least} at least" if value < least else f"{most:,} at most"
        raise ValueError(f"{of}{shown(value)}: must be {bounds}")
    return int(value)


def flag(value: bool, of: str) -> bool:
    """True or False, and nothing that only counts as one of them: it may be recorded, or decide
    what is removed.

    Raises:
        TypeError: it is something else.
    """
    if value is True or value is False:
        return value
    raise TypeError(f"{of} is True or False, not {shown(value)}")


def function(value: Callable[..., Any], of: str) -> None:
    """Raises TypeError where it cannot be called."""
    if not callable(value):
        raise TypeError(f"{of} is a function, not {shown(value)}")


def iterable(value: Iterable[T], of: str) -> Iterable[T]:
    """Raises TypeError where it cannot be gone through."""
    try:
        iter(value)
    except TypeError as error:
        raise TypeError(f"{of} can be gone through, e.g. a list, not {shown(value)}") from error
    return value


def one_of(value: str, of: str, choices: Sequence[str]) -> None:
    """Refuse what is none of a few words.

    Raises:
        ValueError: it is none.
    """
    given: Any = value
    if not isinstance(given, str) or given not in choices:
        raise ValueError(f"{of}{shown(value)}: must be one of {', '.join(choices)}")
