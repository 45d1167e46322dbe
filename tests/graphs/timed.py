"""Programs by chance about time: timeouts that are short, over before they begin, or one inside of
the other, around what takes no time or just as long, in an event loop that is held up now and then.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import perdure
from tests.graphs.generate import Grower, Node, Playing, called_first, step

LEAVES = (
    "step",
    "step",
    "slow",
    "tool",
    "edit",
    "thread",
    "waits",
    "sleeps",
    "at once",
    "at once",
    "in vain",
    "naps",
    "yields",
    "spins",
    "holds up",
    "holds up",
    "sets",
    "ticks",
    "ticks",
    "rings",
)
NESTS = (
    "row",
    "row",
    "gather",
    "gather",
    "gather all",
    "group",
    "first",
    "some",
    "some",
    "timeout",
    "timeout",
    "timeout",
    "timeout at",
    "put off",
    "brought forward",
    "wait for",
    "wait for",
    "task",
    "deep",
    "cancel later",
    "cancel soon",
    "cancel by and by",
    "map",
    "map by lambda",
    "awaits",
    "shield",
    "shield",
    "late shield",
    "cleans up",
    "outlives",
)
LIMITS_S = (-1.0, 0.0, 0.0, 1e-9, 1e-7, 0.0001, 0.0005, 0.001, 0.002, 0.004, 0.004, 0.008)


def timed_program(
    seed: int,
    depth: int = 3,
    *,
    grows: type[Grower] = Grower,
    leaves: Sequence[str] = LEAVES,
    nests: Sequence[str] = NESTS,
) -> Node:
    """By a seed."""
    chance = random.Random(seed)
    grower, depth = grows(chance, leaves, nests, 0.25), chance.randint(1, depth)
    return "row", 0, [grower.node(depth), grower.node(depth), grower.step()]


def limit_s(node: Node, salt: int = 0) -> float:
    return random.Random(node[1] * 31 + salt).choice(LIMITS_S)


class PlayingTimed(Playing):
    """As that, with more that has to do with time."""

    # -- leaves --------------------------------------------------------------------------------

    async def _at_once(self, node: Node, called: str) -> Any:
        await self._run.sleep(0)

    async def _in_vain(self, node: Node, called: str) -> Any:
        return await self._run.wait_for(f"signal {called}", timeout=0, default="in vain")

    async def _yields(self, node: Node, called: str) -> Any:
        await asyncio.sleep(0)

    async def _spins(self, node: Node, called: str) -> Any:
        for _ in range(node[1] % 20):
            await asyncio.sleep(0)

    async def _holds_up(self, node: Node, called: str) -> Any:
        loop: Any = asyncio.get_running_loop()
        loop.hold_up()

    async def _rings(self, node: Node, called: str) -> Any:
        loop = asyncio.get_running_loop()

        def ring(left: int) -> None:
            self._hear(f"{called} rings {left}")
            if left:
                loop.call_soon(ring, left - 1)
            else:
                self._event.set()

        loop.call_soon(ring, node[1] % 4)

    async def _ticks(self, node: Node, called: str) -> Any:
        loop = asyncio.get_running_loop()

        def tick(left: int) -> None:
            self._hear(f"{called} ticks {left}")
            if left:
                loop.call_later(limit_s(node, left), tick, left - 1)

        loop.call_later(limit_s(node), tick, node[1] % 4)

    # -- of parts ------------------------------------------------------------------------------

    async def _timeout(self, node: Node, called: str) -> Any:
        try:
            async with asyncio.timeout(limit_s(node)):
                return await self._play(node[2][0])
        except TimeoutError:
            return "too late"

    async def _timeout_at(self, node: Node, called: str) -> Any:
        try:
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + limit_s(node)):
                return await self._play(node[2][0])
        except TimeoutError:
            return "too late"

    async def _put_off(self, node: Node, called: str) -> Any:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(limit_s(node)) as limit:
                await step(f"{called} in between")
                if not limit.expired():
                    limit.reschedule(loop.time() + limit_s(node, 1))
                return await self._play(node[2][0])
        except TimeoutError:
            return "too late"

    async def _brought_forward(self, node: Node, called: str) -> Any:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as limit:
                forward = lambda: limit.reschedule(loop.time() + limit_s(node, 1))  # noqa: E731
                timer = loop.call_later(limit_s(node), forward)
                try:
                    return await self._play(node[2][0])
                finally:
                    timer.cancel()
        except TimeoutError:
            return "too late"

    async def _wait_for(self, node: Node, called: str) -> Any:
        try:
            return await asyncio.wait_for(self._play(node[2][0]), limit_s(node))
        except TimeoutError:
            return "too late"

    async def _some(self, node: Node, called: str) -> Any:
        return await self._until(node, timeout=limit_s(node))

    async def _deep(self, node: Node, called: str) -> Any:
        async def deeper(left: int) -> Any:
            if left == 0:
                return await self._play(node[2][0])
            return await asyncio.create_task(deeper(left - 1))

        try:
            async with asyncio.timeout(limit_s(node)):
                return await deeper(8)
        except TimeoutError:
            return "too late"

    async def _cancel_by(self, node: Node, cancel: Callable[[Callable[[], object]], object]) -> Any:
        task = asyncio.create_task(self._play(node[2][0]))
        cancel(task.cancel)
        await asyncio.wait([task])
        return task.cancelled()

    async def _cancel_later(self, node: Node, called: str) -> Any:
        loop = asyncio.get_running_loop()
        when = loop.time() + limit_s(node)
        return await self._cancel_by(node, lambda cancel: loop.call_at(when, cancel))

    async def _cancel_soon(self, node: Node, called: str) -> Any:
        return await self._cancel_by(node, asyncio.get_running_loop().call_soon)

    async def _cancel_by_and_by(self, node: Node, called: str) -> Any:
        loop = asyncio.get_running_loop()

        def later(cancel: Callable[[], object]) -> object:
            last = lambda: loop.call_later(limit_s(node, 1), cancel)  # noqa: E731
            return loop.call_later(limit_s(node), loop.call_soon, last)

        return await self._cancel_by(node, later)

    async def _map_by_lambda(self, node: Node, called: str) -> Any:
        function = {"step": self._step, "slow": self._slow, "tool": self._tool}[node[2]]
        try:
            async with asyncio.timeout(limit_s(node)):
                return await self._run.map(
                    lambda n: function(node, f"{called}.{n}"), range(3), limit=2
                )
        except TimeoutError:
            return "too late"

    async def _map(self, node: Node, called: str) -> Any:
        try:
            async with asyncio.timeout(limit_s(node)):
                return await super()._map(node, called)
        except TimeoutError:
            return "too late"

    async def _shield(self, node: Node, called: str) -> Any:
        task = asyncio.create_task(self._play(node[2][0]))
        try:
            async with asyncio.timeout(limit_s(node)):
                return await asyncio.shield(task)
        except TimeoutError:
            await step(f"{called} late")
            await asyncio.wait([task])
            return "late"

    async def _late_shield(self, node: Node, called: str) -> Any:
        tasks = [asyncio.create_task(self._play(node[2][0]))]
        done, _ = await asyncio.wait(tasks, timeout=limit_s(node))
        self._hear(f"{called_first(tasks, done)} in time")
        if done:
            await step(f"{called} in time")
        return await asyncio.gather(*tasks, return_exceptions=True)


def timed_agent_of(whole: Node) -> Callable[..., Awaitable[str]]:
    """As `agent_of`."""

    async def graph(run: perdure.AsyncRun[dict[str, Any]]) -> str:
        return await PlayingTimed(run).play(whole)

    return perdure.agent(dict, name="graph")(graph)
