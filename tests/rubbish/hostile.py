"""Objects that raise, lie, or are another thing at each look: what they say they are when they are
checked is not what they are when they are written.

Each is made anew for each call. What is refused of them is refused; what is taken must be what was
checked, so that all can still be read.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import itertools
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

from pydantic import BaseModel, field_validator


class HostileError(Exception):
    """What the caller's own objects raise: it may come out of a call as it is."""


class EndlessError(BaseException):
    """Somebody went on and on through what never ends."""


class WordlessError(ValueError):
    """A caller's error that cannot be shown."""

    def __str__(self) -> str:
        raise HostileError("no words")

    __repr__ = __str__


_numbers = itertools.count()
ENDLESS = 20_000
BIG = "x" * 10_000_000


def _raises(*_: Any, **__: Any) -> Any:
    raise HostileError("on purpose")


def hostile(*names: str, base: type = object, args: tuple[Any, ...] = ()) -> Any:
    """One whose methods of these names raise."""
    return type("Hostile", (base,), dict.fromkeys(names, _raises))(*args)


def _changing(*answers: Any) -> Callable[..., Any]:
    """A method that answers in turn, and raises or says the last in the end."""
    left = list(answers)

    def answer(*_: Any, **__: Any) -> Any:
        said = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(said, BaseException):
            raise said
        return said

    return answer


def _of(base: type, args: tuple[Any, ...] = (), **methods: Any) -> Any:
    return type(f"Lying{base.__name__.title()}", (base,), methods)(*args)


_TEXT_METHODS = (
    "__str__", "__repr__", "__format__", "__len__", "__iter__", "__eq__", "__ne__", "__contains__",
    "__getitem__", "__add__", "__bool__", "encode", "isascii", "strip", "startswith", "endswith",
    "removeprefix", "split", "partition", "rpartition", "lower", "replace", "isidentifier", "join",
)  # a table, read by its rows  # fmt: skip
_NUMBER_METHODS = (
    "__int__", "__index__", "__float__", "__eq__", "__lt__", "__le__", "__gt__", "__ge__",
    "__add__", "__sub__", "__mul__", "__neg__", "__bool__", "__str__", "__repr__", "__format__",
    "to_bytes", "bit_length",
)  # a table, read by its rows  # fmt: skip
_TABLE_METHODS = ("__iter__", "__len__", "__getitem__", "__contains__", "keys", "items", "values")
_SPAN_METHODS = ("total_seconds", "__lt__", "__le__", "__add__", "__radd__", "__str__", "__repr__")


def _number(base: type, said: Any) -> Any:
    """It is 3, passes every comparison, and is something else where it is used."""
    methods: dict[str, Any] = dict.fromkeys(
        ("__lt__", "__le__", "__gt__", "__ge__", "__eq__"), lambda *_: True
    )
    methods |= dict.fromkeys(("__int__", "__index__", "__float__"), lambda _: said)
    return type("LyingNumber", (base,), methods | {"__hash__": base.__hash__})(3)


class Wandering(dict[str, Any]):
    """Has other items at each look."""

    def items(self) -> Any:
        self[str(len(self))] = object()
        return dict(self).items()

    keys = __iter__ = lambda self: iter([str(next(_numbers))])  # type: ignore[assignment]


class Growing(list[Any]):
    """One more each time that somebody goes through it."""

    def __iter__(self) -> Any:
        self.append(object())
        return iter(list(self))


class Biting(str):
    """Equal to everything, and hashes to something else each time."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return next(_numbers)


class Masked:
    """Says that it is of another class."""

    def __init__(self, kind: Any) -> None:
        self.__dict__["kind"] = kind

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return _raises() if self.__dict__["kind"] is None else self.__dict__["kind"]


class Zone(dt.tzinfo):
    """Another offset at each look."""

    def utcoffset(self, _: Any) -> Any:
        return dt.timedelta(hours=next(_numbers) % 24)

    def dst(self, _: Any) -> Any:
        return _raises()

    def tzname(self, _: Any) -> Any:
        return "\ud800"


class Model(BaseModel):
    """A schema whose validator raises."""

    n: int = 0

    @field_validator("n")
    @classmethod
    def _check(cls, value: int) -> int:
        raise HostileError("a validator")


@dataclasses.dataclass
class Bursting:
    n: int = 0

    def __post_init__(self) -> None:
        raise HostileError("it cannot be made")


def _endless() -> Iterator[str]:
    yield from itertools.repeat("t", ENDLESS)
    raise EndlessError


def _mutating_key() -> Any:
    """A dict that changes while its keys are hashed."""
    made: dict[Any, Any] = {}

    class Key(tuple):
        def __hash__(self) -> int:
            made[str(next(_numbers))] = 1
            return 1

    made[Key(("a",))] = 1
    return made


def _named(name: Any, **more: Any) -> Any:
    def function(*_: Any, **__: Any) -> Any:
        return 1

    for attribute, value in ({"__name__": name, "__qualname__": name} | more).items():
        try:
            setattr(function, attribute, value)
        except TypeError:
            function.__dict__[attribute] = value
    return function


def _wrapped_in_itself() -> Any:
    function = _named("w")
    function.__wrapped__ = function
    return function


def _wordless(*_: Any, **__: Any) -> Any:
    raise WordlessError


def _raising(error: BaseException) -> Callable[..., Any]:
    def function(*_: Any, **__: Any) -> Any:
        raise error

    return function


class Calling:
    """A callable that is no function, and has none of its attributes."""

    __slots__ = ()

    def __call__(self, *_: Any, **__: Any) -> Any:
        return object()


MAKERS: tuple[Callable[[], Any], ...] = (
    *(functools.partial(hostile, name, base=str, args=("x",)) for name in _TEXT_METHODS),
    *(functools.partial(hostile, name, base=int, args=(3,)) for name in _NUMBER_METHODS),
    *(functools.partial(hostile, name, base=float, args=(3.0,)) for name in _NUMBER_METHODS[:10]),
    *(functools.partial(hostile, name, base=dict, args=({"a": 1},)) for name in _TABLE_METHODS),
    *(functools.partial(hostile, name, base=list, args=(["a"],)) for name in _TABLE_METHODS[:4]),
    *(functools.partial(hostile, name, base=tuple, args=(["a"],)) for name in _TABLE_METHODS[:4]),
    *(functools.partial(hostile, name, base=dt.timedelta) for name in _SPAN_METHODS),
    lambda: hostile("__hash__", base=str, args=("x",)),
    lambda: hostile("__eq__", "__hash__", base=bytes, args=(b"x",)),
    lambda: hostile("__eq__", "__hash__", "__str__", base=Decimal, args=(1,)),
    lambda: hostile("__add__", "__sub__", "isoformat", "timestamp", "astimezone", "utcoffset",
                    base=dt.datetime, args=(2024, 1, 1, 0, 0, 0, 0, dt.UTC)),
    # They lie.
    lambda: _of(str, ("x",), __str__=lambda _: "\ud800", __len__=lambda _: 1),
    lambda: _of(str, ("\ud800",), isascii=lambda _: True, encode=lambda *_: b"x"),
    lambda: _of(str, ("a\0b",), __contains__=lambda *_: False),
    lambda: _of(str, ("y" * 20_000,), __len__=lambda _: 3),
    lambda: _of(str, ("",), __bool__=lambda _: True, __len__=lambda _: 3),
    lambda: _of(str, ("x",), __str__=_changing("x", "a\0b", "\ud800")),
    lambda: Biting("main"), lambda: Biting("\ud800"),
    lambda: _number(int, -1), lambda: _number(int, 10**30), lambda: _number(float, float("nan")),
    lambda: _number(float, -1e300), lambda: _number(int, "no number"),
    lambda: _of(dt.timedelta, (1,), total_seconds=lambda _: float("nan")),
    lambda: _of(dt.timedelta, (1,), total_seconds=lambda _: "x"),
    lambda: _of(dt.timedelta, (1,), total_seconds=_changing(1.0, -1e300)),
    lambda: _of(dt.datetime, (2024, 1, 1), tzinfo=dt.UTC, utcoffset=lambda _: dt.timedelta(0)),
    lambda: dt.datetime(2024, 1, 1, tzinfo=Zone()), lambda: dt.time(1, tzinfo=Zone()),
    lambda: _of(int, (3,), __bool__=_changing(True, False)),
    lambda: _of(dict, ({"a": 1},), keys=lambda _: iter([1, None]), __getitem__=lambda *_: object()),
    lambda: _of(list, (["a"],), __len__=lambda _: 0), lambda: _of(list, ([],), __len__=lambda _: 9),
    lambda: Wandering(a=1), lambda: Growing(["a"]), _mutating_key, _endless,
    lambda: {"a": Growing([1])}, lambda: {"a": [Wandering()]}, lambda: {Biting("a"): 1, "b": 2},
    lambda: {"k": _number(int, 10**30)}, lambda: [Biting("a")], lambda: (Biting("a"),),
    *(functools.partial(Masked, kind) for kind in (
        None, str, int, bool, float, list, dict, tuple, dt.timedelta, dt.datetime, type, property,
        BaseException, Exception, 5)),
    # Sizes.
    lambda: BIG, lambda: {"a": BIG}, lambda: BIG.encode(), lambda: 10**5000,
    lambda: -(10**5000), lambda: {"n": 10**5000}, lambda: Decimal("1e-999999"),
    lambda: Decimal("9" * 5000), lambda: {"x" * 20_000: 1}, lambda: [[]] * 5, lambda: ["\0"],
    lambda: {"\0": "\0"}, lambda: {"a": float("nan")}, lambda: list(range(20_000)),
    # Functions and classes.
    lambda: _named(""), lambda: _named("a\0b"), lambda: _named("\ud800"), lambda: _named("x" * 500),
    lambda: _named("w", __annotations__={"return": "Missing", "n": object()}),
    lambda: _named("w", __signature__="no"), lambda: _named("w", __wrapped__=5),
    lambda: _named("w", __module__=5), lambda: _named("w", __doc__=5), _wrapped_in_itself,
    Calling, lambda: functools.partial(_named("p"), 1), lambda: functools.partial(BIG.upper),
    lambda: _wordless, lambda: _raising(KeyError("\ud800")),
    lambda: _raising(SystemError(object())),
    lambda: _raising(ExceptionGroup("g", [ValueError("\ud800"), WordlessError()])),
    lambda: _raising(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "\ud800")),
    lambda: _raising(StopIteration(5)), lambda: WordlessError(), lambda: WordlessError,
    lambda: (lambda *_, **__: object()), lambda: (lambda *_, **__: BIG), lambda: Model,
    lambda: Model.model_construct(n=object()), lambda: Bursting, lambda: Bursting.__new__(Bursting),
    lambda: list["Missing"], lambda: dict[str, Any], lambda: type("\ud800"[:0] + "K", (), {}),  # type: ignore[name-defined] # noqa: F821
    lambda: staticmethod(_raises), lambda: classmethod(_raises), lambda: property(_raises),
    lambda: functools.singledispatch(_named("s")), lambda: memoryview(b"x"), lambda: type(iter([])),
)  # a table, read by its rows  # fmt: skip
