"""Fields that declare one type or another, over pairs of types and kinds of holders.

What a handle has after each change is what went in, and what a handle that followed has, and what
is built afresh from the log; to the type of each part. Or the call raises, and nothing changes.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime as dt
import enum
import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Union

import msgspec
import pydantic
import pytest
from typing_extensions import TypedDict

import perdure
from tests.shapes.alike import difference
from tests.work import work_of

SHARE = 40
"""One of so many pairs is tried with a holder; another one with each."""


@dataclasses.dataclass
class Long:
    x: int
    y: str = "q"


@dataclasses.dataclass(frozen=True)
class Short:
    x: int


@dataclasses.dataclass
class Items:
    z: list[int]


class Model(pydantic.BaseModel):
    x: int
    y: str = "q"


class Wide(pydantic.BaseModel):
    x: int
    w: int = 0


class Plain(msgspec.Struct):
    x: int
    y: str = "q"


class Tagged(msgspec.Struct, tag=True):
    x: int
    y: str = "q"


class Cat(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"
    x: int = 0


class Dog(pydantic.BaseModel):
    kind: Literal["dog"] = "dog"
    x: int = 0
    y: str = "q"


class Keys(TypedDict):
    x: int
    y: str


class Named(NamedTuple):
    x: int


MEMBERS: tuple[tuple[Any, tuple[Any, ...]], ...] = (
    (int, (1,)),
    (str, ("x",)),
    (type(None), (None,)),
    (dt.date, (dt.date(2020, 1, 1),)),
    (list[int], ([1], [])),
    (list[str], (["a"],)),
    (list[Long], ([Long(1)],)),
    (list[Short], ([Short(1)],)),
    (tuple[int, ...], ((1,),)),
    (set[int], ({1},)),
    (set[str], ({"a"},)),
    (dict[str, int], ({"x": 1}, {})),
    (dict[str, str], ({"y": "a"},)),
    (dict[str, Any], ({"x": [1]}, {"x": 1, "y": "q"})),
    (dict[int, str], ({1: "a"},)),
    (Long, (Long(1), Long(2, "z"))),
    (Short, (Short(1),)),
    (Items, (Items([]), Items([1]))),
    (Model, (Model(x=1),)),
    (Wide, (Wide(x=1),)),
    (Plain, (Plain(1),)),
    (Tagged, (Tagged(1),)),
    (Cat, (Cat(),)),
    (Dog, (Dog(),)),
    (Keys, ({"x": 1, "y": "q"},)),
    (Named, (Named(1),)),
)


Make = Callable[[Any], Any]


def _dataclass(annotation: Any, frozen: bool = False) -> Any:
    fields = [("v", annotation), ("all", list[annotation]), ("by", dict[str, annotation])]
    return dataclasses.make_dataclass("Holder", fields, frozen=frozen)


def _struct(annotation: Any) -> Any:
    fields = [("v", annotation), ("all", list[annotation]), ("by", dict[str, annotation])]
    return msgspec.defstruct("Holder", fields)


def _model(annotation: Any) -> Any:
    return pydantic.create_model(
        "Holder",
        v=(annotation, ...),
        all=(list[annotation], ...),
        by=(dict[str, annotation], ...),
        __config__=pydantic.ConfigDict(arbitrary_types_allowed=True),
    )


def _typed_dict(annotation: Any) -> Any:
    made: Any = TypedDict
    fields = {"v": annotation, "all": list[annotation], "by": dict[str, annotation]}
    return made("Holder", fields)


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "dataclass": _dataclass,
    "frozen": lambda annotation: _dataclass(annotation, frozen=True),
    "model": _model,
    "typed dict": _typed_dict,
    "struct": _struct,
}


def whole(holder: Any, value: Any) -> Any:
    parts = {"v": value, "all": [value, value], "by": {"k": value}}
    parts = {name: copy.deepcopy(one) for name, one in parts.items()}
    parts["all"] = [copy.deepcopy(value), copy.deepcopy(value)]
    make = getattr(holder, "model_construct", holder)
    return make(**parts)


def part(state: Any, name: str) -> Any:
    return state[name] if isinstance(state, dict) else getattr(state, name)


def assign(state: Any, value: Any) -> None:
    if isinstance(state, dict):
        state["v"] = copy.deepcopy(value)
    else:
        state.v = copy.deepcopy(value)
    part(state, "all").append(copy.deepcopy(value))
    part(state, "all")[0] = copy.deepcopy(value)
    part(state, "by")["l"] = copy.deepcopy(value)


def change(value: Any, rng: random.Random) -> None:
    """Something inside a value, by what it looks like."""
    if isinstance(value, list):
        act: Any = rng.choice((value.append, lambda one: value.__setitem__(slice(0, 1), [one])))
        act(rng.choice((5, "b", Long(3), Short(3))))
    elif isinstance(value, set):
        value.add(rng.choice((5, "b")))
    elif isinstance(value, dict):
        rng.choice(
            (
                lambda: value.update({rng.choice(("x", "y", "z", 1)): rng.choice((5, "b", [1]))}),
                lambda: value.pop(next(iter(value), "x"), None),
            )
        )()
    elif hasattr(value, "z"):
        value.z.append(4)
    elif rng.random() < 0.7:
        value.x = 7
    else:
        value.y = rng.choice(("q", "w"))


class Watched:
    """An agent, with a handle that follows and what it should have."""

    def __init__(self, store: perdure.Store, name: str, holder: Any, value: Any) -> None:
        self.store, self.name, self.holder = store, name, holder
        self.agent = store.agent(name, holder, initial=whole(holder, value))
        self.agent.checkpoint(f"{name} made")
        self.follower = store.agent(name, holder)
        self.expected = whole(holder, value)
        self.look("made")

    def look(self, what: str) -> None:
        fresh = self.store.agent(self.name, self.holder)
        self.follower.refresh()
        for whose, one in (("its", self.agent), ("another", self.follower), ("a fresh", fresh)):
            found = difference(self.expected, one.state)
            assert found is None, f"{what}, {whose} handle: {found}"
        assert self.agent.drift() == self.follower.drift() == [], what

    def go(self, what: str, act: Callable[[], Any], expected: Any) -> bool:
        """Whether it was taken; if so, the state is as expected, also after undo and redo."""
        before, seq = self.expected, self.agent.seq
        try:
            act()
        except perdure.SchemaError:
            assert self.agent.refresh() is not None and self.agent.seq == seq
            self.look(f"{what}, refused")
            return False
        self.expected = expected
        self.look(what)
        if difference(before, expected) is None:
            return True
        self.agent.undo()
        self.expected = before
        self.look(f"{what}, undone")
        self.agent.redo()
        self.expected = expected
        self.look(f"{what}, redone")
        return True


def kept(holder: Any, value: Any) -> bool:
    """Whether a value is told apart from those of the other type; plain data may be converted."""
    schema = perdure.Schema(holder)
    given = whole(holder, value)
    try:
        back = schema.build(schema.take(given, aliases_refused=True))
    except perdure.SchemaError:
        return False
    return difference(given, back) is None


def pairs(share: int) -> list[Any]:
    found = itertools.permutations(range(len(MEMBERS)), 2)
    return [one for place, one in enumerate(found) if place % SHARE == share]


@pytest.mark.parametrize("kind", HOLDERS)
def test_a_field_of_two_types_is_what_a_fresh_look_says(kind: str) -> None:
    """`save` wrote what differs member by member into the object that was there: a Short, whose
    fields are a part of those of Long, was a Long for all open handles, and a Short in the log. A
    list of a field of two kinds of list was a plain copy in drafts, and what an edit did to it was
    lost."""
    place = list(HOLDERS).index(kind)
    taken = tried = 0
    with perdure.open("memory://") as store:
        for one, other in pairs(place):
            (first, values), (second, others) = MEMBERS[one], MEMBERS[other]
            holder = HOLDERS[kind](Union[first, second])  # noqa: UP007
            holder.__module__ = __name__
            usable = [value for value in (*values, *others) if kept(holder, value)]
            for count, (value, next_one) in enumerate(itertools.permutations(usable, 2)):
                name = f"{one} {other} {count}"
                watched = Watched(store, name, holder, value)
                tried += 1
                taken += _changes(watched, next_one, random.Random(name))
    assert tried > 20 and taken > 1.5 * tried, (tried, taken)


@dataclasses.dataclass
class Ticket:
    v: Short | Long
    tags: list[int] | list[str] | None = None
    by: dict[str, int] | dict[str, str] = dataclasses.field(default_factory=dict)
    marks: set[int] | set[str] = dataclasses.field(default_factory=set)
    notes: Long | dict[str, Any] = dataclasses.field(default_factory=lambda: {"a": 1})


def test_an_edit_in_place_makes_no_object_one_of_another_class() -> None:
    """Without the one field that tells it from a Short, a Long was read as a Short from then on."""
    with perdure.open("memory://") as store:
        agent = store.agent("a", Ticket, initial=Ticket(Long(1)))
        agent.checkpoint("made")

        def bare(draft: Any) -> None:
            del draft.v.y

        def shaped(draft: Any) -> None:
            draft.notes["x"] = 1

        for act, path in (
            (bare, r"state\.v: a Long would"),
            (shaped, r"state\.notes: a dict would"),
        ):
            with pytest.raises(perdure.Unstorable, match=path):
                agent.update(act)
            assert agent.state == store.agent("a", Ticket).state == Ticket(Long(1))
        agent.update(lambda draft: setattr(draft.v, "x", 2))
        assert agent.state == store.agent("a", Ticket).state == Ticket(Long(2))


class Lists(pydantic.BaseModel):
    ids: list[int] | list[str] = []
    notes: dict[str, int] | dict[str, str] = {}
    marks: set[int] | set[str] = set()
    items: list[Short] | list[Long] = []
    models: list[Model] | list[Wide] = []
    sizes: list[float] | list[str] = []


LISTS = Lists(
    ids=["007"],
    notes={"zip": "01234"},
    marks={"1"},
    items=[Short(1)],
    models=[Model(x=1)],
    sizes=[1.5],
)


@pytest.mark.parametrize(
    ("act", "path"),
    [
        (lambda draft: draft.ids.append(42), r"ids\[0\]: a str would come back as a int"),
        (lambda draft: draft.notes.update(n=5), r"notes\.zip: a str would come back as a int"),
        (lambda draft: draft.marks.add(3), r"marks: this set would come back as another one"),
        (lambda draft: draft.items.append(Long(1, "z")), r"items\[0\]: a Short would come back"),
        (lambda draft: draft.models.append(Wide(x=1)), r"models\[1\]: a Wide would come back"),
    ],
)
def test_an_edit_makes_no_list_one_of_another_kind(act: Any, path: str) -> None:
    """Story: a number was appended to a list of texts, which pydantic then takes for a list of
    numbers: the text "007" that was there was committed as 7. So it was with dicts and sets; and
    objects that were there, or came, were of another class from then on, without their fields."""
    with perdure.open("memory://") as store:
        agent = store.agent("a", Lists, initial=copy.deepcopy(LISTS))
        agent.checkpoint("made")
        with pytest.raises(perdure.Unstorable, match=path):
            agent.update(act)
        assert agent.state == store.agent("a", Lists).state == LISTS


def test_a_state_that_is_a_list_is_made_none_of_another_kind() -> None:
    """Story: as above, with nothing around the list."""
    type_: Any = list[Model] | list[Wide]
    with perdure.open("memory://") as store:
        agent = store.agent("a", type_, initial=[Model(x=1)])
        agent.checkpoint("made")
        with pytest.raises(perdure.Unstorable, match=r"state\[1\]: a Wide would come back"):
            agent.update(lambda draft: draft.append(Wide(x=1)))
        assert agent.state == store.agent("a", type_).state == [Model(x=1)]


def test_what_an_edit_brings_is_converted_to_the_kind_of_the_list() -> None:
    with perdure.open("memory://") as store:
        agent = store.agent("a", Lists, initial=LISTS)

        def act(draft: Any) -> None:
            draft.sizes.append(2)
            draft.ids[:] = ["x"]
            draft.models.append({"x": 2, "y": "z"})
            draft.notes = {"n": 5}

        agent.update(act)
        after = {"ids": ["x"], "models": [Model(x=1), Model(x=2, y="z")], "notes": {"n": 5}}
        expected = LISTS.model_copy(update={**after, "sizes": [1.5, 2.0]})
        assert agent.state == store.agent("a", Lists).state == expected


class Few(pydantic.BaseModel):
    few: list[int] = pydantic.Field(default=[], max_length=1)


class Many(pydantic.BaseModel):
    many: list[int] = []


class Boxes(pydantic.BaseModel):
    all: list[Few | Many] = []
    lists: list[list[Model] | list[Wide]] = []


@pytest.mark.parametrize(
    ("act", "path"),
    [
        (lambda draft: draft.all[-1].few.append(2), r"all\[0\]\.few: .* at most 1 item"),
        (lambda draft: draft.lists[-1].append(Wide(x=1)), r"\[0\]\[1\]: a Wide would come back"),
    ],
)
def test_what_came_in_becomes_none_of_another_class_in_the_same_edit(act: Any, path: str) -> None:
    """Story: an object was appended, and got a second item in the same edit, which its class does
    not allow. The union's other class does not forbid what it does not know: an empty object of
    that class was committed, and both items were gone, without a word."""
    with perdure.open("memory://") as store:
        agent = store.agent("a", Boxes)
        with pytest.raises(perdure.SchemaError, match=path), agent.edit() as draft:
            draft.all.append(Few(few=[1]))
            draft.lists.append([Model(x=1)])
            act(draft)
        assert agent.state == store.agent("a", Boxes).state == Boxes()
        with agent.edit() as draft:
            draft.all.append(Few(few=[1]))
            draft.lists.append([Model(x=1)])
            held: Any = [draft.all[-1], draft.lists[-1]]
            act(draft)
            held[0].few = [3]
            del held[1][1:]
        after = Boxes(all=[Few(few=[3])], lists=[[Model(x=1)]])
        assert agent.state == store.agent("a", Boxes).state == after


class Word(enum.StrEnum):
    YES = "yes"


def test_a_list_whose_items_alone_are_of_no_type_is_saved_and_taken_back() -> None:
    """Story: a draft shows the items of such a list one by one, as of an Enum or bytes. msgspec,
    which reads fields without a library of their own, takes no union of the two; so a save of
    another list of bytes was refused, and the undo of one, though neither is a draft's."""
    type_: Any = dict[str, list[Word] | Sequence[bytes]]
    with perdure.open("memory://") as store:
        agent = store.agent("a", type_, initial={"a": [b"1"]})
        agent.checkpoint("made")
        agent.save({"a": [b"1", b"2"]})
        assert agent.state == store.agent("a", type_).state == {"a": [b"1", b"2"]}
        agent.undo()
        assert agent.state == store.agent("a", type_).state == {"a": [b"1"]}


class Spots(pydantic.BaseModel):
    v: Named | dict[str, Any]


def test_a_dict_that_would_be_a_named_tuple_stays_as_it_was() -> None:
    """The refused edit was taken back in the dict that validation had put another value for,
    and the state kept what was refused."""
    with perdure.open("memory://") as store:
        agent = store.agent("a", Spots, initial=Spots(v={"x": [1]}))
        agent.checkpoint("made")
        with pytest.raises(perdure.Unstorable, match="a dict would come back as a Named"):
            agent.update(lambda draft: draft.v.update(x=5))  # type: ignore[union-attr]
        assert agent.state == store.agent("a", Spots).state == Spots(v={"x": [1]})


def test_a_list_of_one_kind_or_another_is_edited_as_what_it_is() -> None:
    """What an edit did to it was done to a copy, and lost without a word; of dicts, only the items
    of the first kind were taken."""
    with perdure.open("memory://") as store:
        value = Ticket(Short(1), ["a"], {"a": "x"}, {"a"})
        agent = store.agent("a", Ticket, initial=value)
        agent.checkpoint("made")

        def act(draft: Any) -> None:
            draft.tags.append("b")
            draft.tags[0] = "z"
            draft.by["b"] = "y"
            draft.marks.add("b")

        agent.update(act)
        after = Ticket(Short(1), ["z", "b"], {"a": "x", "b": "y"}, {"a", "b"})
        assert agent.state == store.agent("a", Ticket).state == after
        for change in (
            lambda draft: draft.tags.append(1),
            lambda draft: draft.by.update(c=1),
            lambda draft: draft.marks.add(1),
        ):
            with pytest.raises(perdure.SchemaError):
                agent.update(change)
        assert agent.state == store.agent("a", Ticket).state == after


def test_a_change_outside_edit_is_found_where_a_member_is_built_anew() -> None:
    with perdure.open("memory://") as store:
        agent = store.agent("a", Ticket, initial=Ticket(Short(1), ["a"]))
        agent.checkpoint("made")
        agent.state.tags.append("mine")  # type: ignore[union-attr, arg-type]
        with pytest.raises(perdure.Drifted, match=r"state\.tags"):
            agent.update(lambda draft: draft.tags.append("b"))  # type: ignore[union-attr, arg-type]


def _changes(watched: Watched, value: Any, rng: random.Random) -> int:
    """How many were taken of: a save, an edit that assigns, one in place."""
    agent, holder = watched.agent, watched.holder
    old = part(watched.expected, "v")
    taken: int = watched.go("save", lambda: agent.save(whole(holder, value)), whole(holder, value))
    back = whole(holder, old)
    taken += watched.go("save back", lambda: agent.save(back), whole(holder, old))
    expected: Any = whole(dict, part(watched.expected, "v"))
    assign(expected, value)
    expected = getattr(holder, "model_construct", holder)(**expected)
    taken += watched.go("assign", lambda: agent.update(lambda d: assign(d, value)), expected)
    seed = rng.random()
    for pick in (
        lambda state: part(state, "v"),
        lambda state: part(state, "all")[0],
        lambda state: part(state, "by")["k"],
    ):
        expected = copy.deepcopy(watched.expected)
        inside = pick(expected)
        try:
            change(inside, random.Random(seed))
        except (AttributeError, TypeError, ValueError):
            continue  # nothing inside can be changed, in no draft either
        taken += watched.go(
            "in place",
            lambda pick=pick: agent.update(lambda d: change(pick(d), random.Random(seed))),  # type: ignore[misc]
            expected,
        )
    return taken


class NoteBefore(pydantic.BaseModel):
    text: str = ""
    replies: list[NoteBefore | TaskBefore] = []


class TaskBefore(pydantic.BaseModel):
    title: str = ""
    replies: list[NoteBefore | TaskBefore] = []


class BoardBefore(pydantic.BaseModel):
    top: list[NoteBefore | TaskBefore] = []
    n: int = 0


class NoteAfter(pydantic.BaseModel):
    text: str = ""
    replies: list[NoteAfter | TaskAfter] = []
    likes: int = 0


class TaskAfter(pydantic.BaseModel):
    title: str = ""
    replies: list[NoteAfter | TaskAfter] = []
    likes: int = 0


class BoardAfter(pydantic.BaseModel):
    top: list[NoteAfter | TaskAfter] = []
    n: int = 0


def test_an_older_program_reads_nested_unions_in_proportion() -> None:
    """Story: a thread of comments, each a note or a task, to which a newer program added a field.
    At each level the older one asked all below anew, whether it fits: one of 25 took days."""

    def edit(depth: int) -> Callable[[], object]:
        value: Any = NoteAfter(text="x")
        for at in range(depth):
            value = NoteAfter(replies=[value]) if at % 2 else TaskAfter(title="x", replies=[value])
        newer = perdure.Schema(BoardAfter, id="b", version=(1, 1))
        store.agent(str(depth), newer, initial=BoardAfter(top=[value])).checkpoint("made")
        older = store.agent(str(depth), perdure.Schema(BoardBefore, id="b", version=(1, 0)))
        return lambda: older.update(lambda draft: setattr(draft, "n", 1))

    with perdure.open("memory://") as store:
        work_of(edit(3))  # makes the nodes
        little, much = work_of(edit(5)), work_of(edit(10))
    assert much < 12 * little  # doubled at each level: 32


@dataclasses.dataclass
class Number:
    below: Number | Name | None = None
    value: int = 0


@dataclasses.dataclass
class Name:
    below: Number | Name | None = None
    value: str = ""


def test_nested_unions_of_classes_that_differ_by_a_type() -> None:
    """Story: for each of the two classes all below was built, at each level, before the field that
    tells them apart: a tree of sixteen took minutes."""
    value = Name()
    for _ in range(40):
        value = Name(value, "x")
    with perdure.open("memory://") as store:
        type_: Any = dict[str, Number | Name]
        agent = store.agent("a", type_, initial={"root": value})
        agent.checkpoint("made")
        assert store.agent("a", type_).state == {"root": value}
        agent.update(lambda draft: draft.update(more=Number()))
