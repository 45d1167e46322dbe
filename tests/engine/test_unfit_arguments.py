"""Arguments of a run that do not fit what its function declares: refused where they are given, and
a need for attention where the declaration has changed since."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ParamSpec, Protocol

import pytest
from pydantic import BaseModel, create_model

import perdure
from perdure.store import Store
from tests.engine.conftest import Place
from tests.engine.waits import go
from tests.engine.working import BOUND_S, working

P = ParamSpec("P")


class Order(BaseModel):
    item: str
    cents: int = 0


@dataclass
class Box:
    width: int = 1


class Client:
    pass


class Sends(Protocol):
    def send(self) -> None: ...


@dataclass
class Held:
    client: Client
    name: str = ""


def taking(declared: Any, name: str = "taking") -> Any:
    def taking(run: perdure.Run[dict[str, Any]], value: Any) -> str:
        return repr(value)

    taking.__annotations__["value"] = declared
    return perdure.agent(dict, name=name)(taking)


UNFIT: dict[str, tuple[Any, Any, str]] = {
    "a text where a number is": (Order, {"item": "pen", "cents": "five"}, "value.cents"),
    "a field that is missing": (Order, {"cents": 3}, "value.item"),
    "a text where a model is": (Order, "pen", "value"),
    "a field that there is not": (Order, {"item": "pen", "colour": "red"}, "value.colour"),
    "a dict where a dataclass is": (Box, {"width": "wide"}, "value.width"),
    "an item of a list": (list[Order], [{"item": "pen"}, {"cents": 3}], "value[1].item"),
    "a text for an int": (int, "5", "value"),
    "None": (str, None, "value"),
    "none of two": (Order | int, "pen", "value"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_i12_what_does_not_fit_is_refused_before_anything_is_written(
    store: Store, name: str
) -> None:
    """`store.start` took it, and the function got the bare dict, or text, where it declares an
    `Order`: an AttributeError far from its cause, or wrong work without a word."""
    declared, given, path = UNFIT[name]
    function = taking(declared)

    @perdure.agent(dict)
    def parent(run: perdure.Run[dict[str, Any]]) -> str:
        with pytest.raises(perdure.SchemaError) as refused:
            run.start(function, "b", given)
        return str(refused.value)

    for ask in (store.start, store.run):
        with pytest.raises(perdure.SchemaError) as refused:
            ask(function, "a", given)
        assert str(refused.value).startswith(path), refused.value
        assert not isinstance(refused.value, perdure.Unstorable)
    assert store.find("a") is None and not list(store.runs())
    assert path in go(store, parent)
    assert store.find("b") is None


@pytest.mark.parametrize("name", UNFIT)
def test_i12_it_is_refused_by_the_asynchronous_face(place: Place, name: str) -> None:
    declared, given, path = UNFIT[name]

    async def acting(run: perdure.AsyncRun[dict[str, Any]], value: Any) -> str:
        return repr(value)

    acting.__annotations__["value"] = declared
    function = perdure.agent(dict)(acting)

    @perdure.agent(dict)
    async def parent(run: perdure.AsyncRun[dict[str, Any]]) -> str:
        with pytest.raises(perdure.SchemaError) as refused:
            await run.start(function, "b", given)
        return str(refused.value)

    async def main() -> str:
        async with perdure.open_async(place.url, durability="os") as store:
            for ask in (store.start, store.run):
                with pytest.raises(perdure.SchemaError) as refused:
                    await ask(function, "a", given)
                assert str(refused.value).startswith(path), refused.value
            assert not list(await store.runs())
            return await store.run(parent, "c")

    assert path in asyncio.run(main())


def test_a_next_turn_that_does_not_fit_fails_as_a_result_does(store: Store) -> None:
    @perdure.agent(dict)
    def turning(run: perdure.Run[dict[str, Any]], order: Order) -> str:
        return run.again({"cents": 3}) if order.item == "pen" else repr(order)

    with pytest.raises(perdure.SchemaError, match=r"order\.item: Field required"):
        store.run(turning, "a", Order(item="pen"))
    assert store.handle("a/turning/main").status == "failed"


# -- what is no business of the types --------------------------------------------------------------


LEFT_ALONE: dict[str, tuple[Any, Any]] = {
    "anything": (Any, {"a": 1}),
    "object": (object, "text"),
    "a class of one's own": (Client, "client-7"),
    "a protocol": (Sends, "mailer"),
    "a class or a number": (Client | int, "x"),
    "a list of clients": (list[Client], ["a"]),
    "a class with a client": (Held, {"client": "c", "name": "n"}),
    "a vague type": (Iterable[int], [1]),
    "a type no state has": (collections.deque[int], [1]),
    "those of another function": (getattr(P, "args"), 5),  # noqa: B009
    "None by default": (None, None),
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_what_the_types_say_nothing_of_arrives_as_it_is(store: Store, name: str) -> None:
    declared, given = LEFT_ALONE[name]
    assert go(store, taking(declared), "a", given) == repr(given)
    handle = store.start(taking(declared), "b", given)
    with working(store, taking(declared)):
        assert handle.result(BOUND_S) == repr(given)


@pytest.mark.parametrize("given", [Client(), Held(Client())])
def test_what_cannot_be_stored_is_its_callers_as_before(store: Store, given: Any) -> None:
    for declared in (type(given), int, Order):
        with pytest.raises(perdure.Unstorable):
            store.start(taking(declared), "a", given)
        assert go(store, taking(declared), f"of {declared}", given) == repr(given)


def test_each_argument_is_read_by_the_parameter_that_takes_it(store: Store) -> None:
    """What `*items` took was read as the last parameter's type, and what `**more` took by none."""

    def gather(
        run: perdure.Run[dict[str, Any]],
        /,
        *items: Box,
        note: str = None,  # type: ignore[assignment]  # noqa: RUF013
        **more: Box,
    ) -> str:
        return repr((items, note, more))

    collecting: Any = perdure.agent(dict)(gather)
    given = {"width": 2}
    for note in ("n", None):
        said = store.run(collecting, f"a {note}", given, Box(3), note=note, last=given)
        assert said == repr(((Box(2), Box(3)), note, {"last": Box(2)}))
    with pytest.raises(perdure.SchemaError, match=r"^items\[1\]: "):
        store.start(collecting, "b", given, "x")
    with pytest.raises(perdure.SchemaError, match=r"^last: "):
        store.start(collecting, "b", last="x")


# -- after a deploy --------------------------------------------------------------------------------


def shipping(*, address: bool, is_async: bool) -> Any:
    """A release of the function; the next one wants to know where to."""
    more: Any = {"address": (str, ...)} if address else {}
    kind = create_model("Order", item=(str, ...), **more)

    async def later(run: perdure.AsyncRun[dict[str, Any]], turn: int, order: Any) -> str:
        if turn:
            return run.again(turn - 1, order)  # type: ignore[no-any-return]
        await run.wait_for("go")
        return f"sent {order.item}"

    def at_once(run: perdure.Run[dict[str, Any]], turn: int, order: Any) -> str:
        if turn:
            return run.again(turn - 1, order)  # type: ignore[no-any-return]
        run.wait_for("go")
        return f"sent {order.item}"

    function: Any = later if is_async else at_once
    function.__annotations__["order"] = kind
    return perdure.agent(dict, name="ship")(function)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("turn", [0, 1])
def test_i8_what_was_asked_for_and_does_not_fit_any_more_needs_attention(
    store: Store, turn: int, is_async: bool
) -> None:
    """Its function got a dict, `'dict' object has no attribute 'address'`, and a bad deploy had
    failed the run for good."""
    old, new = (shipping(address=address, is_async=is_async) for address in (False, True))
    waiting = store.start(old, "a", turn, {"item": "pen"})
    with working(store, old) as events:
        events.wait_for("waiting", waiting.id)
    waiting.signal("go", None)
    asked = store.start(old, "b", turn, {"item": "ink"})
    with working(store, new) as events:
        for run in (waiting, asked):
            events.wait_for("needs_attention", run.id)
            problem = str(run.info.problem)
            assert problem.startswith(f"run {run.id}, order.address: an argument no longer fits")
            assert f"perdure resume {run.id}" in problem
    with working(store, old):
        for run in (waiting, asked):
            run.signal("go", None)
            run.resume()
            assert run.result(BOUND_S).startswith("sent ")


def test_i8_store_run_says_it_and_goes_on_when_the_type_reads_both(store: Store) -> None:
    old, new = (shipping(address=address, is_async=False) for address in (False, True))
    store.start(old, "a", 0, {"item": "pen"}).signal("go", None)
    with working(store, new) as events:
        events.wait_for("needs_attention", "a/ship/main")
    with pytest.raises(perdure.SchemaError, match=r"^order\.address: "):
        store.run(new, "a", 0, {"item": "pen"})
    assert store.run(old, "a", 0, {"item": "pen"}) == "sent pen"


def test_the_first_arguments_of_a_run_in_a_later_turn_need_not_fit(store: Store) -> None:
    """Each execution read those with which the run had begun, turns ago, as well."""

    def counting(declared: Any) -> Any:
        def counting(run: perdure.Run[dict[str, Any]], value: Any) -> str:
            if value == "first":
                return run.again(5)  # type: ignore[no-any-return]
            run.wait_for("go")
            return repr(value)

        counting.__annotations__["value"] = declared
        return perdure.agent(dict)(counting)

    handle = store.start(counting(int | str), "a", "first")
    with working(store, counting(int | str)) as events:
        events.wait_for("waiting", handle.id)
    handle.signal("go", None)
    with working(store, counting(int)):
        assert handle.result(BOUND_S) == "5"


def test_an_older_version_reads_its_own(store: Store) -> None:
    """A run that goes on with the function of its version got its arguments as the other's."""

    def f1(run: perdure.Run[dict[str, Any]], order: Order) -> str:
        run.wait_for("go")
        return type(order).__name__

    def f2(run: perdure.Run[dict[str, Any]], order: Box) -> str:
        return type(order).__name__

    one: Any = perdure.agent(dict, name="versioned", version="1")(f1)
    handle = store.start(one, "a", {"item": "pen"})
    handle.signal("go", None)
    two = perdure.agent(dict, name="versioned", version="2")(f2)
    with working(store, two):
        assert handle.result(BOUND_S) == "Order"
