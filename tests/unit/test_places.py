"""Several ops on one place: where it is in the end, and what validation makes of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator

import perdure
from perdure.core.draft.draft import Recording, increment, move
from perdure.core.schema.schema import Schema
from perdure.core.values import ops
from perdure.core.values.ops import Append, Delete, Increment, Move, Set, Splice
from perdure.core.values.plain_values import copy, same
from perdure.core.values.shifted_places import Paths, shift

Digit = Annotated[int, AfterValidator(lambda number: number % 7)]


class Item(BaseModel):
    model_config = ConfigDict(validate_assignment=True)
    name: str = ""
    low: str = ""
    n: Digit = 0

    @model_validator(mode="after")
    def lower(self) -> Item:
        if self.low != self.name.lower():
            object.__setattr__(self, "low", self.name.lower())
        return self


class Group(BaseModel):
    items: list[Item] = []


class Shelf(BaseModel):
    groups: list[Group] = []
    digits: list[Digit] = []
    by_key: dict[str, Digit] = {}
    n: Digit = 0


def both(*acts: Callable[[Any], object]) -> Callable[[Any], None]:
    """One after the other."""

    def act(draft: Any) -> None:
        for one in acts:
            one(draft)

    return act


def add(name: Any, by: int, of: str = "") -> Callable[[Any], None]:
    def act(draft: Any) -> None:
        increment(getattr(draft, of) if of else draft, name, by)

    return act


def after(schema: Schema[Any], state: Any, act: Callable[[Any], object]) -> Any:
    """The plain state after one edit, upon which log and live object agree."""
    before = schema.take(state, aliases_refused=True)
    typed, tree = schema.build(before), copy(before)
    recording = Recording(schema, tree)
    act(recording.draft)
    live = schema.plan(typed, tree, recording.ops, recording.inverses).apply()
    assert same(ops.fold(copy(before), map(ops.own, recording.ops)), tree), "the log"
    assert same(schema.take(live, aliases_refused=True), tree), "the live object"
    assert schema.drift(live, tree) == []
    result = copy(tree)
    assert same(recording.rollback(), before)
    return result


SHELF: Schema[Any] = Schema(Shelf)


def test_a_validator_s_value_goes_to_its_own_item() -> None:
    """A validator's value was once written into another item, and that to the log.

    An item's name was set, an outer list shortened, and the item's own list rearranged. Where the
    item is in the end was computed from ops at the paths that it had when its name was set: the
    last one was at another path by then, and was not seen.
    """
    items = [{"name": name, "low": name.lower(), "n": 0} for name in "ABC"]

    def act(draft: Any) -> None:
        draft.groups[1].items[0].name = "NEW"
        del draft.groups[0]
        move(draft.groups[0].items, 0, 2)

    found = after(SHELF, {"groups": [{"items": []}, {"items": items}]}, act)["groups"]
    assert [(one["name"], one["low"]) for one in found[0]["items"]] == [
        ("B", "b"),
        ("C", "c"),
        ("NEW", "new"),
    ]


@dataclass
class Counter:
    counts: list[int] = field(default_factory=list)
    n: int = 0


@pytest.mark.parametrize(
    "inside",
    [lambda one: one.counts.append(4), add("n", 5)],
    ids=["append", "increment"],
)
def test_a_legal_edit_is_not_taken_for_drift(inside: Callable[[Any], None]) -> None:
    """An append in an inner list was compared with another item, and refused as drift."""

    def act(draft: Any) -> None:
        inside(draft[1][0])
        del draft[0]
        draft[0].insert(0, Counter([7]))

    first = {"counts": [7], "n": 0}
    found = after(Schema(list[list[Counter]]), [[Counter([0])], [Counter([1])]], act)
    assert found[0][0] == first and len(found[0]) == 2


def test_plain_data_too() -> None:
    """On plain dicts it failed with a TypeError of our own."""

    def act(draft: Any) -> None:
        draft["c"][1][0]["d"].pop()
        draft["c"].pop(0)
        move(draft["c"][0], 0, 2)

    found = after(Schema.of(None), {"c": ["k", [{"d": [5]}, 0, "z"]]}, act)
    assert found == {"c": [[0, "z", {"d": []}]]}


def test_where_a_place_is_in_the_end() -> None:
    paths = Paths(
        [
            Set(("a", 2, "b", 1, "c"), 0),
            Splice(("a",), 0, 1, []),
            Append(("a", 1, "b"), [9]),
            Move(("a", 1, "b"), 1, 0),
            Increment(("a", 1, "b", 0, "d"), 1),
            Splice(("a",), 1, 0, [5, 6]),
            Delete(("a", 3, "b", 0, "c")),
        ]
    )
    assert paths.final(("a", 2, "b", 1, "e"), 0) == ("a", 3, "b", 0, "e")
    assert paths.final(("a", 2, "b", 1, "c"), 0) is None, "deleted in the end"
    assert paths.final(("a", 0), 0) is None and paths.final(("a", 0), 1) == ("a", 0)
    assert paths.final(("a", 2, "b", 1), 5) == ("a", 2, "b", 1), "nothing behind concerns it"


@pytest.mark.parametrize("seed", range(40))
def test_a_place_after_many_ops_is_that_after_one_after_the_other(seed: int) -> None:
    """Story: an edit moved the 2,000 items of a queue and changed each. Its end went through all
    moves for each item, and held the agent's lock for half a minute."""
    rng = random.Random(seed)
    inner = [("a", index, "b") for index in range(3)] if seed % 2 else []
    ops: list[Any] = []
    for _ in range(rng.randrange(10, 90)):
        path = rng.choice([("a",), ("a",), ("a",), *inner, ("c",)])
        kind = rng.randrange(40)
        if kind == 0:
            ops.append(Set(rng.choice([path, ("a", rng.randrange(9)), ("c", "d")]), 0))
        elif kind < 20:
            ops.append(Move(path, rng.randrange(9), rng.randrange(9)))
        else:
            ops.append(Splice(path, rng.randrange(9), rng.randrange(3), [0] * rng.randrange(3)))
    paths = Paths(ops)
    for place in [("a", 4), ("a", 9, "b"), ("a", 1, "b", 5), ("a",), ("c", 7)]:
        for at in range(-1, len(ops)):
            after: Any = place
            for op in ops[at + 1 :]:
                after = None if after is None else shift(after, op)
            assert paths.final(place, at) == after


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (add("n", 10), {"n": 6}),
        (both(add("n", 10), add("n", 1)), {"n": 0}),
        (both(add("n", 10), lambda d: setattr(d, "n", 1)), {"n": 1}),
        (both(lambda d: setattr(d, "n", 20), add("n", 10)), {"n": 2}),
        (add(0, 10, "digits"), {"digits": [6, 4]}),
        (both(add(0, 10, "digits"), lambda d: d.digits.insert(0, 1)), {"digits": [1, 6, 4]}),
        (both(add(0, 10, "digits"), lambda d: d.digits.pop(0)), {"digits": [4]}),
        (both(lambda d: d.digits.append(5), add(2, 4, "digits")), {"digits": [3, 4, 2]}),
        (both(add(1, 9, "digits"), lambda d: d.digits.insert(0, 1)), {"digits": [1, 3, 6]}),
        (both(add("k", 10, "by_key"), lambda d: d.by_key.pop("k")), {"by_key": {}}),
        (both(add("k", 9, "by_key"), lambda d: d.by_key.update(k=3)), {"by_key": {"k": 3}}),
    ],
)
def test_what_several_ops_change_is_validated_in_the_end(act: Any, expected: Any) -> None:
    """An increment whose result a validator changes was logged as an op more at the end.

    That came behind whatever else had happened to the number: it undid a later assignment, stood
    at another item of a list (or failed with an AttributeError there), and was taken for drift.
    """
    start = {"groups": [], "digits": [3, 4], "by_key": {"k": 5}, "n": 3}
    assert after(SHELF, start, act) == start | expected


def test_undoing_restores_what_validation_left_out() -> None:
    """Undo put a row back that had never been validated, and then changed a field in it.

    What validation made of the row was written over the field in memory, so the state of the
    handle was not that of the log any more.
    """
    with perdure.open("memory://") as store:
        agent = store.agent("shelf", Shelf, initial=Shelf(groups=[Group(items=[Item(name="A")])]))
        with agent.edit() as draft:
            draft.groups[0].items[0].name = "B"
            del draft.groups[0]
        agent.undo()
        assert [one.name for one in agent.state.groups[0].items] == ["A"]
        assert agent.drift() == []
        with agent.edit() as draft:
            draft.groups[0].items[0].name += "!"
        assert agent.state == store.agent("shelf", Shelf).state
        assert agent.state.groups[0].items[0].low == "a!"
