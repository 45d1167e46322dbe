"""What is known of a function is worked out once, and is its own."""

from __future__ import annotations

import asyncio
import functools
import gc
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

import perdure
from perdure.engine.functions.any_callable import recorded_as
from perdure.engine.journal.values import is_async


def test_a_wrapper_is_not_taken_for_what_it_wraps():
    """`functools.wraps` copies the attributes of the wrapped function, among them what was known
    of it: the wrapper would have been left out of the call."""

    def inner() -> int:
        return 1

    assert recorded_as(inner).function is inner

    @functools.wraps(inner)
    def outer() -> int:
        return inner() + 1

    assert recorded_as(outer).function is outer
    assert recorded_as(outer) is recorded_as(outer)


def in_dollars(pay: Callable[[int], int]) -> Callable[[int], int]:
    @functools.wraps(pay)
    def call(dollars: int) -> int:
        return pay(dollars * 100)

    return call


def in_dollars_async(pay: Callable[[int], Any]) -> Callable[[int], Any]:
    @functools.wraps(pay)
    async def call(dollars: int) -> int:
        return int(await pay(dollars * 100))

    return call


def test_a_wrapper_of_a_tool_or_step_is_not_left_out():
    """`functools.wraps` copies the mark of a tool: `run.call`, and a map, called what is inside,
    for 5 cents instead of 5 dollars."""
    seen: list[int] = []

    def look(cents: int) -> int:
        seen.append(cents)
        return cents

    step = in_dollars(perdure.step(look))
    tool = in_dollars(perdure.tool(on_crash="retry")(look))
    plain = perdure.unrecorded(perdure.tool(on_crash="retry")(look))

    @perdure.agent
    def pays(run: perdure.Run[dict[str, Any]]) -> list[int]:
        found = [step(1), run.call(step, 2), *run.map(step, [3]), tool(4), run.call(plain, 5)]
        with pytest.raises(perdure.PerdureError, match="a tool call inside a step"):
            run.call(tool, 6)
        return found

    with perdure.open("memory://") as store:
        assert store.run(pays, "a") == [100, 200, 300, 400, 5] == seen
        assert len(store.handle("a/pays/main").effects()) == 1


def test_a_wrapper_is_not_left_out_of_async_calls():
    @perdure.step
    async def look(cents: int) -> int:
        return cents

    @perdure.step
    def plainly(cents: int) -> int:
        return cents

    wraps, wraps_plainly = in_dollars_async(look), in_dollars(plainly)

    @perdure.agent
    async def looks(run: perdure.AsyncRun[dict[str, Any]]) -> list[int]:
        found = [await run.call(wraps, 1), await run.call(wraps_plainly, 2)]
        return [*found, *await run.map(wraps, [3]), *await run.map(wraps_plainly, [4])]

    async def main() -> list[int]:
        async with perdure.open_async("memory://") as store:
            return await store.run(looks, "a")

    assert asyncio.run(main()) == [100, 200, 300, 400]


@dataclass(frozen=True)
class Search:
    index: str
    client: Any = field(compare=False)

    def __call__(self, words: str) -> str:
        return f"{words} in {self.index} of {self.client}"


def test_an_object_is_called_itself_and_not_its_equal():
    """What was known of a callable was kept by equality, and with it the object to call: for bob,
    the client of ada's run was used."""

    @perdure.agent
    def looks(run: perdure.Run[dict[str, Any]], tenant: str) -> str:
        return run.call(Search("mails", tenant), "invoice")

    with perdure.open("memory://") as store:
        for tenant in ("ada", "bob"):
            assert store.run(looks, tenant, tenant) == f"invoice in mails of {tenant}"


def test_a_coroutine_function_in_the_clothes_of_another_is_async():
    def plain() -> None: ...

    assert not is_async(plain)

    @functools.wraps(plain)
    async def soon() -> None: ...

    assert is_async(soon)


def test_what_is_known_of_a_function_does_not_keep_it():
    """A table of functions kept what their closures hold: stores that were never closed, with
    their threads."""

    class Held: ...

    def look() -> weakref.ref[Held]:
        held = Held()

        def closure() -> object:
            return held

        recorded_as(closure)
        is_async(closure)
        return weakref.ref(held)

    gone = look()
    gc.collect()
    assert gone() is None


def test_an_agent_function_that_nothing_can_be_noted_on_is_refused_in_words() -> None:
    """`perdure.agent` of a bound method ended in an AttributeError about `__perdure__`."""

    class Desk:
        def support(self, run: perdure.Run[dict], question: str) -> str:
            return f"about {question}"

    make = perdure.agent(dict, name="support")
    with pytest.raises(TypeError, match=r"Desk\.support cannot be an agent function.*partial"):
        make(Desk().support)
    support = make(functools.partial(Desk().support))
    assert perdure.open("memory://").run(support, "a", "bills") == "about bills"
