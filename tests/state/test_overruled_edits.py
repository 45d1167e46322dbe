"""A class must not undo, at each reading, what an edit wrote.

Story: a field was renamed, and a validator looked for the old name in what it was given. What was
stored under the old name stayed there, as a newer program's field does. An edit set the new field,
was committed, and nobody ever saw it: each reading found the old value again.
"""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.dataclasses import dataclass as pydantic_dataclass

import perdure
from perdure import SchemaError, Store


class Line(BaseModel):
    cents: int = 0
    note: str = ""


class Order(BaseModel):
    lines: list[Line] = []
    main: Line = Line()


def from_cents(value: Any) -> Any:
    return {**value, "amount": value["cents"]} if "cents" in value else value


class Renamed(BaseModel):
    amount: int = 0
    note: str = ""

    @model_validator(mode="before")
    @classmethod
    def in_amount(cls, value: Any) -> Any:
        return from_cents(value) if isinstance(value, dict) else value


class OfRenamed(BaseModel):
    lines: list[Renamed] = []
    main: Renamed = Renamed()


class FilledIn(BaseModel):
    """Its validator leaves alone what is there."""

    amount: int = 0
    note: str = ""

    @model_validator(mode="before")
    @classmethod
    def in_amount(cls, value: Any) -> Any:
        there = isinstance(value, dict) and "amount" in value
        return value if there or not isinstance(value, dict) else from_cents(value)


class OfFilledIn(BaseModel):
    lines: list[FilledIn] = []
    main: FilledIn = FilledIn()


class Shown(BaseModel):
    """What it looks at, everybody sees, and may set."""

    model_config = ConfigDict(extra="allow")

    amount: int = 0

    @model_validator(mode="before")
    @classmethod
    def in_amount(cls, value: Any) -> Any:
        return from_cents(value) if isinstance(value, dict) else value


@pydantic_dataclass
class Plain:
    amount: int = 0

    @model_validator(mode="before")
    @classmethod
    def in_amount(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return from_cents(value)
        if value.kwargs and "cents" in value.kwargs:
            value.kwargs["amount"] = value.kwargs["cents"]
        return value


def filled(store: Store) -> None:
    first = Order(lines=[Line(cents=1), Line(cents=2)], main=Line(cents=7))
    store.agent("a", perdure.Schema(Order, id="order"), initial=first).save(first, "placed")
    line = perdure.Schema(Line, id="line")
    store.agent("b", line, initial=Line(cents=7)).save(Line(cents=7), "placed")


@pytest.mark.parametrize("way", ["edit", "save", "update"])
def test_an_edit_that_each_reading_would_undo_is_refused(store: Store, way: str) -> None:
    filled(store)
    agent = store.agent("b", perdure.Schema(Renamed, id="line"))
    with pytest.raises(SchemaError, match=r"state\.amount: is 7 at each reading") as caught:
        if way == "edit":
            with agent.edit("paid") as draft:
                draft.amount = 9
        elif way == "save":
            agent.save(Renamed(amount=9))
        else:
            agent.update(lambda draft: setattr(draft, "amount", 9))
    assert "a validator of Renamed reads 'cents'" in str(caught.value)
    assert "migrations={1: …}" in str(caught.value)
    assert agent.state.amount == 7
    with agent.edit("noted") as draft:
        draft.note = "paid"
    assert agent.refresh() == Renamed(amount=7, note="paid")


def test_so_is_one_deep_inside(store: Store) -> None:
    filled(store)
    agent = store.agent("a", perdure.Schema(OfRenamed, id="order"))
    for path in ("main", "lines"):
        with pytest.raises(SchemaError, match="at each reading"), agent.edit("paid") as draft:
            line = draft.main if path == "main" else draft.lines[1]
            line.amount = 9
    with agent.edit("paid") as draft:
        draft.lines.append(Renamed(amount=9))  # this one has no such key
    assert [line.amount for line in agent.refresh().lines] == [1, 2, 9]


def test_with_the_migration_that_it_names_it_holds(store: Store) -> None:
    filled(store)

    def renamed(old: Any) -> Any:
        old["amount"] = old.pop("cents", 0)
        return old

    schema = perdure.Schema(Renamed, id="line", version=2, migrations={1: renamed})
    agent = store.agent("b", schema)
    with agent.edit("paid") as draft:
        draft.amount = 9
    assert agent.refresh().amount == 9


def test_what_does_not_overrule_is_let_through(store: Store) -> None:
    filled(store)
    agent = store.agent("a", perdure.Schema(OfFilledIn, id="order"))
    with agent.edit("paid") as draft:
        draft.main.amount = 9
        draft.lines[0].amount = 8
    assert (agent.refresh().main.amount, agent.state.lines[0].amount) == (9, 8)
    shown = store.agent("b", perdure.Schema(Shown, id="line"))
    with shown.edit("paid") as draft:
        draft.amount = 9  # `cents` is there to be set
    assert shown.refresh().amount == 7


def test_dataclasses_are_asked_too(store: Store) -> None:
    filled(store)
    agent = store.agent("b", perdure.Schema(Plain, id="line"))
    before = agent.state.amount
    if before == 7:
        with pytest.raises(SchemaError, match="at each reading"), agent.edit("paid") as draft:
            draft.amount = 9
    else:  # pydantic does not show it that key
        with agent.edit("paid") as draft:
            draft.amount = 9
        assert agent.refresh().amount == 9
