"""States that types read otherwise than they were stored: edits go on from what handles show."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, Self

import msgspec
import pytest
from pydantic import AfterValidator, BaseModel, model_validator

import perdure
import perdure.testing
from perdure.errors import Drifted, SchemaError
from perdure.store import Store


@dataclass
class Order:
    price: float = 0.0
    tags: set[str] = field(default_factory=set)
    n: int = 0


class OrderModel(BaseModel):
    price: float = 0.0
    tags: set[str] = set()
    n: int = 0


class Line(BaseModel):
    qty: int = 1


class Counted(BaseModel):
    qty: int = 1
    total: int = 0

    @model_validator(mode="after")
    def count(self) -> Self:
        self.total = self.qty * 100
        return self


class Lines(BaseModel):
    lines: list[Line] = []


class CountedLines(BaseModel):
    lines: list[Counted] = []


def plus(draft: Any) -> None:
    draft.price += 1.5


def tag(draft: Any) -> None:
    draft.tags.add("sold")


def other(draft: Any) -> None:
    draft.n = 1


@pytest.mark.parametrize("kind", [Order, OrderModel])
@pytest.mark.parametrize("change", [plus, tag, other, None])
def test_what_a_migration_gives_is_stored_as_types_read_it(
    kind: Any, change: Callable[[Any], None] | None, store: Store
) -> None:
    """A migration gave an int for a float, and a list for a set. All handles showed what the types
    made of it, edits were made of what the migration gave: "changed outside edit", for good, on a
    handle that nobody had touched; and a set that was a list, in the draft."""
    first = perdure.Schema(dict, id="order", version=1)
    second = perdure.Schema(
        kind,
        id="order",
        version=2,
        migrations={1: lambda old: {"price": old["cents"] // 100, "tags": old["tags"]}},
    )
    store.agent("a", first).save({"cents": 500, "tags": ["new"]})
    wanted = kind(price=5.0, tags={"new"})
    agent = store.agent("a", second)
    assert agent.state == wanted and agent.drift() == []
    if change is None:
        agent.save(wanted)
        tag(wanted)
        agent.save(wanted)
    else:
        agent.update(change)
        change(wanted)
    for handle in (agent, store.agent("a", second)):
        assert handle.state == wanted and handle.drift() == []
    assert type(agent.at(agent.seq).plain["price"]) is float
    assert [one.cause.kind for one in agent.log()].count("migrate") == 1
    agent.checkpoint("named")
    agent.undo()
    agent.verify()
    assert agent.drift() == []


def test_a_state_that_began_without_types_is_edited_with_them(store: Store) -> None:
    store.agent("a").save({"price": 5, "tags": ["a"]})
    agent = store.agent("a", perdure.Schema(Order, id="dict"))
    agent.update(tag)
    agent.update(plus)
    assert store.agent("a", perdure.Schema(Order, id="dict")).state == Order(6.5, {"a", "sold"})


def test_items_of_before_a_field_that_a_hook_fills_in_are_appended_to(store: Store) -> None:
    """An append looks at the item before it. That had no total in the log, and one in memory: each
    append was refused in each process, and each run that made one failed."""
    old = perdure.Schema(Lines, id="lines", version=1)
    new = perdure.Schema(CountedLines, id="lines", version=(1, 1))
    store.agent("a", old).save(Lines(lines=[Line(qty=2)]))

    @perdure.agent(new)
    def add(run: perdure.Run[CountedLines]) -> int:
        with run.edit("more") as draft:
            draft.lines.append(Counted(qty=4))
        run.wait_for("go")
        with run.edit("more") as draft:
            draft.lines.append(Counted(qty=5))
        return run.state.lines[0].total

    agent = store.agent("a", new)
    with agent.edit("more") as draft:
        draft.lines.append(Counted(qty=3))
    assert [line.total for line in store.agent("a", new).state.lines] == [200, 300]
    store.handle(perdure.testing.run_until_waiting(store, add, "a").id).signal("go")
    assert store.run(add, "a") == 200
    assert agent.at("main").plain["lines"][0] == {"qty": 2, "total": 200}


def test_what_changes_at_each_look_is_left_as_it_is(store: Store) -> None:
    class Restless(BaseModel):
        looks: int = 0
        n: int = 0

        @model_validator(mode="after")
        def look(self) -> Self:
            self.looks += 1
            return self

    store.agent("a", perdure.Schema(dict, id="r")).save({"looks": 5, "n": 0})
    agent = store.agent("a", perdure.Schema(Restless, id="r"))
    with pytest.raises(perdure.PerdureError), agent.edit("n") as draft:
        draft.n = 1
    assert agent.at(agent.seq).plain == {"looks": 5, "n": 0}


def test_validators_of_the_root_are_hooks(store: Store) -> None:
    """`root_validator` comes from the first pydantic, and was not known for a hook: what it filled
    in was stored as it was given, and shown as it was filled in."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from pydantic import root_validator

        class Filled(BaseModel):
            qty: int = 1
            total: int = 0

            @root_validator(pre=True)
            def fill(cls, values: dict[str, Any]) -> dict[str, Any]:  # noqa: N805
                return {**values, "total": values.get("qty", 1) * 100}

    agent = store.agent("a", Filled)
    with agent.edit("total") as draft:
        draft.total = 7
    assert agent.state == store.agent("a", Filled).state == Filled(qty=1)
    odd = Filled(qty=2)
    odd.total = 1
    with pytest.raises(perdure.Unstorable, match="total"):
        agent.save(odd)


class Stripped(BaseModel):
    text: Annotated[str, AfterValidator(str.strip)] = ""


class Unstripped(BaseModel):
    text: str = ""


def test_an_undo_of_what_the_types_read_otherwise(store: Store) -> None:
    """A program whose class strips a text could never undo the commit of another that had stored it
    unstripped: that it read the text stripped was taken for a change outside `edit`."""
    theirs = store.agent("a", perdure.Schema(Unstripped, id="T"), initial=Unstripped(text="a"))
    theirs.update(lambda draft: setattr(draft, "text", " b "))
    mine = store.agent("a", perdure.Schema(Stripped, id="T"))
    assert mine.state.text == "b" and mine.drift() == []
    mine.undo()
    assert mine.state.text == theirs.refresh().text == "a"
    mine.redo()
    assert mine.state.text == theirs.refresh().text == "b" and mine.drift() == []
    mine.state.text = "changed outside"
    with pytest.raises(Drifted):
        mine.undo()


class Point(NamedTuple):
    x: int = 0


class LongerPoint(NamedTuple):
    x: int = 0
    label: str = ""


@dataclass
class Places:
    home: Point = field(default_factory=Point)
    rest: dict[str, list[Point]] = field(default_factory=dict)
    n: int = 0


@dataclass
class HomeGrew:
    home: LongerPoint = field(default_factory=LongerPoint)
    rest: dict[str, list[Point]] = field(default_factory=dict)
    n: int = 0


@dataclass
class RestGrew:
    home: Point = field(default_factory=Point)
    rest: dict[str, list[LongerPoint]] = field(default_factory=dict)
    n: int = 0


@pytest.mark.parametrize(("newer", "at"), [(HomeGrew, "home"), (RestGrew, "rest.k[0]")])
def test_a_longer_named_tuple_is_no_minor_version(store: Store, newer: Any, at: str) -> None:
    """The first write of a program that had declared it one was made, and programs of the older
    version, which were to go on beside it, could not read the agent from then on."""
    older = perdure.Schema(Places, id="places", version=(1, 0))
    mine = store.agent("a", older, initial=Places(Point(1), {"k": [Point(2)]}))
    mine.checkpoint("made")
    theirs = store.agent("a", perdure.Schema(newer, id="places", version=(1, 1)))
    assert theirs.state.n == 0
    for _ in range(2):
        for write in (lambda: theirs.update(count), lambda: theirs.save(newer())):
            with pytest.raises(SchemaError, match="a LongerPoint has more fields") as caught:
                write()
            assert caught.value.target == f"state.{at}"
            assert "version=2, migrations={1: lambda old: old}" in (caught.value.hint or "")
    mine.update(count)
    assert mine.refresh().n == 1

    second = perdure.Schema(newer, id="places", version=2, migrations={1: lambda old: old})
    now = store.agent("a", second)
    now.update(count)
    assert (now.state.n, now.state.home[0]) == (2, 1)


def test_a_longer_named_tuple_in_a_program_without_versions(store: Store) -> None:
    store.agent("a", perdure.Schema(Places, id="p"), initial=Places(Point(1))).checkpoint("made")
    agent = store.agent("a", perdure.Schema(HomeGrew, id="p"))
    agent.update(count)
    assert agent.refresh() == HomeGrew(LongerPoint(1), n=1)


def count(draft: Any) -> None:
    draft.n += 1


@dataclass
class Board:
    scores: list[int] = field(default_factory=list)
    note: str = ""


@dataclass
class SortedBoard(Board):
    def __post_init__(self) -> None:
        self.scores = sorted(self.scores)


@pytest.mark.parametrize("moves_on", [lambda _: None, perdure.Agent.refresh, perdure.Agent.drift])
def test_others_edits_are_not_put_on_what_only_the_types_make_of_a_state(
    store: Store, moves_on: Callable[[Any], Any]
) -> None:
    """Story: a newer program's class sorts a list. A block of edit that came to nothing left the
    sorted list in memory; an older program's change of the third item of the stored list was put
    on the third of the sorted one, and the next edit committed that: an item was gone, and one that
    had been replaced was back."""
    old = store.agent("a", perdure.Schema(Board, id="board"), initial=Board([3, 1, 2]))
    old.checkpoint("made")
    new = store.agent("a", perdure.Schema(SortedBoard, id="board"))
    with new.edit():
        pass
    old.update(lambda draft: draft.scores.__setitem__(2, 25))
    moves_on(new)
    new.update(lambda draft: setattr(draft, "note", "hi"))
    stored = store.agent("a", perdure.Schema(dict, id="board")).state
    assert stored == {"scores": [1, 3, 25], "note": "hi"}
    assert new.state == SortedBoard([1, 3, 25], "hi")
    assert new.drift() == []


@pytest.mark.parametrize("looked_at", [False, True])
def test_an_undo_is_made_of_what_is_stored_whatever_the_types_show(
    store: Store, looked_at: bool
) -> None:
    """Story: a hook that sorts was added to a class. The undo of an edit of before was refused as
    drift, also after a refresh; and behind an edit that came to nothing it was applied to the
    sorted list: an item was lost, and the one to be taken back stayed."""
    old = store.agent("a", perdure.Schema(Board, id="board"), initial=Board([5, 1, 2]))
    old.checkpoint("made")
    old.update(lambda draft: draft.scores.__setitem__(1, 9))
    new = store.agent("a", perdure.Schema(SortedBoard, id="board"))
    if looked_at:
        with new.edit():
            pass
    new.undo()
    assert new.state == SortedBoard([1, 2, 5])
    assert store.agent("a", perdure.Schema(Board, id="board")).state == Board([5, 1, 2])
    new.redo()
    assert new.state == SortedBoard([2, 5, 9])
    new.update(lambda draft: setattr(draft, "note", "hi"))
    assert old.refresh() == Board([2, 5, 9], "hi")
    assert new.drift() == []


@dataclass
class Size:
    size: tuple[int, int] = (0, 0)


def test_a_value_is_saved_over_a_dict_where_a_tuple_is_declared(store: Store) -> None:
    """Story: the error said to `save` a whole value, and that raised a bare TypeError."""
    store.agent("a", perdure.Schema(dict, id="box"), initial={"size": {"x": 1}}).checkpoint("made")
    agent = store.agent("a", perdure.Schema(Size, id="box"))
    with pytest.raises(SchemaError, match="save"):
        _ = agent.state
    agent.save(Size((1, 2)))
    assert store.agent("a", perdure.Schema(Size, id="box")).state == agent.state == Size((1, 2))


class Card(msgspec.Struct, tag=True):
    n: int = 0


@dataclass
class Counts:
    counts: dict[int, int] = field(default_factory=dict)
    card: Card = field(default_factory=Card)


@pytest.mark.parametrize(
    "change",
    [
        lambda draft: draft["counts"].update(one=1),
        lambda draft: draft["card"].update(type="Cord"),
    ],
)
def test_a_handle_that_follows_refuses_what_nobody_could_read_anew(
    store: Store, change: Callable[[Any], Any]
) -> None:
    """Story: a program without these types set a key of another type, or another tag. A handle that
    was open followed, and went on committing onto a state that it could not open any more."""
    schema: Any = perdure.Schema(Counts, id="c")
    agent = store.agent("a", schema, initial=Counts({1: 1}))
    agent.checkpoint("made")
    store.agent("a", perdure.Schema(dict, id="c")).update(change)
    for one in (agent, store.agent("a", schema)):
        with pytest.raises(SchemaError, match="commit 3"), one.edit() as draft:
            draft.counts[2] = 2
