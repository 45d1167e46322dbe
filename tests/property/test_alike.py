"""Values that are equal and not the same, as keys, members and items: 1, True, Decimal("1.00").

A state, edited at random, beside a copy of plain Python containers to which the same is done. What
a handle has, what one has that followed, and what the log says must be that, to the type of each
key and to the order of each dict, also behind a block that raised, an undo and a redo.
"""

from __future__ import annotations

import copy
import datetime as dt
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest
from typing_extensions import TypedDict

import perdure

ROUNDS = 40

NOON = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
ELSEWHERE = dt.datetime(2024, 1, 1, 14, tzinfo=dt.timezone(dt.timedelta(hours=2)))
LOOSE: tuple[Any, ...] = (
    1,
    True,
    1.0,
    Decimal("1"),
    Decimal("1.00"),
    0,
    False,
    -0.0,
    0.0,
    NOON,
    ELSEWHERE,
    "a",
    b"a",
    None,
    (1,),
    (True,),
    (NOON,),
    (ELSEWHERE,),
    frozenset({1}),
    frozenset({True}),
)
FIELDS = ("by", "items", "some")
KEYS = tuple(one for one in LOOSE if one is not None and type(one) is not bool)


@dataclass
class Parts:
    by: dict[Any, Any] = field(default_factory=dict)
    items: list[Any] = field(default_factory=list)
    some: set[Any] = field(default_factory=set)


class PartsDict(TypedDict, total=False):
    by: dict[Any, Any]
    items: list[Any]
    some: set[Any]


def exact(value: Any) -> Any:
    """What tells values apart that are equal."""
    kind = type(value)
    if kind is dict:
        return kind, [(exact(key), exact(item)) for key, item in value.items()]
    if kind in (list, tuple):
        return kind, list(map(exact, value))
    if kind in (set, frozenset):
        return kind, sorted(repr(exact(one)) for one in value)
    if isinstance(value, Parts):
        return exact(vars(value))
    return kind, repr(value)


def some_value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.random() if depth < 2 else 0
    if kind < 0.5:
        return rng.choice(LOOSE)
    count = rng.randrange(4)
    if kind < 0.7:
        return {rng.choice(KEYS): some_value(rng, depth + 1) for _ in range(count)}
    if kind < 0.85:
        return [some_value(rng, depth + 1) for _ in range(count)]
    return {rng.choice(LOOSE) for _ in range(count)}


Path = tuple[Callable[[Any], Any], ...]


def _attribute(name: str) -> Callable[[Any], Any]:
    return lambda one: getattr(one, name)


def _item(key: Any) -> Callable[[Any], Any]:
    return lambda one: one[key]


def containers(root: Any) -> list[Path]:
    """The ways to each of them."""
    found: list[Path] = []

    def walk(value: Any, path: Path) -> None:
        if isinstance(value, Parts):
            for name in FIELDS:
                walk(getattr(value, name), (*path, _attribute(name)))
            return
        if isinstance(value, dict | list | set):
            found.append(path)
        keys = (
            value
            if isinstance(value, dict)
            else range(len(value))
            if isinstance(value, list)
            else ()
        )
        for key in list(keys):
            walk(value[key], (*path, _item(key)))

    walk(root, ())
    return found


def follow(root: Any, path: Path) -> Any:
    for step in path:
        root = step(root)
    return root


def some_change(rng: random.Random, native: Any) -> Callable[[Any], None]:
    """Something that can be done to a root: to a draft, and to the native copy."""
    path = rng.choice(containers(native))
    container, fresh = follow(native, path), some_value(rng)
    seed = rng.random()

    def change(root: Any) -> None:
        choice, target = random.Random(seed), follow(root, path)
        if isinstance(container, dict):
            typed = bool(container.keys() & {*FIELDS}) or not path
            change_dict(choice, target, copy.deepcopy(fresh), typed=typed)
        elif isinstance(container, list):
            change_list(choice, target, copy.deepcopy(fresh))
        else:
            change_set(choice, target)

    return change


def change_dict(rng: random.Random, target: Any, value: Any, *, typed: bool) -> None:
    known = [key for key in KEYS if key in target]  # or equal to one that is
    key: Any = rng.choice(known if known and rng.random() < 0.6 else KEYS)
    if typed:  # of a TypedDict
        key = rng.choice(FIELDS)
        value = {"by": {1: 2}, "items": [1], "some": {1}}[key]
    match rng.randrange(8):
        case 0:
            target[key] = value
        case 1:
            target.pop(key, None)
        case 2 if key in target:
            del target[key]
        case 3 if key in target:
            target[key] = target.pop(key)
        case 4:
            target.setdefault(key, value)
        case 5 if target:
            target.popitem()
        case 6:
            for one in list(reversed(list(target))):
                target[one] = target.pop(one)
        case 7 if rng.random() < 0.3:
            target.clear()
        case _:
            target.update({key: value})


def change_list(rng: random.Random, target: Any, value: Any) -> None:
    at = rng.randrange(len(target)) if target else 0
    match rng.randrange(5):
        case 0:
            target.append(value)
        case 1 if target:
            target[at] = value
        case 2 if target:
            target.append(target.pop(at))
        case 3:
            target.reverse()
        case _:
            target.insert(at, value)


def change_set(rng: random.Random, target: Any) -> None:
    some = [rng.choice(LOOSE) for _ in range(3)]
    match rng.randrange(6):
        case 0:
            target.update(some)
        case 1:
            target.difference_update(some)
        case 2:
            target.symmetric_difference_update(some[:1])
        case 3:
            target.discard(some[0])
            target.add(some[1])
        case 4 if target:
            target.remove(next((one for one in some if one in target), min(target, key=repr)))
        case _:
            target.clear()
            target.update(some)


def first_state(rng: random.Random, kind: str) -> Any:
    parts: dict[str, Any] = {
        "by": {rng.choice(KEYS): some_value(rng, 1) for _ in range(3)},
        "items": [some_value(rng, 1) for _ in range(2)],
        "some": {rng.choice(LOOSE) for _ in range(3)},
    }
    if kind == "plain":
        return {**parts["by"], "more": some_value(rng)}
    return parts if kind == "typed dict" else Parts(**parts)


class Checked:
    """An agent of one handle that writes and one that follows, and the native copy."""

    def __init__(self, rng: random.Random, kind: str, store: perdure.Store, name: str) -> None:
        self.rng = rng
        schema: Any = {"plain": None, "typed dict": PartsDict, "dataclass": Parts}[kind]
        self.native = first_state(rng, kind)
        self.opened = lambda: store.agent(name) if schema is None else store.agent(name, schema)
        initial = copy.deepcopy(self.native)
        self.agent = store.agent(name, *([] if schema is None else [schema]), initial=initial)
        self.agent.checkpoint("made")
        self.follower = self.opened()
        self.states = {self.agent.seq: exact(self.native)}
        self.done: list[Any] = []
        self.undone: list[Any] = []

    def changed(self) -> Any:
        native = copy.deepcopy(self.native)
        for _ in range(self.rng.randrange(1, 5)):
            some_change(self.rng, native)(native)
        return native

    def edit(self) -> None:
        native, before = copy.deepcopy(self.native), self.agent.seq
        raising = self.rng.random() < 0.25
        try:
            with self.agent.edit() as draft:
                for _ in range(self.rng.randrange(1, 5)):
                    change = some_change(self.rng, native)
                    change(native)
                    change(draft)
                if raising:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            return
        self.moved(native, self.agent.seq != before)

    def save(self) -> None:
        native = self.changed()
        self.moved(native, self.agent.save(copy.deepcopy(native)) is not None)

    def moved(self, native: Any, committed: bool) -> None:
        assert committed or exact(native) == exact(self.native)
        if committed:
            self.done.append(self.native)
            self.undone.clear()
        self.native = native

    def undo(self) -> None:
        if self.done:
            self.agent.undo()
            self.undone.append(self.native)
            self.native = self.done.pop()

    def redo(self) -> None:
        if self.undone:
            self.agent.redo()
            self.done.append(self.native)
            self.native = self.undone.pop()

    def swap(self) -> None:
        self.agent, self.follower = self.follower, self.agent

    def check(self) -> None:
        expected = exact(self.native)
        self.follower.refresh()
        for handle in (self.agent, self.follower, self.opened()):
            assert exact(handle.state) == expected
            assert handle.drift() == []
        assert self.agent.save(copy.deepcopy(self.native)) is None
        self.states[self.agent.seq] = expected

    def end(self) -> None:
        for seq, expected in self.states.items():
            assert exact(self.agent.at(seq).state) == expected
        one, other = self.rng.choice([*self.states]), self.rng.choice([*self.states])
        assert bool(self.agent.diff(one, other)) == (self.states[one] != self.states[other])


@pytest.mark.parametrize("kind", ["plain", "dataclass", "typed dict"])
def test_what_is_equal_is_not_the_same(kind: str) -> None:
    """A key that was named by an equal one, 1 for Decimal("1"), came back as that other one, for
    everybody behind an undo. In a TypedDict one that was put back kept its place in one handle."""
    with perdure.open("memory://") as store:
        for seed in range(ROUNDS):
            rng = random.Random(seed)
            checked = Checked(rng, kind, store, f"{seed}")
            for _ in range(rng.randrange(2, 9)):
                acts = [checked.edit, checked.edit, checked.save, checked.undo, checked.redo]
                rng.choice([*acts, checked.swap])()
                checked.check()
            checked.end()
