"""An older program leaves what it does not change as a newer one stored it, wherever it stands."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, make_dataclass
from typing import Any, NamedTuple

import msgspec
import pydantic
import pytest

import perdure
from perdure.errors import SchemaError
from tests.engine.waits import go
from tests.state.older_writes import edited, saved


@dataclass
class Item:
    id: int = 0


@dataclass
class NewerItem:
    id: int = 0
    note: str = ""


class ItemModel(pydantic.BaseModel):
    id: int = 0


class NewerModel(pydantic.BaseModel):
    id: int = 0
    note: str = ""


class ItemStruct(msgspec.Struct, frozen=True):
    id: int = 0


class NewerStruct(msgspec.Struct, frozen=True):
    id: int = 0
    note: str = ""


class Pair(NamedTuple):
    name: str
    item: Item


class NewerPair(NamedTuple):
    name: str
    item: NewerItem


ONE, TWO = NewerItem(1, "one"), NewerItem(2, "two")

TUPLES: dict[str, tuple[Any, Any, Any]] = {
    "any number": (tuple[Item, ...], tuple[NewerItem, ...], (ONE, TWO)),
    "by position": (tuple[int, Item], tuple[int, NewerItem], (5, ONE)),
    "a NamedTuple": (Pair, NewerPair, NewerPair("n", ONE)),
    "a Sequence": (Sequence[Item], Sequence[NewerItem], (ONE, TWO)),
    "in a dict": (
        dict[str, tuple[Item, ...]],
        dict[str, tuple[NewerItem, ...]],
        {"k": (ONE, TWO)},
    ),
    "in a list": (list[tuple[Item, int]], list[tuple[NewerItem, int]], [(ONE, 1), (TWO, 2)]),
    "in a tuple": (
        tuple[tuple[Item, ...], ...],
        tuple[tuple[NewerItem, ...], ...],
        ((ONE,), (TWO,)),
    ),
    "of models": (
        tuple[ItemModel, ...],
        tuple[NewerModel, ...],
        (NewerModel(id=1, note="one"),),
    ),
    "of frozen Structs": (
        tuple[ItemStruct, int],
        tuple[NewerStruct, int],
        (NewerStruct(1, "one"), 3),
    ),
    "of one of several": (
        tuple[Item | int, ...],
        tuple[NewerItem | int, ...],
        (ONE, 3),
    ),
}


def versions(old: Any, new: Any) -> tuple[Any, Any]:
    """Returns the schemas of an older and a newer program, which have a value and a number."""
    older, newer = (
        make_dataclass("R", [("value", kind, None), ("n", int, 0)]) for kind in (old, new)
    )
    return (
        perdure.Schema(older, id="R", version=(1, 0)),
        perdure.Schema(newer, id="R", version=(1, 1)),
    )


@pytest.fixture(params=TUPLES)
def both(store: perdure.Store, request: pytest.FixtureRequest) -> Any:
    """Returns the handles of an older and a newer program, and the value that the newer stored."""
    old, new, value = TUPLES[request.param]
    older, newer = versions(old, new)
    theirs = store.agent("a", newer, initial=newer.type(value))
    theirs.checkpoint("made")
    return store.agent("a", older), theirs, value


def assigned(agent: Any) -> None:
    """Everything as it is, and a number."""
    value = copy.deepcopy(agent.state.value)
    with agent.edit("assigned") as draft:
        draft.value = value
        draft.n += 1


def undone(agent: Any) -> None:
    edited(agent)
    agent.undo()
    agent.redo()


@pytest.mark.parametrize("act", [edited, saved, assigned, undone])
def test_objects_in_tuples_keep_what_an_older_program_does_not_know(
    both: Any, act: Callable[[Any], None]
) -> None:
    """The first edit of an older program, of something else altogether, dropped the newer fields of
    all objects in tuples: a `migrate` commit set each tuple anew. In lists and dicts all stayed."""
    mine, theirs, value = both
    act(mine)
    assert theirs.refresh().value == value and theirs.state.n == 1
    assert "migrate" not in [commit.cause.kind for commit in theirs.log()]
    assert mine.drift() == theirs.drift() == []


def test_a_tuple_with_newer_fields_can_be_set_by_an_older_program(store: perdure.Store) -> None:
    """That it had them was taken for a change outside `edit`."""
    older, newer = versions(tuple[Item, ...], tuple[NewerItem, ...])
    theirs = store.agent("a", newer, initial=newer.type((ONE, TWO)))
    theirs.checkpoint("made")
    mine = store.agent("a", older)
    with mine.edit("turned, and one more") as draft:
        draft.value = (*draft.value[::-1], Item(3))
    assert theirs.refresh().value == (TWO, ONE, NewerItem(3))
    with mine.edit("as many as before, one is another") as draft:
        draft.value = (Item(2), Item(7), Item(3))
    assert theirs.refresh().value == (TWO, NewerItem(7, "one"), NewerItem(3))
    before = theirs.seq
    with pytest.raises(SchemaError, match="cannot be told apart"), mine.edit("fewer") as draft:
        draft.value = (Item(8),)
    assert theirs.refresh() and theirs.seq == before
    mine.undo()
    assert theirs.refresh().value == (TWO, ONE, NewerItem(3))


def test_a_list_that_stands_where_a_tuple_stood_has_the_same_items(store: perdure.Store) -> None:
    """Where a Sequence is declared, a list over a tuple had nothing of the newer fields."""
    older, newer = versions(Sequence[Item], Sequence[NewerItem])
    theirs = store.agent("a", newer, initial=newer.type((ONE, TWO)))
    theirs.checkpoint("made")
    mine = store.agent("a", older)
    mine.update(lambda draft: setattr(draft, "value", [Item(2), Item(1)]))
    assert theirs.refresh().value == [TWO, ONE]


def by_id(items: list[Item]) -> list[Item]:
    return sorted(items, key=lambda item: item.id)


@dataclass
class Sorted:
    """Has its items in order, whatever is stored."""

    items: list[Item] = field(default_factory=list)
    n: int = 0

    def __post_init__(self) -> None:
        self.items = by_id(self.items)


@dataclass
class NewerUnsorted:
    items: list[NewerItem] = field(default_factory=list)
    n: int = 0


def test_newer_fields_go_along_where_a_class_puts_its_items_in_order(store: perdure.Store) -> None:
    """Each went to the item that then stood where its own had stood."""
    newer = perdure.Schema(NewerUnsorted, id="R", version=(1, 1))
    theirs = store.agent("a", newer, initial=NewerUnsorted([TWO, ONE]))
    theirs.checkpoint("made")
    edited(store.agent("a", perdure.Schema(Sorted, id="R", version=(1, 0))))
    assert theirs.refresh().items == [ONE, TWO]


# -- of one of several classes --------------------------------------------------------------------

_ids = itertools.count(1)


@dataclass
class Long:
    x: float = 0
    y: int = 0
    tags: list[str] = field(default_factory=list)


@dataclass
class Short:
    x: int = 0


@dataclass
class NewerLong:
    x: float = 0
    y: int = 0
    tags: list[str] = field(default_factory=list)
    more: str = ""


@dataclass
class NewerShort:
    x: int = 0
    note: str = ""


@dataclass
class LongWithId(Long):
    id: int = field(default_factory=lambda: next(_ids))


@dataclass
class NewerLongWithId(NewerLong):
    id: int = field(default_factory=lambda: next(_ids))


KEPT = NewerShort(1, "kept")

UNIONS: dict[str, tuple[Any, Any, Any]] = {
    "field": (Long | Short, NewerLong | NewerShort, KEPT),
    "list": (list[Long | Short], list[NewerLong | NewerShort], [KEPT, NewerShort(2)]),
    "dict": (dict[str, Long | Short], dict[str, NewerLong | NewerShort], {"k": KEPT}),
    "tuple": (tuple[Long | Short, int], tuple[NewerLong | NewerShort, int], (KEPT, 1)),
}


@pytest.mark.parametrize("act", [edited, saved, assigned, undone])
@pytest.mark.parametrize("where", UNIONS)
def test_an_object_of_one_of_several_classes_stays_of_its_class(
    store: perdure.Store, where: str, act: Callable[[Any], None]
) -> None:
    """Only the newer program could tell of which class an object was: the older one read it as
    another one, and stored that one's further fields when it saved something else. The newer
    program then found an object of that class, without what it had stored. A number in it became a
    float, too, as the other class has it."""
    old, new, value = UNIONS[where]
    older, newer = versions(old, new)
    theirs = store.agent("a", newer, initial=newer.type(value))
    theirs.checkpoint("made")
    mine = store.agent("a", older)
    before = theirs.at(theirs.seq).plain
    act(mine)
    assert theirs.refresh().value == value and theirs.state.n == 1
    assert repr(theirs.at(theirs.seq).plain["value"]) == repr(before["value"])
    assert mine.drift() == theirs.drift() == []


@pytest.mark.parametrize("act", [edited, undone])
def test_a_default_that_may_be_another_is_not_stored_where_the_class_is_a_guess(
    store: perdure.Store, act: Callable[[Any], None]
) -> None:
    """An id that only the other class has was stored by the first edit, and made the object one of
    that class."""
    older, newer = versions(LongWithId | Short, NewerLongWithId | NewerShort)
    theirs = store.agent("a", newer, initial=newer.type(KEPT))
    theirs.checkpoint("made")
    mine = store.agent("a", older)
    act(mine)
    assert theirs.refresh().value == KEPT
    with pytest.raises(SchemaError, match="another class"):
        saved(mine)  # whether somebody set that id, nobody knows
    assert theirs.refresh().value == KEPT


def set_in_edit(**values: Any) -> Callable[[Any], None]:
    def act(agent: Any) -> None:
        with agent.edit() as draft:
            for name, value in values.items():
                setattr(draft.value, name, value)

    return act


def set_and_save(**values: Any) -> Callable[[Any], None]:
    def act(agent: Any) -> None:
        whole = copy.deepcopy(agent.state)
        for name, value in values.items():
            setattr(whole.value, name, value)
        agent.save(whole)

    return act


def assign(agent: Any) -> None:
    with agent.edit() as draft:
        draft.value = Long(1, 5)


def append(agent: Any) -> None:
    with agent.edit() as draft:
        draft.value.tags.append("new")


def delete(agent: Any) -> None:
    with agent.edit() as draft:
        del draft.value.x


SETS = (set_in_edit(y=5), set_and_save(y=5), set_in_edit(x=7), set_and_save(x=7))


@pytest.mark.parametrize("act", [*SETS, assign, append, delete], ids=range(7))
def test_a_change_that_may_make_it_another_class_is_refused(
    store: perdure.Store, act: Callable[[Any], None]
) -> None:
    """The older program set a field that only the class has which it took the object for, or a
    value that only this class takes: to the newer one the object was of that class then."""
    older, newer = versions(Long | Short, NewerLong | NewerShort)
    theirs = store.agent("a", newer, initial=newer.type(KEPT))
    theirs.checkpoint("made")
    mine, seq = store.agent("a", older), theirs.seq
    with pytest.raises(SchemaError, match=r"state\.value: .*another class"):
        act(mine)
    assert theirs.refresh().value == KEPT and theirs.seq == seq


@dataclass
class Wide:
    x: int = 0
    y: int = 0


@dataclass
class NewerWide(Wide):
    more: str = ""


def assign_another(agent: Any) -> None:
    with agent.edit() as draft:
        draft.value = Wide(7)


@pytest.mark.parametrize("act", [set_in_edit(x=7), set_and_save(x=7), assign_another], ids=range(3))
def test_a_value_that_each_class_takes_can_be_set(
    store: perdure.Store, act: Callable[[Any], None]
) -> None:
    older, newer = versions(Wide | Short, NewerWide | NewerShort)
    theirs = store.agent("a", newer, initial=newer.type(KEPT))
    theirs.checkpoint("made")
    mine = store.agent("a", older)
    act(mine)
    assert theirs.refresh().value == NewerShort(7, "kept")


class Strict(pydantic.BaseModel, extra="forbid"):
    x: int = 0


class Loose(pydantic.BaseModel, extra="allow"):
    x: str = ""


class NewerStrict(Strict):
    note: str = ""


def test_a_newer_field_does_not_keep_an_object_from_being_read(store: perdure.Store) -> None:
    """Another class of the union takes any field, and so fitted best: the newer field was then
    handed to the class that the object is of, which forbids it. The state could not be read."""
    older, newer = versions(Strict | Loose, NewerStrict | Loose)
    theirs = store.agent("a", newer, initial=newer.type(NewerStrict(x=1, note="kept")))
    theirs.checkpoint("made")
    mine = store.agent("a", older)
    assert mine.state.value == Strict(x=1)
    edited(mine)
    assert theirs.refresh().value == NewerStrict(x=1, note="kept")


# -- what it cannot read --------------------------------------------------------------------------


class Point(NamedTuple):
    x: int = 0


class NewerPoint(NamedTuple):
    x: int = 0
    label: str = ""


UNREADABLE: dict[str, tuple[Any, Any, Any, Any]] = {
    "a field more of a NamedTuple": (Point, NewerPoint, NewerPoint(1, "home"), Point(5)),
    "of one in a list": (list[Point], list[NewerPoint], [NewerPoint(1, "home")], [Point(5)]),
    "another type": (int, int | str, "home", 5),
}


@pytest.mark.parametrize(("old", "new", "value", "own"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_it_cannot_read_it_does_not_replace(
    store: perdure.Store, old: Any, new: Any, value: Any, own: Any
) -> None:
    """The error said that an earlier program had stored it, which a later one had, and advised to
    save a whole value: that dropped what the newer program had stored, without a word."""
    older, newer = versions(old, new)
    theirs = store.agent("a", newer, initial=newer.type(value))
    theirs.checkpoint("made")
    mine = store.agent("a", older)
    for act in (
        lambda: mine.state,
        lambda: mine.at(1).state,
        lambda: edited(mine),
        lambda: mine.checkpoint("mine"),
        lambda: mine.save(older.type(own)),
    ):
        with pytest.raises(SchemaError, match=r"state\.value") as caught:
            act()
        hint = caught.value.hint or ""
        assert "a newer program stored it, under version 1.1, and this one has 1.0" in hint
        assert "save" not in hint
    assert theirs.refresh() == newer.type(value)


# -- beside states --------------------------------------------------------------------------------


def test_a_migration_to_a_major_version_leaves_tuples_whole(store: perdure.Store) -> None:
    """What a migration leaves in a tuple, and the types do not know, went with the first edit."""
    _, newer = versions(tuple[Item, ...], tuple[NewerItem, ...])
    store.agent("a", newer, initial=newer.type((ONE, TWO))).checkpoint("made")
    older, _ = versions(tuple[Item, ...], None)
    second = perdure.Schema(older.type, id="R", version=2, migrations={1: lambda old: old})
    mine = store.agent("a", second)
    edited(mine)
    assert mine.at(mine.seq).plain["value"] == ({"id": 1, "note": "one"}, {"id": 2, "note": "two"})


def test_runs_pass_on_what_an_older_program_reads_in_tuples(store: perdure.Store) -> None:
    """Results and signals are read by the types of the code that runs; an edit of a run keeps what
    those do not know of its state."""
    older, newer = versions(tuple[Item, ...], tuple[NewerItem, ...])
    theirs = store.agent("a", newer, initial=newer.type((ONE,)))
    theirs.checkpoint("made")

    @perdure.step(returns=tuple[Item, ...])
    def give() -> Any:
        return (Item(5),)

    @perdure.agent(older, name="f")
    def f(run: perdure.Run[Any], items: tuple[Item, ...]) -> tuple[Item, ...]:
        assert items == (Item(1),) and give() == (Item(5),)
        signal = run.wait_for("s", schema=tuple[Item, ...])
        with run.edit("counted") as draft:
            draft.n += len(signal)
        return items

    go(store, f, "a", (Item(1),))
    store.handle("a/f/main").signal("s", [{"id": 4}])
    assert go(store, f, "a", (Item(1),)) == (Item(1),)
    assert theirs.refresh().value == (ONE,) and theirs.state.n == 1


@dataclass
class Node:
    nodes: list[Node] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)


@dataclass
class Filing:
    inbox: list[Item] = field(default_factory=list)
    tree: Node = field(default_factory=Node)


@dataclass
class NewerDeep:
    id: int = 0
    extra: list[Any] = field(default_factory=list)


@dataclass
class NewerNode:
    nodes: list[NewerNode] = field(default_factory=list)
    items: list[NewerDeep] = field(default_factory=list)


@dataclass
class NewerFiling:
    inbox: list[NewerDeep] = field(default_factory=list)
    tree: NewerNode = field(default_factory=NewerNode)


@pytest.mark.parametrize("levels", [30, 59])
def test_what_it_moves_is_not_nested_too_deep_with_what_it_does_not_know(levels: int) -> None:
    """An older program filed an item in the innermost folder of a tree. A newer one had stored a
    deep list in it: the state was deeper than any may be, and the newer program could not save what
    it had read."""
    older = perdure.Schema(Filing, id="filing", version=(1, 0))
    newer = perdure.Schema(NewerFiling, id="filing", version=(1, 1))
    extra: list[Any] = []
    for _ in range(levels):
        extra = [extra]
    tree = NewerNode()
    for _ in range(30):
        tree = NewerNode([tree])
    with perdure.open("memory://") as store:
        new = store.agent("a", newer, initial=NewerFiling([NewerDeep(1, extra)], tree))
        new.checkpoint("made")
        old = store.agent("a", older)

        def file_it() -> None:
            with old.edit("filed") as draft:
                node = draft.tree
                while node.nodes:
                    node = node.nodes[0]
                node.items.append(draft.inbox.pop())

        if levels == 59:
            with pytest.raises(perdure.Unstorable, match="nested more than 100 levels deep"):
                file_it()
            assert len(new.refresh().inbox) == 1
        else:
            file_it()
        state = copy.deepcopy(new.refresh())
        state.inbox.append(NewerDeep(2))
        new.save(state, "one more")
