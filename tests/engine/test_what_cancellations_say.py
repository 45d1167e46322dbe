"""What a function hears where a task of it is cancelled, it hears again where the run is gone over:
also what the cancellation says, by which its scope, or whoever caused it, knows it for its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

import perdure
from perdure.engine.journal import cancellations
from perdure.testing import kill_at_every_boundary, replay

ROUNDS = 8
"""Of the loop, between two cancellations: in the call, or while the first is being recorded."""


@perdure.step
async def note(heard: list[str]) -> list[str]:
    return heard


@perdure.step
async def waits() -> None:
    await asyncio.sleep(60)


@perdure.tool(on_crash="retry")
async def does() -> None:
    await asyncio.sleep(60)


@perdure.tool(on_crash="retry", timeout=60)
async def does_in_time() -> None:
    await asyncio.sleep(60)


@perdure.step
async def takes_its_time() -> None:
    try:
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(0.01)


@perdure.step
async def says_something_else() -> None:
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        raise asyncio.CancelledError("not my day") from None


@perdure.step
async def cleans_up_in_peace() -> None:
    try:
        await asyncio.sleep(60)
    finally:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)


async def _awaits_signal(run: perdure.AsyncRun[dict]) -> None:
    await run.wait_for("never")


async def _edits(run: perdure.AsyncRun[dict]) -> None:
    async with run.edit("in the block") as draft:
        draft["x"] = 1
        await asyncio.sleep(60)


CALLS: dict[str, Callable[[perdure.AsyncRun[dict]], Coroutine[Any, Any, None]]] = {
    "step": lambda run: waits(),
    "tool": lambda run: does(),
    "with a limit": lambda run: does_in_time(),
    "takes its time": lambda run: takes_its_time(),
    "wait": _awaits_signal,
    "edit": _edits,
}


async def _same(function: Any, *args: Any) -> Any:
    """What a run gives; the same when it is gone over."""
    async with perdure.open_async("memory://") as store:
        said = await store.run(function, "a", *args)
        assert (await asyncio.to_thread(replay, store._store, function)).check() == said
        return said


async def _rounds(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


@perdure.agent(dict)
async def cancels(run: perdure.AsyncRun[dict], kind: str, says: list[Any], rounds: int) -> Any:
    """Cancels a call, again and again."""
    heard: list[str] = []

    async def calls() -> None:
        try:
            await CALLS[kind](run)
        except asyncio.CancelledError as cancelled:
            task = asyncio.current_task()
            assert task is not None
            heard.append(f"{cancelled.args} {task.cancelling()}")
            raise

    task = asyncio.create_task(calls())
    await run.sleep(0.005)
    for number, one in enumerate(says):
        await _rounds(rounds if number else 0)
        task.cancel(one)
    try:
        await task
    except asyncio.CancelledError as cancelled:
        heard.append(f"{cancelled.args}")
    return await note(heard)


@pytest.mark.parametrize("kind", CALLS)
def test_the_latest_of_several_cancellations_is_heard(kind: str) -> None:
    """A task was cancelled, and that was just being recorded when `asyncio.gather`, whose own time
    was over, cancelled it once more and said so. Live the task heard the latter. On replay the
    first struck at the call's place, before the second was there, and said nothing. Of two in the
    time of one commit the later was lost live, too."""

    async def live() -> None:
        for rounds in range(1, ROUNDS):
            said = await _same(cancels, kind, [None, "time is up"], rounds)
            if kind != "edit":  # the block hears the first, and what is behind it the second
                assert said == ["('time is up',) 2", "('time is up',)"], rounds

    asyncio.run(live())


@pytest.mark.parametrize("kind", CALLS)
def test_what_a_cancellation_says_is_heard(kind: str) -> None:
    """`task.cancel("the user left")` struck in the block of an edit. On replay it said nothing."""

    async def live() -> None:
        said = await _same(cancels, kind, ["the user left"], 0)
        assert said == ["('the user left',) 1", "('the user left',)"]

    asyncio.run(live())


def test_a_scope_knows_its_own_again() -> None:
    """A tool was being cancelled by the function as the time of a scope of anyio's was up. The
    scope caught that. On replay what came was the function's own, which such a scope lets through:
    it left the function, and the run stopped, as it had recorded more."""

    @perdure.agent(dict)
    async def moves_on(run: perdure.AsyncRun[dict], rounds: int) -> Any:
        with anyio.CancelScope() as scope:
            task = asyncio.create_task(CALLS["tool"](run))

            async def strikes() -> None:
                await _rounds(rounds)
                scope.cancel()

            await run.sleep(0.005)
            task.cancel()
            striking = asyncio.create_task(strikes())
            await asyncio.gather(task, return_exceptions=True)
        await striking
        return await note([f"caught: {scope.cancelled_caught}"])

    async def live() -> None:
        for rounds in range(1, ROUNDS):
            assert await _same(moves_on, rounds) == ["caught: True"], rounds

    asyncio.run(live())


def test_a_call_may_put_it_in_other_words() -> None:
    """A step that was cancelled said something of its own. On replay it is not called, and the
    cancellation came as it was."""

    @perdure.agent(dict)
    async def cancels_it(run: perdure.AsyncRun[dict]) -> Any:
        task = asyncio.create_task(says_something_else())
        await run.sleep(0.005)
        task.cancel("the user left")
        try:
            await task
        except asyncio.CancelledError as cancelled:
            return await note([str(cancelled)])

    assert asyncio.run(_same(cancels_it)) == ["not my day"]


def test_a_call_may_not_hear_of_the_latest() -> None:
    """A step cleaned up, was cancelled once more in that, and let it pass: it ended with the first.
    On replay it is not called, and the latest of those that came would be heard."""

    @perdure.agent(dict)
    async def cancels_it(run: perdure.AsyncRun[dict]) -> Any:
        task = asyncio.create_task(cleans_up_in_peace())
        await run.sleep(0.005)
        task.cancel("the user left")
        await run.sleep(0.005)
        task.cancel("time is up")
        try:
            await task
        except asyncio.CancelledError as cancelled:
            return await note([str(cancelled)])

    assert asyncio.run(_same(cancels_it)) == ["the user left"]


def test_it_is_heard_again_after_a_crash() -> None:
    """The second cancellation came while the first was committed, and the process was killed then:
    what had followed from the second is in the log, or nothing has."""

    @perdure.agent(dict)
    async def once_more(run: perdure.AsyncRun[dict]) -> Any:
        heard: list[str] = []
        for kind in ("step", "tool", "edit"):
            task = asyncio.create_task(CALLS[kind](run))
            await asyncio.sleep(0.001)
            task.cancel()
            await _rounds(4)
            task.cancel("time is up")
            try:
                await task
            except asyncio.CancelledError as cancelled:
                heard += await note([str(cancelled)])
        return heard

    ends = {tuple(end.result) for end in kill_at_every_boundary(once_more)}
    assert ends == {("time is up",) * 3}


@pytest.mark.parametrize(
    "says",
    ["x" * (cancellations.TOLD_MAX + 1), "\ud800", 7, ["several"]],
    ids=["long", "odd", "int", "list"],
)
def test_what_is_no_short_text_is_what_cancels_again(says: Any, tmp_path: Path) -> None:
    """It is not in the log, and comes with the cancellation that comes again."""

    @perdure.agent(dict)
    async def cancels_it(run: perdure.AsyncRun[dict]) -> Any:
        task = asyncio.create_task(waits())
        await run.sleep(0.001)
        task.cancel(says)
        try:
            await task
        except asyncio.CancelledError as cancelled:
            return await note([ascii(cancelled.args)[:50]])

    assert asyncio.run(_same(cancels_it)) == [ascii((says,))[:50]]


def test_a_log_that_does_not_say_it_is_gone_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """As older ones: there, what cancels again says it."""
    monkeypatch.setattr(cancellations, "TOLD_MAX", -1)

    async def live() -> None:
        for kind in CALLS:
            said = await _same(cancels, kind, ["the user left"], 0)
            assert said == ["('the user left',) 1", "('the user left',)"]

    asyncio.run(live())
