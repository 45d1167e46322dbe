"""An older program hands on what a newer one stored, in all that it reads outside a state."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from types import GenericAlias
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

import perdure
from perdure.core.types.read_values import READ, SWEPT_AT
from perdure.engine.journal.values import Parameters
from perdure.store import Store
from tests.engine.working import wait_until, working


@dataclass
class Order:
    cents: int = 0


@dataclass
class NewerOrder:
    cents: int = 0
    currency: str = "EUR"


@dataclass(frozen=True, slots=True)
class Frozen:
    cents: int = 0


@dataclass(frozen=True, slots=True)
class NewerFrozen:
    cents: int = 0
    currency: str = "EUR"


class Model(pydantic.BaseModel):
    cents: int = 0


class NewerModel(pydantic.BaseModel):
    cents: int = 0
    currency: str = "EUR"


class Struct(msgspec.Struct):
    cents: int = 0


class NewerStruct(msgspec.Struct):
    cents: int = 0
    currency: str = "EUR"


class Dict(TypedDict):
    cents: int


class NewerDict(TypedDict):
    cents: int
    currency: str


FAMILIES: list[tuple[Any, Any]] = [
    (Order, NewerOrder),
    (Frozen, NewerFrozen),
    (Model, NewerModel),
    (Struct, NewerStruct),
    (Dict, NewerDict),
]
Act = Callable[[Any, Any, type], Any]


def again(run: Any, order: Any, cls: type) -> Any:
    return run.again(order, 1)


def paying(cls: type) -> Any:
    def paid(run: perdure.Run[dict], order: Any) -> Any:
        return order

    paid.__annotations__ = {"order": cls, "return": cls}
    return perdure.agent(dict, name="paying")(paid)


def child(run: Any, order: Any, cls: type) -> Any:
    return run.again(run.start(paying(cls), "b", order).result(), 1)


def step(run: Any, order: Any, cls: type) -> Any:
    def kept(order: Any) -> Any:
        return order

    kept.__annotations__ = {"order": cls, "return": cls}
    return run.again(perdure.tool(kept)(perdure.step(kept)(order)), 1)


def state(run: Any, order: Any, cls: type) -> Any:
    with run.edit() as draft:
        draft.orders.append(order)
    with run.edit() as draft:
        order = draft.orders.pop()
    with run.edit() as draft:
        draft.orders.append(order)
    with run.edit() as draft:
        order = copy.copy(draft.orders[0])
    return run.again(order, 1)


def replaced(run: Any, order: Any, cls: type) -> Any:
    if isinstance(order, dict):
        return run.again({**order}, 1)
    if isinstance(order, Model):
        return run.again(order.model_copy(), 1)
    replace: Any = msgspec.structs.replace if isinstance(order, Struct) else dataclasses.replace
    return run.again(replace(order), 1)


def state_of(cls: type) -> Any:
    return dataclasses.make_dataclass(
        "State", [("orders", GenericAlias(list, cls), field(default_factory=list))]
    )


def programs(cls: type, newer_cls: type, act: Act) -> tuple[Any, Any]:
    def older(run: perdure.Run[Any], order: Any, turn: int = 0) -> Any:
        return order if turn else act(run, order, cls)

    def newer(run: perdure.Run[Any], order: Any, turn: int = 0) -> Any:
        return order

    older_state, newer_state = (
        perdure.Schema(state_of(one), id="state", version=(1, minor))
        for minor, one in enumerate((cls, newer_cls))
    )
    older.__annotations__ = {"order": cls, "turn": int, "return": cls}
    newer.__annotations__ = {"order": newer_cls, "turn": int, "return": newer_cls}
    return perdure.agent(older_state, name="buy")(older), perdure.agent(newer_state, name="buy")(
        newer
    )


def turns(store: Store) -> list[Any]:
    """The arguments with which the turns of agent "a" began."""
    log = store.agent("a").log()
    return [record.input for commit in log for record in commit.typed if record.t == "run-turn"]


@pytest.mark.parametrize(("cls", "newer_cls"), FAMILIES)
@pytest.mark.parametrize("act", [again, child, step, state, replaced])
def test_an_older_program_hands_on_what_it_does_not_know(
    store: Store, cls: type, newer_cls: type, act: Act
) -> None:
    """A deploy was taken back for an hour. The older program handed the order of each run on, to
    the run's next turn, and to the runs that pay, without its currency, which it did not know: back
    again, the newer program paid 500 EUR where 500 USD were ordered."""
    older, newer = programs(cls, newer_cls, act)
    ordered = newer_cls(cents=500, currency="USD")
    handle = store.start(newer, "a", ordered)
    with working(store, older, paying(cls)):
        wait_until(lambda: handle.status in ("done", "failed", "needs_attention"))
    assert handle.status == "done", handle.info.problem
    assert turns(store) == [([{"cents": 500, "currency": "USD"}, 1], {})]
    assert store.run(newer, "a", ordered) == ordered
    if act is child:
        assert store.run(paying(newer_cls), "c", handle.result()) == ordered


def changed(run: Any, orders: Any) -> Any:
    """One paid, one gone, one new."""
    orders[1].cents = 0
    return run.again([*orders[1:], Order(9)], 1)


def unclear(run: Any, orders: Any) -> Any:
    return run.again([Order(7), Order(8)], 1)


def start_with(store: Store, act: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    @perdure.agent(dict, name="buy")
    def older(run: perdure.Run[dict], orders: list[Order], turn: int = 0) -> Any:
        return act(run, orders) if turn == 0 else None

    @perdure.agent(dict, name="buy")
    def newer(run: perdure.Run[dict], orders: list[NewerOrder], turn: int = 0) -> Any:
        return run.again(orders, 1) if turn == 0 else [one.currency for one in orders]

    handle = store.start(newer, "a", [NewerOrder(n, "USD") for n in range(3)])
    with working(store, older):
        wait_until(lambda: handle.status in ("done", "failed", "needs_attention"))
    return handle, newer


def test_each_object_of_a_list_keeps_its_own(store: Store) -> None:
    """Of a list that the older program changed, each order keeps what it had; a new one has what
    its class gives it."""
    handle, _ = start_with(store, changed)
    assert handle.status == "done", handle.info.problem
    kept = [{"cents": 0, "currency": "USD"}, {"cents": 2, "currency": "USD"}, {"cents": 9}]
    assert turns(store) == [([kept, 1], {})]


def test_a_turn_whose_objects_cannot_be_told_apart_needs_attention(store: Store) -> None:
    """Two new orders came where three had been: as which of them is which cannot be told, nothing
    of the newer program is dropped. The run is as it was, and that program continues it."""
    handle, newer = start_with(store, unclear)
    assert handle.status == "needs_attention"
    assert "cannot be told apart, and a newer program stored in them" in handle.info.problem
    assert "perdure resume a/buy/main" in handle.info.problem
    assert turns(store) == []
    handle.resume()
    with working(store, newer):
        assert handle.result(timeout=30) == ["USD"] * 3


def test_a_typed_dict_keeps_it_also_where_no_type_is_declared(store: Store) -> None:
    """A TypedDict that was read by its type was sent on as a plain value."""

    @perdure.agent(dict, name="buy")
    def newer(run: perdure.Run[dict], order: NewerDict) -> NewerDict:
        return order

    @perdure.agent(dict, name="buy")
    def older(run: perdure.Run[dict], order: Dict) -> Dict:
        return order

    @perdure.agent(dict)
    def waits(run: perdure.Run[dict]) -> Any:
        return run.wait_for("order")

    ordered = NewerDict(cents=500, currency="USD")
    store.run(newer, "a", ordered)
    read = store.handle("a/buy/main").typed(older).result()
    store.start(waits, "b").signal("order", [read])
    assert store.run(waits, "b") == [ordered]


def read_many(hint: Any, count: int) -> list[Any]:
    function: Any = lambda order: None  # noqa: E731
    function.__annotations__ = {"order": hint}
    parameters = Parameters(function)
    return [parameters.build([{"cents": n, "currency": "USD"}], {})[0][0] for n in range(count)]


@pytest.mark.parametrize("cls", [Order, Struct])
def test_nothing_is_remembered_of_objects_that_are_gone(cls: type) -> None:
    """What is known of an object goes with it, also of those that Python has no weak references
    of: a worker of the older program reads as many as there are."""
    before = len(READ.given)
    kept = read_many(cls, 10)
    for _ in range(3):
        read_many(cls, 2 * SWEPT_AT)
    assert len(READ.given) <= before + len(kept) + 2 * SWEPT_AT
    assert all(READ.given[id(one)].plain["currency"] == "USD" for one in kept)


@dataclass
class Basket:
    next: Order | None = None
    pair: tuple[Order, Order] | None = None
    named: dict[str, Order] = field(default_factory=dict)
    queue: list[Order] = field(default_factory=list)


@dataclass
class NewerBasket:
    next: NewerOrder | None = None
    pair: tuple[NewerOrder, NewerOrder] | None = None
    named: dict[str, NewerOrder] = field(default_factory=dict)
    queue: list[NewerOrder] = field(default_factory=list)


def copied(basket: Basket) -> None:
    basket.next = copy.deepcopy(basket.queue[0])


def joins(basket: Basket) -> None:
    assert basket.next is not None
    basket.queue.append(basket.next)
    basket.next = Order(9)


def moves_up(basket: Basket) -> None:
    assert basket.pair is not None
    basket.pair = (basket.pair[1], Order(9))


def renamed(basket: Basket) -> None:
    basket.named = {"e": Order(9), "x": basket.named["e"]}


def queued(basket: Basket) -> None:
    basket.next, basket.queue = basket.queue[0], [Order(9)]


KEPT: list[tuple[Callable[[Basket], None], dict[str, Any]]] = [
    (copied, {"next": NewerOrder(4)}),
    (joins, {"next": NewerOrder(9), "queue": [NewerOrder(4, "D"), NewerOrder(1, "A")]}),
    (moves_up, {"pair": (NewerOrder(3, "C"), NewerOrder(9))}),
    (renamed, {"named": {"e": NewerOrder(9), "x": NewerOrder(5, "E")}}),
    (queued, {"next": NewerOrder(4, "D"), "queue": [NewerOrder(9)]}),
]


def basket_programs(act: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    @perdure.agent(dict, name="buy")
    def older(
        run: perdure.Run[dict], basket: Basket, more: Order | None = None, turn: int = 0
    ) -> Basket:
        return basket if turn else act(run, basket)

    @perdure.agent(dict, name="buy")
    def newer(
        run: perdure.Run[dict], basket: NewerBasket, more: NewerOrder | None = None, turn: int = 0
    ) -> NewerBasket:
        return basket

    return older, newer


def ordered_basket() -> NewerBasket:
    one, two, three, four, five = (
        NewerOrder(number, letter) for number, letter in enumerate("ABCDE", 1)
    )
    return NewerBasket(one, (two, three), {"e": five}, [four])


def handed_on_by(store: Store, act: Callable[[Any, Any], Any]) -> NewerBasket:
    older, newer = basket_programs(act)
    handle = store.start(newer, "a", ordered_basket())
    with working(store, older):
        wait_until(lambda: handle.status in ("done", "failed", "needs_attention"))
    assert handle.status == "done", handle.info.problem
    return store.handle("a/buy/main").typed(newer).result()  # type: ignore[no-any-return]


@pytest.mark.parametrize(("act", "kept"), KEPT)
@pytest.mark.parametrize("way", ["result", "again"])
def test_no_object_gets_what_was_stored_in_another_one(
    store: Store, act: Callable[[Basket], None], kept: dict[str, Any], way: str
) -> None:
    """An older program put a copy, or a new order, at the place of another one: it was paid in the
    currency of that, which stood beside it with its own."""
    if (act, way) == (copied, "again"):
        kept = {"next": NewerOrder(4, "A")}  # matched by its place, as in a whole value

    def changes(run: Any, basket: Basket) -> Any:
        act(basket)
        return basket if way == "result" else run.again(basket, turn=1)

    assert handed_on_by(store, changes) == dataclasses.replace(ordered_basket(), **kept)


def test_what_moved_into_another_argument_went_from_its_place(store: Store) -> None:
    def changes(run: Any, basket: Basket) -> Any:
        gone = basket.next
        return run.again(Basket(Order(9), basket.pair, basket.named, basket.queue), gone, turn=1)

    kept = handed_on_by(store, changes)
    assert kept == dataclasses.replace(ordered_basket(), next=NewerOrder(9))


def test_an_argument_that_it_got_and_changed_needs_attention_too(store: Store) -> None:
    """Two orders of the very object that the run got were made one: the run failed, for good,
    since a Basket could not be stored without its type."""

    def two_in_one(run: Any, basket: Basket) -> Any:
        basket.queue = [Order(9), Order(8)]
        return run.again(basket, turn=1)

    older, newer = basket_programs(two_in_one)
    handle = store.start(newer, "a", ordered_basket())
    with working(store, older):
        wait_until(lambda: handle.status in ("done", "failed", "needs_attention"))
    assert handle.status == "needs_attention"
    assert "cannot be told apart, and a newer program stored in them" in str(handle.info.problem)


@dataclass
class Short:
    size: int | None = 0


@dataclass
class Long:
    size: int = 0


@dataclass
class Either:
    one: Short | Long = field(default_factory=Short)


@dataclass
class NewerShort:
    size: int | None = 0
    why: str = ""


@dataclass
class NewerEither:
    one: NewerShort | Long = field(default_factory=NewerShort)


@pytest.mark.parametrize("way", ["result", "child"])
def test_what_may_be_of_another_class_needs_attention_wherever_it_goes(
    store: Store, way: str
) -> None:
    """The result of a run, or the order of another one, was refused: the run failed, for good."""

    @perdure.agent(dict, name="other")
    def other(run: perdure.Run[dict], either: Either) -> None: ...

    @perdure.agent(dict, name="buy")
    def older(run: perdure.Run[dict], either: Either) -> Either:
        either.one.size = None
        if way == "child":
            run.start(other, "b", either)
        return either

    @perdure.agent(dict, name="buy")
    def newer(run: perdure.Run[dict], either: NewerEither) -> NewerEither:
        return either

    handle = store.start(newer, "a", NewerEither(NewerShort(3, "x")))
    with working(store, older):
        wait_until(lambda: handle.status in ("done", "failed", "needs_attention"))
    assert handle.status == "needs_attention", handle.info
    assert "its fields say of which class it is" in str(handle.info.problem)
    handle.resume()
    with working(store, newer):
        assert handle.result(timeout=30) is not None
