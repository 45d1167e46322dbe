"""Moments of numpy and pandas as arguments: stand-ins with what these two have."""

from __future__ import annotations

import datetime as dt
from array import array
from typing import TypeVar

from perdure.core.schema.value_digest import digest, is_known

T = TypeVar("T")

hidden: dict[int, object] = {}
"""By the id of a moment: what is in none of its attributes that Python sees."""

kept: list[object] = []
"""The moments that have something hidden: the id of one that is gone may become another's."""


class Scalar(array):
    """As `numpy.datetime64`: its buffer is eight bytes, and its unit stands beside them."""

    __slots__ = ()
    dtype = property(lambda self: hidden[id(self)])


class Stamp(dt.datetime):
    """As `pandas.Timestamp`."""

    __slots__ = ()
    nanosecond = property(lambda self: hidden.get(id(self), 0))


class Span(dt.timedelta):
    """As `pandas.Timedelta`."""

    __slots__ = ()
    nanoseconds = property(lambda self: hidden.get(id(self), 0))


def hiding(made: T, what: object) -> T:
    hidden[id(made)] = what
    kept.append(made)
    return made


def scalar(number: int, unit: str) -> Scalar:
    return hiding(Scalar("B", number.to_bytes(8, "little")), unit)


def stamp(nanosecond: int) -> Stamp:
    return hiding(Stamp(2024, 1, 1), nanosecond)


def span(nanoseconds: int) -> Span:
    return hiding(Span(seconds=1), nanoseconds)


def test_moments_that_differ_only_in_what_pythons_own_lack_are_told_apart() -> None:
    """A call with `numpy.datetime64(1, "s")` was taken for one with `datetime64(1, "ns")`, and
    pandas' moments for those of the same microsecond: on replay, the outcome of the other call was
    returned."""
    for one, other in (
        (scalar(1, "datetime64[s]"), scalar(1, "datetime64[ns]")),
        (scalar(1, "timedelta64[s]"), scalar(1, "datetime64[s]")),
        (stamp(1), stamp(2)),
        (span(1), span(2)),
    ):
        assert is_known(digest(one)) and is_known(digest(other))
        assert digest(one) != digest(other)


def test_equal_moments_stay_equal() -> None:
    assert digest(scalar(1, "datetime64[s]")) == digest(scalar(1, "datetime64[s]"))
    assert digest(stamp(1)) == digest(stamp(1))
    assert digest(stamp(0)) == digest(Stamp(2024, 1, 1))
