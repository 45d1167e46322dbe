"""Classes whose bases have type variables: a variable stands for one thing to whoever reads the
whole of a state, and has to stand for the same to an edit that sees a part of it."""

from __future__ import annotations

import dataclasses
import random
import types
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

import msgspec
import pydantic
import typing_extensions
from typing_extensions import TypedDict

from tests.shapes.generate import A_DICT, A_LIST
from tests.shapes.leaves import Make

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
Constrained = TypeVar("Constrained", int, str)
Bounded = TypeVar("Bounded", bound=int)
Defaulted = typing_extensions.TypeVar("Defaulted", default=dict[str, int])

A_GENERIC: Any = Generic  # of variables that no type checker could know

Finish = Callable[[Any], Any]
"""What makes a class of its family of one with annotations."""


@dataclasses.dataclass
class Rows(Generic[T]):
    rows: list[T]


@pydantic.dataclasses.dataclass(config={"arbitrary_types_allowed": True})
class CheckedRows(Generic[T]):
    rows: list[T]


class ModelRows(pydantic.BaseModel, Generic[T]):
    model_config = {"arbitrary_types_allowed": True}
    rows: list[T]


class StructRows(msgspec.Struct, Generic[T]):
    rows: list[T]


class DictRows(TypedDict, Generic[T]):
    rows: list[T]


def _as_it_is(cls: Any) -> Any:
    return cls


FAMILIES: tuple[tuple[Any, Finish], ...] = (
    (Rows, dataclasses.dataclass),
    (Rows, dataclasses.dataclass(kw_only=True, frozen=False)),
    (CheckedRows, pydantic.dataclasses.dataclass(config={"arbitrary_types_allowed": True})),
    (ModelRows, _as_it_is),
    (StructRows, _as_it_is),
    (DictRows, _as_it_is),
)

UNNAMED: tuple[tuple[Any, Make], ...] = (
    (Constrained, lambda rng: rng.choice((1, "x"))),
    (Bounded, lambda rng: rng.randrange(9)),
    (Defaulted, lambda rng: {"a": rng.randrange(9)}),
)
"""Variables that nobody gives a type for, and what they take."""


def inherited(
    rng: random.Random, name: str, one: tuple[Any, Make], other: tuple[Any, Make]
) -> tuple[Any, Make]:
    """Returns a class that derives from a generic one, over one or two steps, and what makes its
    values: `one` and `other` are what its variables stand for."""
    base, finish = rng.choice(FAMILIES)
    (kind, make), (second, make_second) = one, other

    def derived(of: tuple[Any, ...], **fields: Any) -> Any:
        def fill(body: dict[str, Any]) -> None:
            body |= {"__module__": __name__, "__annotations__": fields}

        return finish(types.new_class(name, of, {}, fill))

    how = rng.choice(("once", "twice", "swapped", "anew", "unnamed"))
    more: Make | None = None
    if how == "once":
        cls, row = derived((base[kind],)), make
    elif how == "twice":
        between = derived((base[A_LIST[T]], A_GENERIC[T]), more=T)
        cls, row, more = derived((between[kind],)), lambda rng: [make(rng)], make
    elif how == "swapped":
        between = derived((base[V], A_GENERIC[K, V]), more=A_DICT[str, K])
        cls, row = derived((between[second, kind],)), make
        more = lambda rng: {"k": make_second(rng)}  # noqa: E731
    elif how == "anew":  # the variable of the derived class has the name of that of its base
        between = derived((base[A_DICT[str, T]], A_GENERIC[T]), more=A_LIST[T])
        cls, row = between[kind], lambda rng: {"k": make(rng)}
        cls, more = derived((cls,)), lambda rng: [make(rng)]
    else:
        variable, row = rng.choice(UNNAMED)
        cls = derived((derived((base[variable], A_GENERIC[variable])),))

    def value(rng: random.Random) -> Any:
        given: dict[str, Any] = {"rows": [row(rng) for _ in range(rng.randrange(3))]}
        if more is not None:
            given["more"] = more(rng)
        return _made(cls, given)

    return cls, value


def applied(rng: random.Random, one: tuple[Any, Make]) -> tuple[Any, Make]:
    """Returns a generic class as it is, with a type for its variable or without."""
    base, _ = rng.choice(FAMILIES)
    kind, make = one
    cls = base[kind]
    return cls, lambda rng: _made(cls, {"rows": [make(rng) for _ in range(rng.randrange(3))]})


def _made(cls: Any, given: dict[str, Any]) -> Any:
    """Returns an instance that has just that: nothing is checked or converted."""
    origin = getattr(cls, "__origin__", cls)
    if hasattr(origin, "model_construct"):
        return origin.model_construct(**given)
    if not dataclasses.is_dataclass(origin):
        return origin(**given)
    made: Any = object.__new__(cast("type", origin))
    for name, item in given.items():
        object.__setattr__(made, name, item)
    return made
