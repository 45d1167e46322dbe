"""Programs by chance of what is cancelled more than once, by whom, and what each of them says: by
tasks of the run, by its timers, and by anyio's scopes around these."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import anyio

import perdure
from tests.graphs.generate import Node, delay_s, note_begin, said_by, step
from tests.graphs.scoped import LEAVES as SCOPED_LEAVES
from tests.graphs.scoped import NESTS as SCOPED_NESTS
from tests.graphs.scoped import PlayingScoped, ScopedGrower
from tests.graphs.timed import LEAVES as TIMED_LEAVES
from tests.graphs.timed import NESTS as TIMED_NESTS
from tests.graphs.timed import limit_s, timed_program

LEAVES = (
    *SCOPED_LEAVES,
    "slow",
    "slow",
    "tool",
    "tool",
    "long edit",
    "waits",
    "cleans up in peace",
    "in other words",
)
OWN = ("cancelled twice", "cancelled in a scope", "cancelled by who waits")
NESTS = (*SCOPED_NESTS, *OWN, *OWN, *OWN, *OWN)


def told_program(seed: int, depth: int = 3) -> Node:
    """By a seed."""
    return timed_program(seed, depth, grows=ScopedGrower, leaves=LEAVES, nests=NESTS)


@perdure.step
async def _cleans_up_in_peace(called: str, seen: str = "") -> str:
    """What is cancelled in its clean-up goes on with that."""
    note_begin(called)
    try:
        await asyncio.sleep(delay_s(called))
    finally:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(delay_s(called) / 2)
    return f"{called}!"


@perdure.step
async def _in_other_words(called: str, seen: str = "") -> str:
    note_begin(called)
    try:
        await asyncio.sleep(delay_s(called))
    except asyncio.CancelledError:
        raise asyncio.CancelledError("in other words") from None
    return f"{called}!"


def _is_plain(node: Node) -> bool:
    """Whether it has no scopes of anyio's: these cancel once more in each round of the loop, and
    take back more than that."""
    parts = node[2] if isinstance(node[2], list) else []
    return node[0] in (*TIMED_LEAVES, *TIMED_NESTS, *OWN[:1]) and all(map(_is_plain, parts))


class PlayingTold(PlayingScoped):
    """As that; what is cancelled is so with words."""

    # -- leaves --------------------------------------------------------------------------------

    async def _cleans_up_in_peace(self, node: Node, called: str) -> Any:
        return await _cleans_up_in_peace(called, self._seen())

    async def _in_other_words(self, node: Node, called: str) -> Any:
        return await _in_other_words(called, self._seen())

    # -- of parts ------------------------------------------------------------------------------

    async def _cancelled_twice(self, node: Node, called: str) -> Any:
        """By timers, by callbacks and at once, in any mixture."""
        loop, task = asyncio.get_running_loop(), asyncio.create_task(self._play(node[2][0]))
        for number in range(2 + node[1] % 2):
            words = f"{number} of {called}" if (node[1] + number) % 3 else None
            cancel = partial(task.cancel, words)
            if (node[1] >> number) % 3:
                loop.call_later(limit_s(node, number), cancel)
            else:
                loop.call_soon(cancel)
        found = await self._seen_of(task, called)
        if not _is_plain(node[2][0]):
            return found
        return found, await step(f"{called} {task.cancelling()}", self._seen())

    async def _cancelled_in_a_scope(self, node: Node, called: str) -> Any:
        """As the time of a scope is up, in whose task it is awaited."""
        loop = asyncio.get_running_loop()
        with anyio.move_on_after(limit_s(node)) as scope:
            task = asyncio.create_task(self._play(node[2][0]))
            cancel = partial(task.cancel, f"by {called}" if node[1] % 2 else None)
            loop.call_later(limit_s(node, 1), cancel)
            await asyncio.gather(task, return_exceptions=True)
            self._hear(f"{called} is through")
        self._hear(f"{called} caught: {scope.cancelled_caught}")
        return await self._seen_of(task, called)

    async def _cancelled_by_who_waits(self, node: Node, called: str) -> Any:
        """Who awaits it is cancelled, and with that it is, too."""

        async def waits() -> Any:
            inner = asyncio.create_task(self._play(node[2][0]))
            await asyncio.sleep(limit_s(node, 1))
            inner.cancel("by who waits")
            if node[1] % 2:
                return await inner
            return await asyncio.gather(inner, return_exceptions=True)

        task = asyncio.create_task(waits())
        asyncio.get_running_loop().call_later(limit_s(node), task.cancel, f"by {called}")
        return await self._seen_of(task, called)

    async def _seen_of(self, task: asyncio.Task[Any], called: str) -> Any:
        """Goes on with what it is told of how a task ended."""
        await asyncio.wait([task])
        try:
            await task
        except asyncio.CancelledError as cancelled:
            if self._run._execution.interrupted is not None:
                raise
            return await step(f"{called}{said_by(cancelled)}", self._seen())
        except Exception as error:
            return type(error).__name__
        return "through"


def told_agent_of(whole: Node) -> Callable[..., Awaitable[str]]:
    """As `agent_of`."""

    async def graph(run: perdure.AsyncRun[dict[str, Any]]) -> str:
        return await PlayingTold(run).play(whole)

    return perdure.agent(dict, name="graph")(graph)
