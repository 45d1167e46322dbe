"""Shapes of set members and dict keys: values with a hash, in tuples, frozensets and each other."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

import msgspec
import pydantic

from tests.shapes.generate import A_NAMED_TUPLE, A_TUPLE, META, Generator, Shape
from tests.shapes.leaves import MEMBERS, Make, Rights, _of
from tests.shapes.wider import BESIDE, Word


@dataclasses.dataclass(frozen=True)
class Spot:
    x: int
    y: str = "y"


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    x: int


class FrozenModel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    x: int


class FrozenStruct(msgspec.Struct, frozen=True):
    x: int


class Named(NamedTuple):
    x: int
    y: str = "y"


class Holding(NamedTuple):
    spot: Spot
    x: int = 0


KEPT: list[tuple[Any, Make]] = [
    *MEMBERS,
    (Named, _of(Named(1), Named(2, "z"))),
    (Word, _of(*Word)),
    (Rights, _of(Rights.READ)),
]

WITH_FIELDS: list[tuple[Any, Make]] = [
    (Spot, _of(Spot(1), Spot(2, "z"))),
    (Slotted, _of(Slotted(1))),
    (FrozenModel, _of(FrozenModel(x=1), FrozenModel(x=2))),
    (FrozenStruct, _of(FrozenStruct(1))),
    (Holding, _of(Holding(Spot(1)))),
]


BESIDE_MEMBERS = [one for one in BESIDE if "[" not in str(one[0]) and "None" not in str(one[0])]


class Hashable(Generator):
    """A set or dict, of members or keys that have a hash.

    Attributes:
        fields: an object with fields is in one of them, whose plain form is a dict.
        beside: an Enum is declared beside the type of its values, so that it may be refused.
    """

    def shape(self) -> Shape:
        self.fields = self.beside = False
        kind, make = self._member(0)
        role: Any = self.rng.choice((set, frozenset, AbstractSet, dict, Mapping))
        keyed = role in (dict, Mapping)
        if keyed and kind is bool:
            kind, make = int, _of(1, 2)  # no key of a dict, as True and 1 would be one
        if keyed:
            keys = {make(self.rng): 1 for _ in range(2)}
            return self._held(role[kind, int], keys)
        made = set if role is set else frozenset
        return self._held(role[kind], made(make(self.rng) for _ in range(2)))

    def _held(self, kind: Any, value: Any) -> Shape:
        """As it is, or the field of a class."""
        how = self.rng.randrange(4)
        cls: Any
        if how == 0:
            cls = dataclasses.make_dataclass(self._name(), [("held", kind)])
        elif how == 1:
            config = pydantic.ConfigDict(arbitrary_types_allowed=True)
            body = {
                "__module__": __name__,
                "__annotations__": {"held": kind},
                "model_config": config,
            }
            cls = META(self._name(), (pydantic.BaseModel,), body)
        elif how == 2:
            cls = msgspec.defstruct(self._name(), [("held", kind)])
        else:
            return Shape(kind, value, False)
        return Shape(cls, cls(held=value), False)

    def _member(self, depth: int) -> tuple[Any, Make]:
        if depth > 2 or self._chance(0.3):
            if self._chance(0.4):
                self.fields = True
                return self.rng.choice(WITH_FIELDS)
            if self._chance(0.2):
                self.beside = True
                return self.rng.choice(BESIDE_MEMBERS)
            return self.rng.choice(KEPT)
        kind, make = self._member(depth + 1)
        how = self.rng.randrange(5)
        if how == 0:
            return A_TUPLE[kind, ...], lambda rng: tuple(make(rng) for _ in range(1, 3))
        if how == 1:
            other, make_other = self._member(depth + 1)
            return A_TUPLE[kind, other], lambda rng: (make(rng), make_other(rng))
        if how == 2:
            return frozenset[kind], lambda rng: frozenset([make(rng)])  # type: ignore[valid-type]
        if how == 3:
            pair = A_NAMED_TUPLE(self._name(), [("first", kind), ("second", int)])
            return pair, lambda rng: pair(make(rng), 2)
        return A_TUPLE[kind, int], lambda rng: (make(rng), 5)
