"""Wrong values of every kind, made anew each time: some of them change, or can be used up."""

from __future__ import annotations

import datetime as dt
import enum
import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any
from uuid import UUID

from tests.rubbish.hostile import MAKERS as HOSTILE
from tests.rubbish.hostile import HostileError, hostile


class Text(str):
    """A framework's own kind of text."""


class Word(enum.StrEnum):
    DONE = "done"


class Level(enum.IntEnum):
    ONE = 1


class Number(int):
    pass


class Table(dict[str, Any]):
    pass


class Row(list[Any]):
    pass


def _cyclic_list() -> Any:
    made: list[Any] = []
    made.append(made)
    return made


def _cyclic_dict() -> Any:
    made: dict[str, Any] = {}
    made["self"] = made
    return made


def _deep(levels: int) -> Any:
    made: Any = 1
    for _ in range(levels):
        made = [made]
    return made


def _letters() -> Iterator[str]:
    yield from "ab"


def _used_up() -> Iterator[Any]:
    yield "a"
    raise HostileError("in the middle")


def constant(value: Any) -> Callable[[], Any]:
    return lambda: value


UTC = dt.UTC
_CONSTANTS: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    7,
    2**31,
    2**53 + 1,
    2**62,
    2**63,
    2**64,
    2**70,
    -(2**70),
    10**400,
    0.0,
    -0.0,
    0.5,
    -1.5,
    3600.0,
    math.nan,
    math.inf,
    -math.inf,
    1e13,
    1e300,
    5e-324,
    "",
    " ",
    "x",
    "0",
    "1",
    "-1",
    "3",
    "\0",
    "a\0b",
    "\ud800",
    "a\udfffb",
    "\x1a",
    "x" * 201,
    "x" * 10_001,
    "é" * 200,
    "\U0001f600" * 200,
    "/" * 200,
    "2024-01-01T00:00:00+00:00",
    "@retention",
    "main",
    "cp",
    "side",
    "a/b~c%",
    "child:x",
    "\x1b]0;title\x07",
    "--",
    "../x",
    b"",
    b"x",
    Text("sub"),
    Text("\ud800"),
    Word.DONE,
    Level.ONE,
    Number(3),
    1 + 2j,
    (),
    (None,),
    ("a", 1),
    frozenset(),
    frozenset({1}),
    Decimal(1),
    Decimal("NaN"),
    Decimal("sNaN"),
    Decimal("Infinity"),
    Decimal("1e999"),
    Fraction(1, 3),
    UUID(int=5),
    dt.timedelta(0),
    dt.timedelta(seconds=1),
    dt.timedelta(days=-1),
    dt.timedelta.max,
    dt.timedelta.min,
    dt.datetime(2024, 1, 1),
    dt.datetime(2024, 1, 1, tzinfo=UTC),
    dt.datetime.min,
    dt.datetime.max,
    dt.datetime.max.replace(tzinfo=UTC),
    dt.datetime.min.replace(tzinfo=UTC),
    dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=-14))),
    dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=14))),
    dt.date(2024, 1, 1),
    dt.time(1, tzinfo=UTC),
    PurePosixPath("x"),
    Ellipsis,
    int,
    str,
    dict,
    object,
    len,
    sorted,
    range(3),
    MappingProxyType({"a": 1}),
    Any,
    int | None,
    ValueError("a value"),
    KeyError,
)

MAKERS: tuple[Callable[[], Any], ...] = (
    *map(constant, _CONSTANTS),
    list,
    dict,
    set,
    object,
    lambda: [None],
    lambda: ["a", None],
    lambda: [1, "a"],
    lambda: [[]],
    lambda: ["x"] * 1001,
    lambda: ["\ud800"],
    lambda: ["x" * 10_001],
    lambda: {"a": 1},
    lambda: {1: 2},
    lambda: {None: 1},
    lambda: {"a": {"b": object()}},
    lambda: {"\ud800": "\ud800"},
    lambda: {Text("k"): Text("v")},
    lambda: {("a", 1): 2},
    lambda: {math.nan: 1},
    lambda: {1},
    lambda: {None},
    lambda: bytearray(b"x"),
    lambda: Table(a=1),
    lambda: Row([1]),
    _cyclic_list,
    _cyclic_dict,
    lambda: _deep(101),
    lambda: _deep(150),
    lambda: _deep(5000),
    _letters,
    _used_up,
    lambda: iter(()),
    lambda: lambda: None,
    lambda: lambda *a, **k: None,
    lambda: lambda *a, **k: 1 / 0,
    lambda: hostile("__repr__").__repr__,
    lambda: hostile("__eq__", "__ne__"),
    lambda: hostile("__hash__"),
    lambda: hostile("__str__", "__repr__", "__format__"),
    lambda: hostile("__bool__"),
    lambda: hostile("__iter__", "__len__", "__contains__"),
    lambda: hostile("__getattr__"),
    lambda: hostile("__getattribute__"),
    lambda: hostile("__call__"),
    lambda: hostile("__index__", "__int__", "__float__"),
    lambda: hostile("__fspath__"),
    lambda: hostile("__enter__", "__aenter__", "__await__"),
    lambda: hostile("__lt__", "__le__", "__gt__", "__ge__", "__add__", "__sub__"),
    lambda: type("EveryAttribute", (), {"__getattr__": lambda self, name: self})(),
    *HOSTILE,
)


HOSTILE_MODULE = "tests.rubbish.hostile"


def shown(value: Any) -> str:
    """For reports: hostile values have no repr."""
    try:
        text = repr(value)
        text = text if type(text) is str else ""
    except BaseException:
        text = ""
    text = text or f"<{type(value).__name__}>"
    if isinstance(type(value), type) and type(value).__module__ == HOSTILE_MODULE:
        text = f"{_bases(value)} {text}"
    return text if len(text) <= 160 else text[:120] + f"… ({len(text)})"


def _bases(value: Any) -> str:
    kind = type(value)
    own = ", ".join(
        name for name in vars(kind) if name not in ("__module__", "__dict__", "__doc__")
    )
    return f"<{kind.__base__.__name__ if kind.__base__ else ''} with {own[:80]}>"
