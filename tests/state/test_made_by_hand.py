"""Dataclasses whose own code runs where an instance is made: edits ask what readers ask (I12)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import perdure
from perdure.errors import SchemaError


@dataclass
class Card:
    number: str = ""


@dataclass
class Cash:
    till: int = 0


@dataclass
class BySetattr:
    cents: int = 0
    paid: Card | Cash | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "cents" and value > 1000:
            raise ValueError("too much")
        object.__setattr__(self, name, value)


@dataclass
class ByParent(BySetattr):
    name: str = ""


@dataclass(init=False)
class ByInit:
    cents: int = 0
    paid: Card | Cash | None = None

    def __init__(self, cents: int = 0, paid: Card | Cash | None = None) -> None:
        if cents > 1000:
            raise ValueError("too much")
        self.cents, self.paid = cents, paid


@dataclass
class ByNew:
    cents: int = 0
    paid: Card | Cash | None = None

    def __new__(cls, cents: int = 0, paid: Card | Cash | None = None) -> ByNew:
        if cents > 1000:
            raise ValueError("too much")
        return object.__new__(cls)


@pytest.mark.parametrize("cls", [BySetattr, ByParent, ByInit, ByNew])
def test_i12_what_making_an_instance_refuses_is_refused_beside_a_union(cls: Any) -> None:
    """An account judged its balance in `__setattr__`, and had a field of two classes. An edit
    overdrew it: the commit was acknowledged, and nobody could read the agent any more, nor take it
    back."""
    with perdure.open("memory://") as store:
        agent = store.agent("x", dict[str, cls], initial={"a": cls(5, Cash(1))})
        agent.checkpoint("made")
        with pytest.raises(SchemaError, match="too much"), agent.edit("more") as draft:
            perdure.increment(draft["a"], "cents", 5000)
        with agent.edit("less") as draft:
            draft["a"].cents = 7
            draft["a"].paid = Card("x")
        assert agent.state == store.agent("x", dict[str, cls]).state == {"a": cls(7, Card("x"))}
        assert agent.drift() == []
