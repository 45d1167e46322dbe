"""Asynchronous tests and notebooks have an event loop: `perdure.testing` called in it."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure.testing import kill_at_every_boundary, play, replay, run_until_waiting


@perdure.step
async def three() -> int:
    return 3


@perdure.agent(dict)
async def threes(run: perdure.AsyncRun[dict], times: int) -> int:
    return sum([await three() for _ in range(times)])


@perdure.agent(dict)
def plain(run: perdure.Run[dict], times: int) -> int:
    return sum([run.call(abs, -3) for _ in range(times)])


def calls(function: Any, store: perdure.Store) -> dict[Callable[..., Any], tuple[Any, ...]]:
    return {
        play: (function, 2),
        kill_at_every_boundary: (function, 2),
        run_until_waiting: (store, function, "a", 2),
        replay: (store, function),
    }


def test_an_asynchronous_function_is_refused_at_once_with_what_to_write() -> None:
    """In a test of pytest-asyncio `kill_at_every_boundary` said "there is no such run", the others
    that `asyncio.run` cannot be called, and Python that coroutines of the engine were never
    awaited."""

    async def test() -> None:
        with perdure.open("memory://") as store:
            for call, given in calls(threes, store).items():
                with pytest.raises(perdure.PerdureError) as refused:
                    call(*given)
                assert f"await asyncio.to_thread({call.__name__}, …)" in refused.value.hint
                assert "threes" in refused.value.target
            assert store.runs() == []

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(test())
        gc.collect()


def test_what_the_refusal_says_works() -> None:
    async def test() -> None:
        with perdure.open("memory://") as store:
            for call, given in calls(threes, store).items():
                came = await asyncio.to_thread(call, *given)
                if call is kill_at_every_boundary:
                    assert len(came) > 5
                    assert {end.result for end in came} == {6}
                elif call is run_until_waiting:
                    assert came.result(0) == 6
                else:
                    assert came.result == 6

    asyncio.run(test())


def test_processes_that_are_really_killed_leave_the_loop_behind() -> None:
    async def test() -> None:
        ends = kill_at_every_boundary(threes, 1, by="sigkill")
        assert {end.result for end in ends} == {3}

    asyncio.run(test())


def test_a_plain_function_needs_no_loop_of_its_own() -> None:
    async def test() -> None:
        with perdure.open("memory://") as store:
            assert play(plain, 2).result == 6
            assert run_until_waiting(store, plain, "a", 2).result(0) == 6
            assert replay(store, plain).check() == 6
            assert {end.result for end in kill_at_every_boundary(plain, 1)} == {3}

    asyncio.run(test())
