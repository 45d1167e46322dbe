"""Types without fields, each with values of it: scalars, Enums, containers' members."""

from __future__ import annotations

import datetime as dt
import enum
import ipaddress
import random
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo

Make = Callable[[random.Random], Any]


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mood(enum.StrEnum):
    GOOD = "good"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Text(str):
    """A subclass of a plain type, which is no plain value."""


def _of(*values: Any) -> Make:
    return lambda rng: rng.choice(values)


_DATETIMES = (
    dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
    dt.datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Vienna"), fold=1),
    dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.timezone(dt.timedelta(hours=1), "CET")),
    dt.datetime(1, 1, 1, tzinfo=dt.timezone(-dt.timedelta(minutes=90))),
)

SCALARS: list[tuple[Any, Make]] = [
    (int, _of(0, -1, 2**63, 2**64, -(2**70))),
    (float, _of(0.0, -0.0, 1.5, float("nan"), float("inf"), 1e300)),
    (bool, _of(True, False)),
    (str, _of("", "a", "2026-01-01", "1", "red", "é\0", "\ud800", "null")),
    (bytes, _of(b"", b"\xff\0")),
    (Decimal, _of(Decimal("1.10"), Decimal("-0E+3"), Decimal(5))),
    (UUID, _of(UUID(int=7))),
    (dt.datetime, _of(*_DATETIMES)),
    (dt.date, _of(dt.date(2026, 1, 2), dt.date.min)),
    (dt.time, _of(dt.time(1, 2, 3, 4), dt.time(1, tzinfo=dt.UTC), dt.time(2, 30, fold=1))),
    (dt.timedelta, _of(dt.timedelta(0), dt.timedelta(days=-1, microseconds=1))),
    (Color, _of(*Color)),
    (Level, _of(*Level)),
    (Mood, _of(*Mood)),
    (Rights, _of(Rights.READ, Rights.READ | Rights.WRITE, Rights(0))),
    (Literal["a", "b"], _of("a", "b")),
    (Literal[1, "one", None], _of(1, "one", None)),
    (PurePosixPath, _of(PurePosixPath("a/b"))),
    (complex, _of(complex(1, -0.0), complex(-0.0, 2))),
    (Fraction, _of(Fraction(1, 3))),
    (ipaddress.IPv4Address, _of(ipaddress.IPv4Address("10.0.0.1"))),
    (Any, _of(1, "x", None, [1, (2, {"a": {3}})], {"k": (1,)}, 1.0, b"x")),
    (type(None), _of(None)),
]

MEMBERS = [one for one in SCALARS if one[0] in (int, str, bool, bytes, Color, Level, Mood, UUID)]

OTHERS: list[Any] = [
    (1, 2),
    [1],
    {1},
    frozenset({1}),
    {"a": 1},
    1,
    1.0,
    True,
    "1",
    "red",
    "a",
    None,
    Color.RED,
    Level.LOW,
    Mood.GOOD,
    Text("a"),
    2**53 + 1,
    dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    dt.date(2026, 1, 1),
    Decimal("1.0"),
    b"a",
    object,
    complex(1),
    PurePosixPath("a"),
    bytearray(b"a"),
]
"""What may be put where something else is declared."""
