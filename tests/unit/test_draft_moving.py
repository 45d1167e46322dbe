"""What is inside a tuple, or was taken out of a draft, may be put anywhere in it."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perdure
from perdure.core.draft.draft import Recording
from perdure.core.schema.schema import Schema
from perdure.errors import SharedValue

Pair = tuple[str, dict[str, Any]]


class Said(NamedTuple):
    who: str
    what: dict[str, Any]


@dataclass
class Chat:
    pairs: list[Pair] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)
    rest: dict[str, Any] = field(default_factory=dict)


A: Pair = ("a", {"x": [1]})
B: Pair = ("b", {})


def chat() -> Chat:
    return Chat(copy.deepcopy([A, B]), [Said(*one) for one in copy.deepcopy([A, B])])


def attributes(**named: Any) -> Callable[[Chat], None]:
    def change(draft: Chat) -> None:
        for name, call in named.items():
            setattr(draft, name, call(draft))

    return change


SORT: Callable[[Any], None] = lambda items: items.sort(key=lambda item: item["n"])  # noqa: E731
SORT_BACK: Callable[[Any], None] = lambda items: items.sort(  # noqa: E731
    key=lambda item: item["n"], reverse=True
)
REVERSE: Callable[[Any], None] = lambda items: items.reverse()  # noqa: E731
SWAP: Callable[[Any], None] = lambda items: perdure.move(items, 0, 1)  # noqa: E731
SLICE: Callable[[Any], None] = lambda items: items.__setitem__(  # noqa: E731
    slice(None), [items[1], items[0]]
)


@pytest.mark.parametrize("there", [REVERSE, SORT, SWAP, SLICE])
@pytest.mark.parametrize("back", [REVERSE, SORT_BACK, SWAP, SLICE])
@pytest.mark.parametrize("inner", [False, True])
def test_what_was_changed_in_another_order_is_not_taken_back_with_it(
    there: Callable[[Any], None], back: Callable[[Any], None], inner: bool
) -> None:
    """Items were sorted by something, the first was changed, and they were sorted as before: the
    list had the same items in the same order, and the edit was taken for one that had changed
    nothing. The change was lost without a word."""
    with perdure.open("memory://") as store:
        agent = store.agent("a", initial={"l": [{"n": "f", "v": [1]}, {"n": "c", "v": [1]}]})
        agent.checkpoint("before")
        with agent.edit("sorted, changed, sorted back") as draft:
            there(draft["l"])
            if inner:
                draft["l"][0]["v"].append(2)
            else:
                draft["l"][0]["s"] = 9
            back(draft["l"])
        changed = {"n": "c", "v": [1, 2]} if inner else {"n": "c", "v": [1], "s": 9}
        assert agent.state == {"l": [{"n": "f", "v": [1]}, changed]}
        assert store.agent("a").state == agent.state
        agent.undo()
        assert agent.state == {"l": [{"n": "f", "v": [1]}, {"n": "c", "v": [1]}]}
        seq = agent.seq
        with agent.edit("nothing") as draft:
            there(draft["l"])
            back(draft["l"])
        assert agent.seq == seq


@pytest.mark.parametrize(
    ("change", "pairs", "said"),
    [
        (attributes(pairs=lambda d: d.pairs[-1:]), [B], [A, B]),
        (attributes(pairs=lambda d: [one for one in d.pairs if one[0] == "a"]), [A], [A, B]),
        (attributes(pairs=lambda d: sorted(d.pairs, reverse=True)), [B, A], [A, B]),
        (attributes(said=lambda d: d.said[::-1]), [A, B], [B, A]),
        (lambda d: d.pairs.append(d.pairs.pop(0)), [B, A], [A, B]),
        (lambda d: d.said.insert(0, d.said.pop()), [A, B], [B, A]),
        (lambda d: d.pairs.extend([d.pairs[0], d.pairs[0]]), [A, B, A, A], [A, B]),
        (lambda d: d.pairs.__setitem__(slice(0, 1), [d.pairs[1]]), [B, B], [A, B]),
    ],
)
def test_a_tuple_that_holds_a_container_goes_anywhere(
    change: Callable[[Any], None], pairs: list[Any], said: list[Any]
) -> None:
    """`draft.msgs = draft.msgs[-20:]`, the most natural edit of all, was refused where an item was
    a tuple with a dict in it: "it already stands at" its own place."""
    with perdure.open("memory://") as store:
        agent = store.agent("a", Chat, initial=chat())
        before = agent.state
        with agent.edit() as draft:
            change(draft)
        assert (agent.state.pairs, agent.state.said) == (pairs, said)
        agent.verify()
        agent.undo()
        assert agent.state == before
        assert store.agent("a", Chat).state == before


def test_what_was_taken_out_may_be_put_back_elsewhere() -> None:
    """It was refused as standing where it had been deleted."""
    with perdure.open("memory://") as store:
        agent = store.agent("a", Chat, initial=Chat(rest={"one": {"x": [1]}}))
        with agent.edit() as draft:
            one, inner = draft.rest["one"], draft.rest["one"]["x"]
            del draft.rest["one"]
            draft.rest["two"], draft.rest["three"] = one, inner
        assert agent.state.rest == {"two": {"x": [1]}, "three": [1]}
        with pytest.raises(SharedValue, match=r"state\.rest\.two"), agent.edit() as draft:
            draft.rest["four"] = [draft.rest["two"], ("in a tuple", draft.rest["three"])]
        agent.verify()


@dataclass
class Task:
    done: bool = False
    parts: list[Task] = field(default_factory=list)


@dataclass
class Plan:
    tasks: dict[str, Task] = field(default_factory=dict)
    tree: Task = field(default_factory=Task)


def plan() -> Plan:
    return Plan(
        {"b": Task(True), "a": Task(parts=[Task(True)])}, Task(parts=[Task(True, [Task()])])
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda p: setattr(p, "tasks", {k: t for k, t in p.tasks.items() if not t.done}),
        lambda p: setattr(p, "tasks", dict(sorted(p.tasks.items()))),
        lambda p: setattr(p, "tasks", {**p.tasks, "c": Task()}),
        lambda p: setattr(p, "tasks", {"c": p.tasks["a"], "d": p.tasks["b"]}),
        lambda p: setattr(p, "tree", p.tree.parts[0]),
        lambda p: p.tasks.__setitem__("a", p.tasks["a"].parts[0]),
        lambda p: setattr(p.tree, "parts", [p.tree.parts[0].parts[0], p.tree.parts[0]][:1]),
    ],
)
def test_what_is_in_a_container_may_be_in_what_comes_instead(change: Callable[[Any], None]) -> None:
    """`draft.tasks = {name: task for … if not task.done}` was refused, where the same of a list
    was not: each task "already stands at" the place that it had."""
    with perdure.open("memory://") as store:
        agent, wanted = store.agent("a", Plan, initial=plan()), plan()
        change(wanted)
        with agent.edit() as draft:
            change(draft)
        assert agent.state == wanted
        assert list(agent.state.tasks) == list(wanted.tasks)
        agent.verify()
        agent.undo()
        assert agent.state == plan() and list(agent.state.tasks) == ["b", "a"]


@pytest.mark.parametrize(
    "change",
    [
        lambda p: setattr(p, "tasks", {"c": p.tasks["a"], "d": p.tasks["a"]}),
        lambda p: setattr(p, "tasks", {"c": p.tree}),
        lambda p: p.tasks.__setitem__("a", p.tasks["b"]),
    ],
)
def test_what_stands_elsewhere_still_is_refused(change: Callable[[Any], None]) -> None:
    with perdure.open("memory://") as store:
        agent = store.agent("a", Plan, initial=plan())
        with pytest.raises(SharedValue), agent.edit() as draft:
            change(draft)
        assert agent.state == plan()


def test_what_is_freed_is_gone_through_once() -> None:
    """What is inside itself, or has a part at two places 60 times over, is refused in time."""
    inside: list[Any] = []
    inside += [inside, inside]
    folded: Any = [1]
    for _ in range(60):
        folded = [folded, folded]
    with perdure.open("memory://") as store:
        agent = store.agent("a", Chat, initial=chat())
        for value in (inside, folded):
            with pytest.raises(SharedValue), agent.edit() as draft:
                draft.rest["value"] = [draft.pairs[0], value]


class Card(pydantic.BaseModel):
    title: str = ""
    tags: list[str] = []
    by: dict[str, list[str]] = {}


class Slip(msgspec.Struct):
    title: str = ""
    tags: list[str] = []
    by: dict[str, list[str]] = {}


@dataclass(frozen=True)
class Note:
    title: str = ""
    tags: list[str] = field(default_factory=list)
    by: dict[str, list[str]] = field(default_factory=dict)


def with_title(one: Any, title: str) -> Any:
    """A new instance with the parts of this one, as `dataclasses.replace` makes it."""
    return one.__class__(title=title, tags=one.tags, by=one.by)


@functools.cache
def boards(kind: Any) -> Any:
    return dataclasses.make_dataclass(
        "Board", [("items", list[kind]), ("named", dict[str, kind]), ("pair", tuple[kind, kind])]
    )


def board(kind: Any) -> Any:
    made = [kind(title=one, tags=[one], by={one: [one]}) for one in "abcdefg"]
    return boards(kind)(items=made[:3], named={"x": made[3], "y": made[4]}, pair=tuple(made[5:]))


def free(one: Any) -> Any:
    """What is in a tuple: to have it at two places is no harm, as nobody can change it there."""
    return one if hasattr(type(one), "__perdure_place__") else copy.deepcopy(one)


def values_of(one: Any) -> Callable[[Any], Any]:
    """Makes a value of a board: of the item at an index, of two, or a new one."""
    kind, at, other = one
    made: dict[str, Callable[[Any], Any]] = {
        "own": lambda b: b.items[at],
        "replaced": lambda b: with_title(b.items[at], "r"),
        "crossed": lambda b: b.items[at].__class__(tags=b.items[at].tags, by=b.items[other].by),
        "inner": lambda b: b.items[at].__class__(by={"in": b.items[at].tags}),
        "named": lambda b: with_title(b.named["x"], "n"),
        "of a tuple": lambda b: with_title(free(b.pair[at % 2]), "t"),
        "new": lambda b: b.items[at].__class__(title="new"),
    }
    return made[kind]


places = st.integers(0, 2)
makers = st.builds(
    values_of,
    st.tuples(
        st.sampled_from(
            ["own", "replaced", "replaced", "crossed", "inner", "named", "of a tuple", "new"]
        ),
        places,
        places,
    ),
)
puttings = st.one_of(
    st.builds(lambda at, m: lambda b: b.items.__setitem__(at, m(b)), places, makers),
    st.builds(
        lambda at, to, ms: lambda b: b.items.__setitem__(slice(at, to), [m(b) for m in ms]),
        places,
        places,
        st.lists(makers, min_size=1, max_size=4),
    ),
    st.builds(
        lambda m, n: lambda b: b.items.__setitem__(slice(None, None, 2), [m(b), n(b)]),
        makers,
        makers,
    ),
    st.builds(lambda ms: lambda b: setattr(b, "items", [m(b) for m in ms]), st.lists(makers)),
    st.builds(lambda m: lambda b: b.named.__setitem__("x", m(b)), makers),
    st.builds(
        lambda m: lambda b: setattr(b, "named", {k: with_title(v, k) for k, v in b.named.items()}),
        makers,
    ),
    st.builds(lambda m: lambda b: setattr(b, "pair", (m(b), free(b.pair[0]))), makers),
    st.just(lambda b: b.items.__setitem__(slice(None), [with_title(i, "all") for i in b.items])),
    st.builds(lambda m: lambda b: b.items.append(m(b)), makers),
)


def stands_twice(board: Any) -> bool:
    met: list[Any] = []
    for one in [*board.items, *board.named.values(), *board.pair]:
        met += [one.tags, one.by, *one.by.values()]
        if type(one) is not Note:
            met.append(one)
    return len({id(one) for one in met}) < len(met)


@pytest.mark.parametrize("kind", [Note, Card, Slip])
def test_parts_come_along_with_what_replaces_them_each_once(kind: Any) -> None:
    """`draft[0] = dataclasses.replace(draft[0], done=True)` was refused: "state[0].tags: it already
    stands at state[0].tags", where nothing would have stood twice. Of lists and dicts it worked."""
    schema: Schema[Any] = Schema(boards(kind))

    @settings(max_examples=150, deadline=None)
    @given(st.lists(puttings, min_size=1, max_size=4))
    def check(todo: list[Callable[[Any], None]]) -> None:
        mirror = board(kind)
        plain = schema.take(mirror, aliases_refused=True)
        before = copy.deepcopy(plain)
        recording = Recording(schema, plain)
        for act in todo:
            kept = copy.deepcopy(mirror)
            try:
                act(mirror)
            except (LookupError, ValueError) as error:
                with pytest.raises(type(error)):
                    act(recording.draft)
                mirror = kept
                continue
            if stands_twice(mirror):
                with pytest.raises(SharedValue):
                    act(recording.draft)
                mirror = kept
            else:
                act(recording.draft)
            mirror = copy.deepcopy(mirror)
            assert recording.draft == mirror
        recording.rollback()
        assert recording.plain == before

    check()


@dataclasses.dataclass
class Loose:
    tags: list[str] = field(default_factory=list)
    done: bool = False


class LooseStruct(msgspec.Struct, dict=True):
    tags: list[str] = []
    done: bool = False


@pytest.mark.parametrize("kind", [Loose, LooseStruct])
def test_what_no_field_declares_is_refused_beside_parts_that_come_along(kind: Any) -> None:
    """The copy of an object that its parts come along with has all that the object has: what would
    be lost is refused as ever, and the caller's object stays as it is."""
    schema: Schema[Any] = Schema(list[kind])
    recording = Recording(schema, [{"tags": ["a"], "done": False}])
    tags = recording.draft[0].tags
    given = kind(tags, True)
    given.stray = 1
    with pytest.raises(perdure.Unstorable, match="stray"):
        recording.draft[0] = given
    del given.stray
    recording.draft[0] = given
    assert given.tags is tags and recording.plain == [{"tags": ["a"], "done": True}]
    recording.draft[0].tags.append("b")
    with pytest.raises(perdure.errors.SchemaError, match="no longer part"):
        tags.append("c")
    assert recording.plain == [{"tags": ["a", "b"], "done": True}]
