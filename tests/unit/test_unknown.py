"""What a newer program stored in objects stays with them when this one writes whole values."""

from __future__ import annotations

import copy as copying
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import TypedDict

from perdure.core.draft.draft import Recording
from perdure.core.schema.schema import Schema
from perdure.core.types.unknown_fields import unknown
from perdure.core.values.plain_values import copy, same
from perdure.errors import SchemaError


@dataclass
class Item:
    a: int = 0


@dataclass
class Cat:
    kind: Literal["cat"] = "cat"


@dataclass
class Dog:
    kind: Literal["dog"] = "dog"


@dataclass
class Root:
    items: list[Item] = field(default_factory=list)
    by_key: dict[str, Item] = field(default_factory=dict)
    pair: tuple[Item, int] | None = None
    many: tuple[Item, ...] = ()
    pet: Cat | Dog | None = None
    nested: list[list[Item]] = field(default_factory=list)


SCHEMA: Schema[Any] = Schema(Root)


def items(*pairs: Any) -> list[Any]:
    """``(1, "x")``: an item with a note of a newer program; ``1``: one without."""
    return [{"a": p[0], "note": p[1]} if isinstance(p, tuple) else {"a": p} for p in pairs]


def merged(old: Any, new: Any) -> Any:
    found = SCHEMA.merge_unknown({"items": old}, {"items": new})["items"]
    return [(one["a"], one["note"]) if "note" in one else one["a"] for one in found]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ([(1, "x"), (2, "y")], [1, 2], [(1, "x"), (2, "y")]),
        ([(1, "x"), (2, "y"), (3, "z")], [3, 2, 1], [(3, "z"), (2, "y"), (1, "x")]),
        ([(1, "x"), (2, "y"), (3, "z")], [2, 3], [(2, "y"), (3, "z")]),
        ([(1, "x"), (2, "y"), (3, "z")], [1, 9, 3], [(1, "x"), (9, "y"), (3, "z")]),
        ([(1, "x"), (2, "y")], [0, 1, 2, 3], [0, (1, "x"), (2, "y"), 3]),
        ([(1, "x"), (2, "y"), (3, "z")], [2, 3, 4], [(2, "y"), (3, "z"), 4]),
        ([(1, "x"), (2, "y")], [8, 9], [(8, "x"), (9, "y")]),
        ([(1, "x"), (1, "y"), 2], [1, 1, 3], [(1, "x"), (1, "y"), 3]),
        ([(1, "x"), (1, "x")], [1], [(1, "x")]),
        ([(1, "x")], [], []),
        ([1, 2, (3, "z")], [7, 3], [7, (3, "z")]),
    ],
)
def test_items_are_known_by_what_this_program_knows_of_them(
    old: Any, new: Any, expected: Any
) -> None:
    """A whole list once was paired with the stored one by index alone.

    An older program that saved the list in another order, or without its first item, gave a newer
    program's field to the wrong items, or dropped it. No error, and no drift.
    """
    assert merged(items(*old), items(*new)) == expected


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([(1, "x"), (2, "y")], [7]),
        ([(1, "x"), (2, "y"), (3, "z")], [3, 1, 9]),
        ([(1, "x"), (1, "y")], [1]),
        ([(1, "x"), (2, "y"), 3], [8, 3]),
    ],
    ids=["one of two changed", "moved and changed", "one of two alike", "gap"],
)
def test_what_would_be_a_guess_is_refused(old: Any, new: Any) -> None:
    with pytest.raises(SchemaError, match=r"state\.items: its items cannot be told apart.*note"):
        merged(items(*old), items(*new))


def test_a_default_that_is_not_stored_is_no_difference() -> None:
    old = {"items": [{"note": "x"}, {"a": 1, "note": "y"}]}
    found = SCHEMA.merge_unknown(old, {"items": items(1, 0)})["items"]
    assert found == [{"a": 1, "note": "y"}, {"note": "x", "a": 0}]


def test_places_that_say_by_themselves_which_object_it_is() -> None:
    stored = {"a": 1, "note": "x"}
    old = {"by_key": {"k": stored, "l": stored}, "pair": (stored, 5), "new": 1}
    new = {"by_key": {"l": {"a": 2}, "m": {"a": 1}}, "pair": ({"a": 3}, 6)}
    assert SCHEMA.merge_unknown(old, new) == {
        "by_key": {"l": {"a": 2, "note": "x"}, "m": {"a": 1}},
        "pair": ({"a": 3, "note": "x"}, 6),
        "new": 1,
    }


def test_tuples_of_any_length_are_like_lists() -> None:
    old = {"many": tuple(items((1, "x"), (2, "y")))}
    assert SCHEMA.merge_unknown(old, {"many": ({"a": 2},)}) == {"many": ({"a": 2, "note": "y"},)}


def test_another_member_of_a_union_is_another_object() -> None:
    old = {"pet": {"kind": "cat", "lives": 9}}
    assert SCHEMA.merge_unknown(old, {"pet": {"kind": "cat"}}) == old
    assert SCHEMA.merge_unknown(old, {"pet": {"kind": "dog"}}) == {"pet": {"kind": "dog"}}


def test_fields_keep_the_order_in_which_they_are_stored() -> None:
    """A class declares a field elsewhere by now: saving would have moved all that is in it."""
    old = {"nested": [[{"a": 1}]], "items": [{"note": 1, "a": 2}]}
    found = SCHEMA.merge_unknown(old, {"items": [{"a": 2}], "nested": [[{"a": 1}]]})
    assert same(found, old) and list(found) == list(old)
    assert list(found["items"][0]) == ["note", "a"]


numbered = st.lists(st.integers(0, 4), max_size=5)


@settings(max_examples=200, deadline=None)
@given(numbered, st.lists(st.booleans(), min_size=5, max_size=5), numbered)
def test_no_note_is_ever_at_an_item_that_it_was_not_at(
    old: list[int], noted: list[bool], new: list[int]
) -> None:
    """Notes name the item that they belong to; one is kept, goes with its item, or all is refused.

    An item of another number than its note says is one that changed in its place.
    """
    stored = [
        {"a": a, "note": (a, at)} if has else {"a": a}
        for at, (a, has) in enumerate(zip(old, noted, strict=False))
    ]
    before = copy(stored)
    try:
        found = SCHEMA.merge_unknown({"items": stored}, {"items": items(*new)})["items"]
    except SchemaError:
        return
    assert same(stored, before)
    assert [one["a"] for one in found] == new
    notes = [one["note"] for one in found if "note" in one]
    assert len(set(notes)) == len(notes), "none is at two items"
    for at, one in enumerate(found):
        a, _ = one.get("note", (one["a"], at))
        if a != one["a"]:
            assert new.count(a) < old.count(a), "an item that is still there keeps its note"
    kept = {a for a in new if new.count(a) >= old.count(a)}
    for a in kept:
        had = [one["note"] for one in stored if one["a"] == a and "note" in one]
        assert all(note in notes for note in had), "an item that is still there keeps its note"


class Entry(TypedDict):
    a: int


def test_copies_of_parts_of_a_draft_know_what_they_are_copies_of() -> None:
    schema: Schema[Any] = Schema(list[Entry])
    plain = [{"a": 1, "note": {"x": 1}}, {"a": 2, "note": {"x": 2}}]
    draft = Recording(schema, plain).draft
    popped = draft.pop(0)
    assert popped == {"a": 1}
    popped["a"] = 5
    draft.append(popped)
    draft.append(copying.deepcopy(draft[0]))
    expected = [(2, 2), (5, 1), (2, 2)]
    assert plain == [{"a": a, "note": {"x": x}} for a, x in expected]
    assert len({id(one["note"]) for one in plain}) == 3, "no two share a part"


def _sorted(cells: list[Entry]) -> list[Entry]:
    return sorted(cells, key=lambda cell: cell["a"])


class Table(pydantic.BaseModel):
    cells: Annotated[list[Entry], pydantic.AfterValidator(_sorted)] = []
    more: list[Entry] = []


def test_notes_go_with_their_objects_where_a_validator_puts_these_in_another_order() -> None:
    """They went to what stood where the value had had it: each to the other one."""
    schema: Schema[Any] = Schema(Table)
    plain = {"cells": [{"a": 5}], "more": [{"a": 3, "note": "x"}, {"a": 1, "note": "y"}, {"a": 2}]}
    draft = Recording(schema, plain).draft
    draft.cells = [draft.more.pop(0) for _ in range(3)]
    assert plain["cells"] == [{"a": 1, "note": "y"}, {"a": 2}, {"a": 3, "note": "x"}]


def test_what_is_put_into_a_copy_is_what_stood_there() -> None:
    """A part of a copy that was replaced by a new one, before the copy was put back, lost what a
    newer program had stored there; in the draft itself it keeps that."""
    plain = {"nested": [[{"a": 1, "note": "x"}, {"a": 2, "note": "y"}]]}
    draft = Recording(SCHEMA, plain).draft
    popped = draft.nested.pop()
    popped[1] = Item(7)
    draft.nested.append(popped)
    assert plain["nested"] == [[{"a": 1, "note": "x"}, {"a": 7, "note": "y"}]]
    popped[:] = [Item(8)]
    with pytest.raises(SchemaError, match=r"state\.nested\[1\]: its items cannot be told apart"):
        draft.nested.append(popped)


def test_every_unknown_place_is_found() -> None:
    plain = {"new": 1, "many": ({"a": 1, "x": 2},), "items": [{"a": 1, "y": {"z": 1}}]}
    assert list(unknown(SCHEMA.root, plain)) == [("new",), ("many", 0, "x"), ("items", 0, "y")]
