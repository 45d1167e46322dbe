"""`update` calls a function again after a conflict; what the function itself does is its own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import perdure
from perdure.errors import Conflict
from tests.state.conftest import Place


async def add_later(draft: Any) -> None:
    draft["n"] += 1


def test_a_coroutine_function_is_refused(store, steady):
    """`update` called a coroutine function, got a coroutine and dropped it: the edit was lost, and
    but for Python's own warning nobody heard of it."""
    agent = store.agent("a", initial={"n": 0})
    agent.update(lambda draft: draft.update(n=1))
    for fn in (add_later, lambda draft: add_later(draft)):
        with steady.refuses(agent, TypeError, "agent 'a': .* is async.*open_async"):
            agent.update(fn)
    assert agent.update(lambda draft: draft.pop("n")) is not None  # what fn returns is its own


def add_in_steps(draft: Any) -> Any:
    draft["n"] += 1
    yield


async def add_in_steps_later(draft: Any) -> Any:
    draft["n"] += 1
    yield


def test_a_generator_is_refused(store, steady):
    """Story: none of its code ran, and its key was noted as used: the same command, sent again by a
    mended program, was taken for done."""
    agent = store.agent("a", initial={"n": 0})
    agent.update(lambda draft: draft.update(n=1))
    for fn in (add_in_steps, add_in_steps_later):
        with steady.refuses(agent, TypeError, "none of its code runs"):
            agent.update(fn, key="k")

    async def main() -> None:
        async with perdure.open_async("memory://") as opened:
            other = await opened.agent("b", initial={"n": 0})
            for fn in (add_in_steps, add_in_steps_later):
                with pytest.raises(TypeError, match="none of its code runs"):
                    await other.update(fn)

    asyncio.run(main())


def test_a_conflict_of_the_functions_own_is_not_tried_again(store):
    """A function that raised Conflict itself was called a hundred times, without a pause."""
    agent, calls = store.agent("a", initial={"n": 0}), []

    def refuse(draft: Any) -> None:
        calls.append(draft["n"])
        raise Conflict("already refunded")

    with pytest.raises(Conflict, match="already refunded"):
        agent.update(refuse)
    assert calls == [0]


def test_a_moved_head_is(store):
    agent, other, calls = store.agent("a", initial={"n": 0}), store.agent("a", initial={"n": 0}), []

    def add(draft: Any) -> None:
        calls.append(draft["n"])
        if len(calls) == 1:
            other.update(lambda draft: draft.update(n=10))
        draft["n"] += 1

    agent.update(add)
    assert (calls, agent.state) == ([0, 10], {"n": 11})


def test_what_is_refused_for_good_is_refused_at_once(store):
    """On a branch of the store's own it was tried a hundred times, for most of a minute, before
    anybody was told that it is read-only."""
    agent, calls = store.agent("a", initial={"n": 0}), []
    for n in range(1, 5):
        agent.save({"n": n}, "put")
    agent.trim(5)

    def add(draft: Any) -> None:
        calls.append(draft)
        draft["n"] = 99

    with pytest.raises(Conflict, match="read-only") as refused:
        agent.branch("@retention").update(add)
    assert len(calls) == 1 and not refused.value.retry


def test_nor_on_the_async_face(place: Place):
    async def main() -> None:
        async with perdure.open_async(place.url, durability="os") as store:
            agent, calls = await store.agent("a", initial={"n": 0}), []

            async def refuse(draft: Any) -> None:
                calls.append(draft["n"])
                raise Conflict("already refunded")

            with pytest.raises(Conflict, match="already refunded"):
                await agent.update(refuse)
            assert calls == [0]
            await agent.update(add_later)
            assert agent.state == {"n": 1}

    asyncio.run(main())
