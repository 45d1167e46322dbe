"""Fields that `__post_init__` makes of others, where one edit moves an object and changes it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

import perdure


@dataclass
class Order:
    cents: list[int] = field(default_factory=list)
    total: int = field(init=False, default=0)
    seen: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.total = sum(self.cents)


@dataclass
class Basket:
    orders: list[Order] = field(default_factory=list)
    sum: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.sum = sum(order.total for order in self.orders)


@dataclass
class Gift:
    text: str = ""
    length: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.length = len(self.text)


@dataclass
class Shop:
    orders: list[Order] = field(default_factory=list)
    named: dict[str, Order] = field(default_factory=dict)
    one: Order | None = None
    basket: Basket = field(default_factory=Basket)
    either: Order | Gift = field(default_factory=Gift)
    pair: tuple[Order, ...] = ()


def appended(draft: Shop) -> None:
    draft.orders.append(Order([1]))
    draft.orders[-1].cents.append(500)


def put_at_a_key(draft: Shop) -> None:
    draft.named["new"] = Order([1])
    draft.named["new"].cents.append(500)


def put_at_a_field(draft: Shop) -> None:
    draft.one = Order([1])
    draft.one.cents = [1, 500]


def put_in_a_whole_list(draft: Shop) -> None:
    draft.orders = [Order([1])]
    draft.orders[0].cents.append(500)


def put_in_an_object_that_came(draft: Shop) -> None:
    draft.basket = Basket([Order([1])])
    draft.basket.orders[0].cents.append(500)
    draft.basket.orders.append(Order([7]))
    draft.basket.orders[1].cents.append(8)


def put_back_changed(draft: Shop) -> None:
    order = draft.orders.pop(0)
    order.cents.append(500)
    draft.orders.append(order)


def changed_and_put_back(draft: Shop) -> None:
    draft.orders[0].cents.append(500)
    draft.orders.append(draft.orders.pop(0))


def copied_and_changed_again(draft: Shop) -> None:
    draft.orders[0].cents.append(500)
    draft.orders.append(copy.deepcopy(draft.orders[0]))
    draft.orders[0].cents.append(1000)
    draft.orders[-1].cents.append(2000)


def renamed(draft: Shop) -> None:
    draft.named["b"] = draft.named.pop("a")
    draft.named["b"].cents.append(500)


def changed_and_reversed(draft: Shop) -> None:
    draft.orders[0].cents.append(500)
    draft.orders.reverse()


def sorted_and_changed(draft: Shop) -> None:
    draft.orders.sort(key=lambda order: -order.total)
    draft.orders[0].cents.append(500)


def moved(draft: Shop) -> None:
    perdure.move(draft.orders, 0, 1)
    draft.orders[1].cents.append(500)


def put_among_classes(draft: Shop) -> None:
    draft.either = Order([1])
    draft.either.cents.append(500)


def changed_among_classes(draft: Shop) -> None:
    assert isinstance(draft.either, Gift)
    draft.either.text = "a longer one"


def put_in_a_tuple(draft: Shop) -> None:
    order = copy.copy(draft.pair[0])
    order.cents.append(500)
    draft.pair = (order, *draft.pair[1:])


WAYS: list[Callable[[Any], None]] = [
    appended,
    put_at_a_key,
    put_at_a_field,
    put_in_a_whole_list,
    put_in_an_object_that_came,
    put_back_changed,
    changed_and_put_back,
    copied_and_changed_again,
    renamed,
    changed_and_reversed,
    sorted_and_changed,
    moved,
    put_among_classes,
    changed_among_classes,
    put_in_a_tuple,
]


def shop() -> Shop:
    return Shop(
        [Order([1]), Order([2])],
        {"a": Order([3])},
        Order([4]),
        Basket([Order([5])]),
        Gift("short"),
        (Order([6]), Order([7])),
    )


def stale(state: Shop) -> list[Any]:
    baskets = [state.basket]
    either = state.either
    orders = [*state.orders, *state.named.values(), *state.pair, *state.basket.orders]
    orders += [one for one in (state.one, either) if isinstance(one, Order)]
    return [
        *(one for one in orders if one.total != sum(one.cents)),
        *(one for one in baskets if one.sum != sum(order.total for order in one.orders)),
        *([either] if isinstance(either, Gift) and either.length != len(either.text) else []),
    ]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_an_edit_that_moves_an_object_and_changes_it_makes_its_fields_anew(store, way):
    """An edit appended an order and then added to it, or took one out, changed it and put it
    elsewhere. Its total stayed what it was at first, and every later edit took it for a value that
    came since and left it: a wrong sum for ever, without a word."""
    agent = store.agent("a", Shop, initial=shop())
    agent.checkpoint("made")
    agent.update(way)
    assert not stale(agent.state)
    assert not agent.drift()
    assert store.agent("a", Shop).state == agent.state

    def more(draft: Shop) -> None:
        for order in [*draft.orders, *draft.named.values(), *draft.basket.orders]:
            order.cents.append(9)

    agent.update(more)
    assert not stale(agent.state)
    agent.undo()
    agent.undo()
    assert agent.refresh() == shop()


def test_what_came_since_stays_where_its_object_moves_and_changes(store):
    """A field that the class makes of others, and one that counts, differ only by what they hold:
    what an edit sets itself stays as it is."""
    agent = store.agent("a", Shop, initial=shop())
    agent.update(lambda draft: setattr(draft.orders[0], "seen", 7))
    agent.update(lambda draft: setattr(draft.orders[1], "total", 70))

    def change(draft: Shop) -> None:
        first, second = draft.orders.pop(0), draft.orders.pop(0)
        for order in (first, second):
            order.cents.append(500)
        draft.orders += [second, first]
        draft.orders[1].cents.append(1)
        draft.orders.append(Order([1]))
        draft.orders[2].total = 5
        draft.orders[2].cents.append(2)

    agent.update(change)
    found = [(order.cents, order.total, order.seen) for order in agent.refresh().orders]
    assert found == [([2, 500], 70, 0), ([1, 500, 1], 502, 7), ([1, 2], 5, 0)]


def test_an_edit_that_is_refused_leaves_what_was(store, steady):
    """What an edit makes of fields as it ends is taken back with it."""

    @perdure.invariant("orders")
    def few(after: Shop) -> bool:
        return all(order.total < 100 for order in after.orders)

    agent = store.agent("a", perdure.Schema(Shop, invariants=[few]), initial=shop())
    agent.checkpoint("made")
    for way in (appended, changed_and_reversed, put_back_changed):
        with steady.refuses(agent, perdure.SchemaError, "few"):
            agent.update(way)
    assert agent.state == shop() and not agent.drift()


def test_an_edit_of_a_run_makes_them_anew(store):
    """The edits of a run end elsewhere than those of an agent."""

    @perdure.agent(Shop)
    def work(run: perdure.Run[Shop]) -> None:
        with run.edit("both") as draft:
            appended(draft)
            changed_and_reversed(draft)

    store.agent("a", Shop, initial=shop()).checkpoint("made")
    store.run(work, "a")
    assert not stale(store.agent("a", Shop).state)
    assert len(store.agent("a", Shop).state.orders) == 3
