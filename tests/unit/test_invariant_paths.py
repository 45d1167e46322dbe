"""Invariants are of places that the state's type has."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Any

import pytest

from perdure.core.schema.schema import Ephemeral, Schema, invariant, transitions
from perdure.errors import SchemaError


@dataclass
class Delivery:
    status: str = "new"
    when: dt.datetime | None = None


@dataclass
class Pickup:
    name: str = ""


@dataclass
class Shop:
    first: Delivery = field(default_factory=Delivery)
    last: Delivery | None = None
    either: Delivery | Pickup | None = None
    all: list[Delivery] = field(default_factory=list)
    pair: tuple[str, Delivery] = field(default_factory=lambda: ("", Delivery()))
    rest: tuple[Delivery, ...] = ()
    free: dict[str, Any] = field(default_factory=dict)
    cache: Ephemeral[int] = 0


WRONG = ("first.statu", "last.statu", "either.statu", "all[-1].statu", "pair[-1].statu")
WRONG_TOO = ("rest[-1].x", "pair[7]", "cache", "shop")


@pytest.mark.parametrize("path", [*WRONG, *WRONG_TOO])
def test_an_invariant_of_a_field_that_there_is_not_is_refused(path: str) -> None:
    """`transitions("statu", …)` was taken without a word, and forbade nothing."""
    for one in (transitions(path, {"new": ["sent"]}), invariant(path)(lambda after: True)):
        with pytest.raises(SchemaError, match="limited to a field that there is not"):
            Schema(Shop, invariants=[one]).build({})


def test_an_invariant_may_be_of_any_place_that_a_state_can_have() -> None:
    paths = ["first.status", "last.status", "either.status", "either.name", "all[-1].status"]
    paths += ["all[3]", "pair[-1].status", "rest[-1].status", "free.a[3].b", "first.when.year", ""]
    one = invariant(*paths)(lambda after: True)
    assert Schema(Shop, invariants=[one]).build({}) == Shop()
