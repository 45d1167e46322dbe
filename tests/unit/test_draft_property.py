"""Whatever is done to a draft equals the same done to plain data; its record is the change."""

from __future__ import annotations

import copy as copying
from dataclasses import dataclass, field
from typing import Any, TypedDict

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from perdure.core.draft.draft import Recording, increment, move, view
from perdure.core.schema.schema import Schema
from perdure.core.values import codec, ops
from perdure.core.values.plain_values import copy, same
from perdure.errors import SchemaError

LONG = "the quick brown fox jumps over the lazy dog, again and again and again; "

keys = st.sampled_from(["a", "b", "c"])
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from(["", "x", LONG, LONG + "y"])
)
plain = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(keys, inner, max_size=3),
        st.sets(st.integers(0, 4), max_size=3),
    ),
    max_leaves=6,
)
states = st.dictionaries(keys, plain, min_size=1, max_size=3)
small = st.integers(-4, 5)


def containers(root: Any) -> list[Any]:
    """Every container in a tree or draft, in one order for both."""
    found = [root]
    if isinstance(root, dict):
        for key in list(root):
            found += containers(root[key])
    elif isinstance(root, list):
        for item in list(root):
            found += containers(item)
    elif not isinstance(root, set):
        return []
    return found


def outcome(function: Any, target: Any) -> Any:
    try:
        return function(target)
    except (LookupError, ValueError, TypeError, SchemaError) as error:
        return type(error)


def set_text(items: Any, index: int) -> None:
    items[index] = items[index] + "more"


def there_and_back(items: Any, index: int) -> None:
    """Put items into another order, change one of them, and put them into their order again."""
    items.reverse()
    try:
        grow(items[index])
    finally:
        items.reverse()


def grow(item: Any) -> None:
    if isinstance(item, dict):
        item["n"] = len(item)
    elif isinstance(item, list):
        item.append(len(item))
    elif isinstance(item, set):
        item.add(len(item))


def repeat(items: Any, times: int) -> None:
    if type(items) is list:  # a list would repeat the same objects; a state is a tree
        items[:] = [copying.deepcopy(item) for _ in range(times) for item in items]
    else:
        items *= times


list_acts = st.one_of(
    st.builds(lambda v: lambda t: t.append(copying.deepcopy(v)), plain),
    st.builds(lambda v: lambda t: t.extend(copying.deepcopy(v)), st.lists(plain, max_size=3)),
    st.builds(lambda i, v: lambda t: t.insert(i, copying.deepcopy(v)), small, plain),
    st.builds(lambda i: lambda t: t.pop(i), small),
    st.builds(lambda v: lambda t: t.remove(v), scalars),
    st.builds(lambda i, v: lambda t: t.__setitem__(i, copying.deepcopy(v)), small, plain),
    st.builds(lambda i: lambda t: t.__delitem__(i), small),
    st.builds(
        lambda i, j, v: lambda t: t.__setitem__(slice(i, j), copying.deepcopy(v)),
        small, small, st.lists(plain, max_size=3),
    ),
    st.builds(
        lambda i, v: lambda t: t.__setitem__(slice(i, None, 2), copying.deepcopy(v)),
        small, st.lists(plain, max_size=3),
    ),
    st.builds(
        lambda i, j, s: lambda t: t.__delitem__(slice(i, j, s)),
        small, small, st.sampled_from([None, 2, -1]),
    ),
    st.just(lambda t: t.reverse()),
    st.builds(lambda i: lambda t: there_and_back(t, i), small),
    st.just(lambda t: t.sort(key=repr)),
    st.just(lambda t: t.clear()),
    st.builds(lambda n: lambda t: repeat(t, n), st.integers(0, 2)),
    st.builds(lambda i: lambda t: set_text(t, i), small),
    st.builds(lambda i, j: lambda t: move(t, i, j), small, small),
    st.builds(
        lambda n: lambda t: t.__setitem__(slice(None), [x for x in t if len(repr(x)) % 3 != n]),
        st.integers(0, 2),
    ),
)  # fmt: skip
dict_acts = st.one_of(
    st.builds(lambda k, v: lambda t: t.__setitem__(k, copying.deepcopy(v)), keys, plain),
    st.builds(lambda k: lambda t: t.__delitem__(k), keys),
    st.builds(lambda k: lambda t: t.pop(k), keys),
    st.builds(lambda k: lambda t: t.pop(k, None), keys),
    st.just(lambda t: t.popitem()),
    st.builds(lambda k, v: lambda t: t.setdefault(k, copying.deepcopy(v)), keys, plain),
    st.builds(
        lambda v: lambda t: t.update(copying.deepcopy(v)), st.dictionaries(keys, plain, max_size=2)
    ),
    st.just(lambda t: t.clear()),
    st.builds(lambda k: lambda t: set_text(t, k), keys),
    st.builds(lambda k, n: lambda t: increment(t, k, n), keys, st.integers(-2, 2)),
)
set_acts = st.one_of(
    st.builds(lambda v: lambda t: t.add(v), st.integers(0, 5)),
    st.builds(lambda v: lambda t: t.discard(v), st.integers(0, 5)),
    st.builds(lambda v: lambda t: t.remove(v), st.integers(0, 5)),
    st.builds(lambda v: lambda t: t.__ior__(v) and None, st.sets(st.integers(0, 5))),
    st.builds(lambda v: lambda t: t.__iand__(v) and None, st.sets(st.integers(0, 5))),
    st.builds(lambda v: lambda t: t.__ixor__(v) and None, st.sets(st.integers(0, 5))),
    st.just(lambda t: t.clear()),
)
acts = st.lists(
    st.tuples(st.integers(0, 30), st.fixed_dictionaries(
        {"list": list_acts, "dict": dict_acts, "set": set_acts})),
    max_size=12,
)  # fmt: skip


def orders(root: Any) -> list[list[str]]:
    """The keys of every dict, in order."""
    return [list(one) for one in containers(root) if isinstance(one, dict)]


def through_the_log(recorded: list[Any]) -> list[Any]:
    """Ops as a reader of the log has them."""
    return [ops.from_wire(codec.decode(codec.encode(ops.to_wire(op)))) for op in recorded]


def check_record(recording: Recording, before: Any, after: Any) -> None:
    assert same(ops.fold(copy(before), through_the_log(recording.ops)), after)
    back = ops.fold(copy(after), through_the_log(recording.inverses)[::-1])
    assert same(back, before)


def run(recording: Recording, mirror: Any, todo: Any) -> None:
    for pick, by_kind in todo:
        drafts, mirrors = containers(recording.draft), containers(mirror)
        assert len(drafts) == len(mirrors)
        place = pick % len(drafts)
        act = by_kind[type(mirrors[place]).__name__]
        result = outcome(act, drafts[place])
        expected = outcome(act, mirrors[place])
        assert isinstance(expected, type) == isinstance(result, type), (result, expected)
        if not isinstance(expected, type):
            assert result == expected
        assert same(recording.plain, mirror)


@settings(max_examples=300, deadline=None)
@given(states, acts)
def test_a_draft_of_a_dict_is_like_a_dict(state: dict[str, Any], todo: Any) -> None:
    schema = Schema.of(None)
    tree = schema.take(state, aliases_refused=True)
    order = orders(tree)
    typed = schema.build(tree)
    recording = Recording(schema, tree)
    mirror = copying.deepcopy(state)
    run(recording, mirror, todo)
    assert recording.changed or (same(mirror, state) and orders(mirror) == orders(state))
    check_record(recording, state, mirror)
    assert copying.deepcopy(recording.draft) == mirror
    assert view(schema, tree) == mirror

    plan = schema.plan(typed, tree, recording.ops, recording.inverses)
    assert same(typed, state), "planning leaves the live object alone"
    after = plan.apply()
    assert after is typed
    assert same(after, mirror)
    assert list(after) == list(mirror)
    assert schema.drift(after, tree) == []

    recording.close()
    recording.rollback()
    assert same(recording.plain, state)
    assert orders(recording.plain) == order


class Item(BaseModel):
    name: str = ""
    count: int = 0
    notes: list[str] = []
    parts: dict[str, list[int]] = {}


class Model(BaseModel):
    title: str = LONG
    items: list[Item] = []
    by_key: dict[str, Item] = {}
    tags: set[int] = set()
    one: Item | None = None


@dataclass
class DItem:
    name: str = ""
    count: int = 0
    notes: list[str] = field(default_factory=list)
    parts: dict[str, list[int]] = field(default_factory=dict)


@dataclass
class DModel:
    title: str = LONG
    items: list[DItem] = field(default_factory=list)
    by_key: dict[str, DItem] = field(default_factory=dict)
    tags: set[int] = field(default_factory=set)
    one: DItem | None = None


class SItem(msgspec.Struct):
    name: str = ""
    count: int = 0
    notes: list[str] = []
    parts: dict[str, list[int]] = {}


class SModel(msgspec.Struct):
    title: str = LONG
    items: list[SItem] = []
    by_key: dict[str, SItem] = {}
    tags: set[int] = set()
    one: SItem | None = None


class TItem(TypedDict):
    name: str
    count: int
    notes: list[str]
    parts: dict[str, list[int]]


class TModel(TypedDict):
    title: str
    items: list[TItem]
    by_key: dict[str, TItem]
    tags: set[int]
    one: TItem | None


raw_items = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["n", LONG]),
        "count": st.integers(0, 3),
        "notes": st.lists(st.sampled_from(["x", "y"]), max_size=3),
        "parts": st.dictionaries(keys, st.lists(st.integers(0, 3), max_size=2), max_size=2),
    }
)
raw_models = st.fixed_dictionaries(
    {
        "title": st.just(LONG),
        "items": st.lists(raw_items, max_size=4),
        "by_key": st.dictionaries(keys, raw_items, max_size=2),
        "tags": st.sets(st.integers(0, 4)),
        "one": st.none() | raw_items,
    }
)
on_items = st.one_of(
    st.builds(lambda v: lambda t: t.append(copying.deepcopy(v)), raw_items),
    st.builds(lambda i, v: lambda t: t.insert(i, copying.deepcopy(v)), small, raw_items),
    st.builds(lambda i: lambda t: t.pop(i) and None, small),
    st.builds(lambda i, v: lambda t: t.__setitem__(i, copying.deepcopy(v)), small, raw_items),
    st.builds(lambda i, j: lambda t: t.__delitem__(slice(i, j)), small, small),
    st.builds(lambda i, j: lambda t: move(t, i, j), small, small),
    st.just(lambda t: t.reverse()),
    st.just(lambda t: t.clear()),
)


def get(target: Any, name: str) -> Any:
    return target[name] if isinstance(target, dict) else getattr(target, name)


def put(target: Any, name: str, value: Any) -> None:
    if isinstance(target, dict):
        target[name] = value
    else:
        setattr(target, name, value)


on_item = st.one_of(
    st.builds(lambda n: lambda t: put(t, "count", n), st.integers(0, 5)),
    st.builds(lambda n: lambda t: increment(t, "count", n), st.integers(-2, 2)),
    st.builds(lambda s: lambda t: put(t, "name", get(t, "name") + s), st.sampled_from(["", "+"])),
    st.builds(lambda s: lambda t: get(t, "notes").append(s), st.sampled_from(["x", "z"])),
    st.builds(lambda i: lambda t: get(t, "notes").pop(i), small),
    st.builds(lambda v: lambda t: put(t, "notes", list(v)), st.lists(st.just("w"), max_size=2)),
    st.builds(
        lambda k, n: lambda t: get(t, "parts").setdefault(k, []).append(n), keys, st.integers(0, 3)
    ),
    st.builds(lambda k: lambda t: get(t, "parts").pop(k, None), keys),
)
on_model = st.one_of(
    st.builds(lambda f: lambda t: f(get(t, "items")), on_items),
    st.builds(lambda i, f: lambda t: f(get(t, "items")[i]), small, on_item),
    st.builds(lambda k, f: lambda t: f(get(t, "by_key")[k]), keys, on_item),
    st.builds(
        lambda k, v: lambda t: get(t, "by_key").__setitem__(k, copying.deepcopy(v)), keys, raw_items
    ),
    st.builds(lambda k: lambda t: get(t, "by_key").pop(k, None) and None, keys),
    st.builds(lambda v: lambda t: put(t, "one", copying.deepcopy(v)), st.none() | raw_items),
    st.builds(lambda f: lambda t: f(get(t, "one")) if get(t, "one") is not None else None, on_item),
    st.builds(lambda n: lambda t: get(t, "tags").add(n), st.integers(0, 5)),
    st.builds(lambda n: lambda t: get(t, "tags").discard(n), st.integers(0, 5)),
    st.builds(lambda s: lambda t: put(t, "title", get(t, "title") + s), st.sampled_from(["", "!"])),
)


@pytest.mark.parametrize("type_", [Model, DModel, SModel, TModel])
def test_a_draft_of_an_object_is_like_the_object(type_: Any) -> None:
    schema: Schema[Any] = Schema(type_)

    @settings(max_examples=150, deadline=None)
    @given(raw_models, st.lists(on_model, max_size=10))
    def check(raw: Any, todo: list[Any]) -> None:
        before = schema.take(raw, aliases_refused=True)
        assert same(before, raw)
        typed = schema.build(before)
        tree, mirror = copy(before), copying.deepcopy(raw)
        recording = Recording(schema, tree)
        for act in todo:
            assert isinstance(outcome(act, recording.draft), type) == isinstance(
                outcome(act, mirror), type
            )
            assert same(recording.plain, mirror)
        assert recording.changed or same(mirror, before)
        check_record(recording, before, mirror)
        plan = schema.plan(typed, tree, recording.ops, recording.inverses)
        assert same(schema.take(typed, aliases_refused=True), before)
        after = plan.apply()
        assert after == schema.build(tree)
        assert same(schema.take(after, aliases_refused=True), tree)
        assert same(tree, mirror)
        assert schema.drift(after, tree) == []
        assert same(recording.rollback(), before)

    check()
