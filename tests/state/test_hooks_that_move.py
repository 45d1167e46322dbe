"""Objects that a hook of an older program's class puts elsewhere keep what a newer one stored."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pydantic
import pytest

import perdure
from perdure.errors import SchemaError
from tests.state.older_writes import edited, saved


@dataclass
class Item:
    id: int = 0
    many: int = 1


@dataclass
class NewerItem(Item):
    note: str = ""


@dataclass
class State:
    """What all of the older classes are made of."""

    named: dict[str, Item] = field(default_factory=dict)
    items: list[Item] = field(default_factory=list)
    even: list[Item] = field(default_factory=list)
    current: Item | None = None
    n: int = 0


@dataclass
class Newer:
    named: dict[str, NewerItem] = field(default_factory=dict)
    items: list[NewerItem] = field(default_factory=list)
    even: list[NewerItem] = field(default_factory=list)
    current: NewerItem | None = None
    n: int = 0


ONE, TWO, THREE = NewerItem(1, note="one"), NewerItem(2, note="two"), NewerItem(3, note="three")


@dataclass
class Lower(State):
    def __post_init__(self) -> None:
        self.named = {name.lower(): item for name, item in self.named.items()}


class LowerModel(pydantic.BaseModel):
    named: dict[str, Item] = {}
    n: int = 0

    @pydantic.field_validator("named")
    @classmethod
    def lower(cls, named: dict[str, Item]) -> dict[str, Item]:
        return {name.lower(): item for name, item in named.items()}


@dataclass
class Split(State):
    def __post_init__(self) -> None:
        self.even = self.even + [item for item in self.items if item.id % 2 == 0]
        self.items = [item for item in self.items if item.id % 2]


@dataclass
class Stamped(State):
    """Changes what it moves."""

    def __post_init__(self) -> None:
        self.even = self.even + [Item(item.id, 0) for item in self.items if item.id % 2 == 0]
        self.items = [item for item in self.items if item.id % 2]


@dataclass
class Archive(State):
    """Puts what is done away, and begins with another one."""

    def __post_init__(self) -> None:
        if self.current is not None and self.current.id:
            self.items = [*self.items, self.current]
            self.current = Item()


@dataclass
class InOrder(State):
    """Has the smaller one in the first of two lists."""

    def __post_init__(self) -> None:
        if self.items and self.even and self.items[0].id > self.even[0].id:
            self.items, self.even = self.even, self.items


@dataclass
class Bounded(State):
    def __post_init__(self) -> None:
        self.items = self.items[-2:]
        self.named = {name: item for name, item in self.named.items() if name.islower()}


@dataclass
class LowerStamped(State):
    def __post_init__(self) -> None:
        self.named = {
            name.lower(): item if name.islower() else Item(item.id, 0)
            for name, item in self.named.items()
        }


def copied(state: Newer) -> Newer:
    """Returns a copy in which no object stands twice."""
    return Newer(
        {name: copy.copy(item) for name, item in state.named.items()},
        [*map(copy.copy, state.items)],
        [*map(copy.copy, state.even)],
        copy.copy(state.current),
    )


def both(store: perdure.Store, older: type, state: Newer) -> tuple[Any, Any]:
    """Returns the handles of an older and a newer program, which stored the state."""
    theirs = store.agent("a", perdure.Schema(Newer, id="R", version=(1, 1)), initial=copied(state))
    theirs.checkpoint("made")
    return store.agent("a", perdure.Schema(older, id="R", version=(1, 0))), theirs


MOVED: dict[str, tuple[type, Newer, Newer]] = {
    "small letters": (Lower, Newer(named={"A": ONE}), Newer(named={"a": ONE})),
    "small letters, by pydantic": (LowerModel, Newer(named={"A": ONE}), Newer(named={"a": ONE})),
    "over another": (Lower, Newer(named={"a": TWO, "A": ONE}), Newer(named={"a": ONE})),
    "into another list": (Split, Newer(items=[ONE, TWO]), Newer(items=[ONE], even=[TWO])),
    "away, and a new one in": (
        Archive,
        Newer(current=ONE),
        Newer(items=[ONE], current=NewerItem()),
    ),
    "in turn": (InOrder, Newer(items=[TWO], even=[ONE]), Newer(items=[ONE], even=[TWO])),
    "equal ones": (
        Lower,
        Newer(named={"A": ONE, "B": ONE}),
        Newer(named={"a": ONE, "b": ONE}),
    ),
    "away": (
        Bounded,
        Newer(items=[ONE, TWO, THREE], named={"A": ONE, "b": TWO}),
        Newer(items=[TWO, THREE], named={"b": TWO}),
    ),
}


@pytest.mark.parametrize("act", [edited, saved])
@pytest.mark.parametrize("name", MOVED)
def test_newer_fields_go_along_with_what_a_hook_moves(
    store: perdure.Store, name: str, act: Callable[[Any], None]
) -> None:
    """An older program's hook put an object under another key, or into another list. The program's
    first edit, of something else, dropped the fields that a newer one had stored in the object, or
    left them to the one that then stood in its place."""
    older, before, after = MOVED[name]
    mine, theirs = both(store, older, before)
    act(mine)
    after = copy.deepcopy(after)
    after.n = 1
    assert theirs.refresh() == after
    assert mine.drift() == theirs.drift() == []
    edited(mine)
    assert theirs.refresh().n == 2 and theirs.at(theirs.seq).state.named == after.named


REFUSED: dict[str, tuple[type, Newer]] = {
    "changed on its way": (Stamped, Newer(items=[ONE, TWO])),
    "changed on its way to another key": (LowerStamped, Newer(named={"A": ONE})),
    "changed, and like another": (
        LowerStamped,
        Newer(named={"A": ONE, "b": NewerItem(1, 0, note="another")}),
    ),
    "two alike": (Lower, Newer(named={"A": ONE, "B": NewerItem(1, note="another")})),
    "two alike, one without": (Lower, Newer(named={"A": ONE, "B": NewerItem(1)})),
}


@pytest.mark.parametrize("act", [edited, saved])
@pytest.mark.parametrize("name", REFUSED)
def test_a_hook_that_moves_what_cannot_be_told_is_refused(
    store: perdure.Store, name: str, act: Callable[[Any], None]
) -> None:
    """The newer fields were dropped without a word."""
    older, before = REFUSED[name]
    mine, theirs = both(store, older, before)
    seq = theirs.seq
    for _ in range(2):
        with pytest.raises(SchemaError, match="a newer program stored in it") as error:
            act(mine)
        assert "remove the hook" in (error.value.hint or "")
    assert theirs.refresh() == before and theirs.seq == seq


def test_newer_fields_go_along_where_an_edit_makes_a_hook_move(store: perdure.Store) -> None:
    """The edit itself left nothing of them: each field of the object was looked at by itself."""
    mine, theirs = both(store, Split, Newer(items=[ONE, THREE]))
    with mine.edit("a number") as draft:
        draft.items[1].id = 4
    assert theirs.refresh() == Newer(items=[ONE], even=[NewerItem(4, note="three")])
    mine.undo()
    assert theirs.refresh() == Newer(items=[ONE, THREE])


def test_an_edit_that_makes_a_hook_drop_newer_fields_is_refused(store: perdure.Store) -> None:
    mine, theirs = both(store, Stamped, Newer(items=[ONE, THREE]))
    with (
        pytest.raises(SchemaError, match="a newer program stored in it"),
        mine.edit("a number") as draft,
    ):
        draft.items[1].id = 4
    assert theirs.refresh() == Newer(items=[ONE, THREE])
    with mine.edit("another") as draft:
        draft.items[1].id = 5
    assert theirs.refresh() == Newer(items=[ONE, NewerItem(5, note="three")])
