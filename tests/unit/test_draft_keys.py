"""Keys of dicts in a draft, set one by one: they are of the type that the schema says."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pytest
from pydantic import BaseModel, Field

import perdure
from perdure.errors import SchemaError

DAY, ID = dt.date(2026, 8, 12), UUID(int=5)


class Colour(Enum):
    RED = "red"


class Model(BaseModel):
    numbers: dict[int, str] = {}
    days: dict[dt.date, str] = {}
    amounts: dict[Decimal, str] = {}
    floats: dict[float, str] = {}
    long: dict[Annotated[str, Field(min_length=3)], str] = {}
    lists: dict[int, list[str]] = {}
    either: dict[int | str, str] = {}


@dataclass
class Data:
    numbers: dict[int, str] = field(default_factory=dict)
    days: dict[dt.date, str] = field(default_factory=dict)
    ids: dict[UUID, str] = field(default_factory=dict)
    floats: dict[float, str] = field(default_factory=dict)
    colours: dict[Colour, str] = field(default_factory=dict)
    words: dict[Literal["yes", "no"], str] = field(default_factory=dict)
    free: dict[Any, str] = field(default_factory=dict)


class Packed(msgspec.Struct):
    days: dict[dt.date, str] = {}
    ids: dict[UUID, str] = {}


def edited(type_: Any, *acts: Callable[[Any], object]) -> Any:
    """The live state after an edit for each act; the log and a rehydration agree with it."""
    with perdure.open("memory://") as store:
        agent = store.agent("a", type_)
        for act in acts:
            agent.update(act)
            assert repr(store.agent("a", type_).state) == repr(agent.state)
            assert agent.drift() == []
        return agent.state


def test_a_text_for_a_number_is_that_number() -> None:
    """A text went into the log as a key where the type says int.

    ``q["5"]`` and ``q[5]`` were two keys, live and in the log; a rehydration made one of them, and
    the first value was gone without a word. Later an edit of that key was refused as drift.
    """

    def act(draft: Any) -> None:
        draft.numbers["5"] = "first"
        draft.numbers[5] = "second"
        draft.numbers.update({"6": "six"})
        draft.numbers.setdefault("6", "seven")
        draft.lists.setdefault("7", []).append("x")
        assert list(draft.numbers) == [5, 6] and "5" in draft.numbers
        assert draft.numbers["6"] == draft.numbers.get(6) == "six"

    found = edited(Model, act, lambda draft: draft.lists[7].append("y"))
    assert found.numbers == {5: "second", 6: "six"} and found.lists == {7: ["x", "y"]}


@pytest.mark.parametrize(
    ("type_", "name", "given", "key"),
    [
        (Model, "days", "2026-08-12", DAY),
        (Data, "days", "2026-08-12", DAY),
        (Packed, "days", "2026-08-12", DAY),
        (Data, "ids", str(ID), ID),
        (Packed, "ids", str(ID), ID),
        (Model, "amounts", "1.50", Decimal("1.50")),
        (Model, "floats", 1, 1.0),
        (Data, "floats", 1, 1.0),
        (Data, "colours", "red", Colour.RED),
        (Data, "colours", Colour.RED, Colour.RED),
        (Data, "words", "yes", "yes"),
    ],
)
def test_what_the_library_takes_for_a_key(type_: Any, name: str, given: Any, key: Any) -> None:
    found = getattr(edited(type_, lambda draft: getattr(draft, name).update({given: "x"})), name)
    assert list(map(repr, found)) == [repr(key)]
    found = edited(
        type_,
        lambda draft: getattr(draft, name).update({given: "x"}),
        lambda draft: getattr(draft, name).update({key: "y"}),
        lambda draft: getattr(draft, name).pop(given),
    )
    assert getattr(found, name) == {}


@pytest.mark.parametrize(
    ("type_", "name", "given"),
    [
        (Model, "numbers", "five"),
        (Data, "numbers", "5"),
        (Model, "long", "ab"),
        (Data, "colours", "blue"),
        (Data, "words", "maybe"),
        (Data, "days", "tomorrow"),
    ],
)
def test_a_key_that_does_not_fit_is_refused_at_once(type_: Any, name: str, given: str) -> None:
    def act(draft: Any) -> None:
        with pytest.raises(SchemaError, match=rf"state\.{name}"):
            getattr(draft, name)[given] = "x"
        assert given not in getattr(draft, name)
        assert getattr(draft, name).pop(given, "none") == "none"

    edited(type_, act)


def test_where_a_type_takes_both_they_are_two_keys() -> None:
    both = {"5": "a", 5: "b"}
    assert edited(Model, lambda draft: draft.either.update(both)).either == both
    assert edited(Data, lambda draft: draft.free.update(both)).free == both
