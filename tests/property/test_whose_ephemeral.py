"""An object's Ephemeral values are never another object's, whatever becomes of its place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import perdure
from perdure import Ephemeral
from perdure.errors import Conflict, NotFound


@dataclass
class Part:
    id: int = 0
    client: Ephemeral[Any] = None


@dataclass
class Item(Part):
    part: Part = field(default_factory=Part)
    parts: list[Part] = field(default_factory=list)


@dataclass
class State:
    items: list[Item] = field(default_factory=list)
    others: list[Item] = field(default_factory=list)
    named: dict[str, Item] = field(default_factory=dict)
    one: Item | None = None


orders = st.lists(st.integers(0, 5), unique=True, max_size=4)


class Ids:
    """Makes objects of which no two have the same number."""

    def __init__(self) -> None:
        self._last = 0

    def part(self) -> Part:
        self._last += 1
        return Part(self._last)

    def item(self) -> Item:
        self._last += 1
        return Item(self._last, part=self.part(), parts=[self.part(), self.part()])


def parts_of(state: Any) -> Iterator[Any]:
    one = [] if state.one is None else [state.one]
    for item in [*state.items, *state.others, *state.named.values(), *one]:
        yield from (item, item.part, *item.parts)


def own(state: Any) -> None:
    for part in parts_of(state):
        assert part.client in (None, f"client of {part.id}")


def connect(state: Any) -> None:
    for part in parts_of(state):
        part.client = f"client of {part.id}"


ACTS = {
    "pop": lambda draft, at, ids: draft.items.pop(at),
    "insert": lambda draft, at, ids: draft.items.insert(at, ids.item()),
    "append": lambda draft, at, ids: draft.items.append(ids.item()),
    "reverse": lambda draft, at, ids: draft.items.reverse(),
    "sort": lambda draft, at, ids: draft.items.sort(key=lambda item: item.id * 7 % (at + 2)),
    "move": lambda draft, at, ids: perdure.move(draft.items, at, 0),
    "move in": lambda draft, at, ids: perdure.move(draft.items[at].parts, 0, 1),
    "to the end": lambda draft, at, ids: draft.items.append(draft.items.pop(at)),
    "to others": lambda draft, at, ids: draft.others.append(draft.items.pop(at)),
    "to a key": lambda draft, at, ids: draft.named.update(a=draft.items.pop(at)),
    "another key": lambda draft, at, ids: draft.named.update(b=draft.named.pop("a")),
    "to a field": lambda draft, at, ids: setattr(draft, "one", draft.items.pop(at)),
    "from a field": lambda draft, at, ids: draft.items.append(taken(draft)),
    "swap": lambda draft, at, ids: swap(draft.items, at),
    "order of keys": lambda draft, at, ids: setattr(draft, "named", turned(draft.named)),
    "replace": lambda draft, at, ids: draft.items.__setitem__(at, ids.item()),
    "put": lambda draft, at, ids: draft.named.update(a=ids.item()),
    "one": lambda draft, at, ids: setattr(draft, "one", ids.item()),
    "part": lambda draft, at, ids: setattr(draft.items[at], "part", ids.part()),
    "parts": lambda draft, at, ids: draft.items[at].parts.insert(0, ids.part()),
    "other part": lambda draft, at, ids: draft.items.append(with_part(draft, at, ids)),
    "connect": lambda draft, at, ids: connect(draft),
}


def taken(draft: Any) -> Any:
    one, draft.one = draft.one, None
    return one


def swap(items: Any, at: int) -> None:
    items[at], items[0] = items[0], items[at]


def turned(named: Any) -> dict[str, Any]:
    return dict(reversed(list(named.items())))


def with_part(draft: Any, at: int, ids: Ids) -> Any:
    item = draft.items.pop(at)
    item.part = ids.part()
    return item


@settings(max_examples=100)
@given(st.lists(st.lists(st.tuples(st.sampled_from([*ACTS]), st.integers(0, 3)), max_size=6)))
def test_never_anothers(blocks):
    """Inside an edit, once an item was taken out of a list, put in or moved, each item behind it
    showed the client of the one that had stood there before: a message went out as the customer
    who was just removed."""
    ids = Ids()
    with perdure.open("memory://") as store:
        initial = State([ids.item() for _ in range(3)], named={"a": ids.item()}, one=ids.item())
        agent = store.agent("a", State, initial=initial)
        agent.update(connect)
        for block in blocks:
            with agent.edit() as draft:
                for what, at in block:
                    before = {part.id: part.client for part in parts_of(draft)}
                    try:
                        ACTS[what](draft, at, ids)
                    except (IndexError, KeyError, TypeError, perdure.SchemaError):
                        continue
                    finally:
                        own(draft)
                    for part in parts_of(draft):
                        assert what == "connect" or part.client == before.get(part.id)
                shown = [(part.id, part.client) for part in parts_of(draft)]
            assert [(part.id, part.client) for part in parts_of(agent.state)] == shown


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(["save", "undo", "redo", "edit"]), orders)))
def test_nor_where_states_are_compared(changes):
    """A save of a list in another order gave the client of one customer to the next; so did its
    undo, and another handle that followed it."""
    with perdure.open("memory://") as store:
        agent = store.agent("a", State, initial=State([Item(n) for n in range(3)]))
        agent.checkpoint("made")
        other = store.agent("a", State)
        for what, order in changes:
            agent.update(connect)
            other.update(connect)
            items = [Item(n, parts=[Part(n + 10), Part(20)][: n % 3]) for n in order]
            with suppress(NotFound, Conflict):
                match what:
                    case "save":
                        agent.save(State(items, one=Item(7)))
                    case "edit":
                        with agent.edit() as draft:
                            draft.items = items
                    case _:
                        getattr(agent, what)()
            own(agent.state)
            own(other.refresh())
