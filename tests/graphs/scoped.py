"""Programs by chance of anyio's: cancel scopes with deadlines and shields, groups and streams; and
of code that asks the loop what time it is, and goes by that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

import perdure
from tests.graphs import called as calls
from tests.graphs.generate import Grower, Node, step
from tests.graphs.timed import LEAVES as TIMED_LEAVES
from tests.graphs.timed import PlayingTimed, limit_s, timed_program

LEAVES = (
    *TIMED_LEAVES,
    "waits until",
    "waits until",
    "polls",
    "polls",
    "takes its time",
    "takes its time",
    "reads",
    "reads",
    "sleeps until",
    "checkpoint",
)
NESTS = (
    "row",
    "row",
    "gather",
    "gather all",
    "task",
    "timeout",
    "wait for",
    "cleans up",
    "shield",
    "move on",
    "move on",
    "move on",
    "fail after",
    "fail after",
    "scope",
    "scope",
    "shielded",
    "shielded",
    "deadline put off",
    "scope cancelled",
    "scope cancelled later",
    "task group",
    "task group",
    "group cancelled",
    "starts",
    "streams",
    "cleans up shielded",
    "until it is over",
)
OF_SEVERAL = ("row", "gather", "gather all", "task group", "group cancelled", "streams", "starts")


class ScopedGrower(Grower):
    of_several = OF_SEVERAL


def scoped_program(seed: int, depth: int = 3) -> Node:
    """By a seed."""
    return timed_program(seed, depth, grows=ScopedGrower, leaves=LEAVES, nests=NESTS)


def _now() -> float:
    return asyncio.get_running_loop().time()


class PlayingScoped(PlayingTimed):
    """As that, with anyio, and a look at the clock."""

    async def _row(self, node: Node, called: str) -> Any:
        """A cancelled `gather` raises an error of its own, which a scope of anyio's does not know
        for its: so the function would end, with the library or without."""
        if node[1]:
            return await super()._row(node, called)
        ends = []
        for part in node[2]:
            try:
                ends.append(await self._play(part))
            except asyncio.CancelledError:
                if self._run._execution.interrupted is not None:
                    raise
                ends.append("cancelled by nobody")
        return ends

    # -- leaves --------------------------------------------------------------------------------

    async def _waits_until(self, node: Node, called: str) -> Any:
        deadline, number = _now() + abs(limit_s(node)), 0
        while _now() < deadline:
            number += 1
            await calls.again(f"{called} until {number}", self._seen())
        return number

    async def _polls(self, node: Node, called: str) -> Any:
        began, number = anyio.current_time(), 0
        while anyio.current_time() - began < abs(limit_s(node)):
            number += 1
            await asyncio.sleep(0.001)
        return number, await step(f"{called} polled {number}")

    async def _takes_its_time(self, node: Node, called: str) -> Any:
        loop: Any = asyncio.get_running_loop()
        began = loop.time()
        loop.hold_up()
        await calls.cleans_slowly(called, self._seen())
        loop.hold_up()
        took_s = loop.time() - began
        self._hear(f"{called} took {took_s}")
        return await step(f"{called} took {took_s}")

    async def _reads(self, node: Node, called: str) -> Any:
        loop: Any = asyncio.get_running_loop()
        began = loop.time()
        for _ in range(node[1] % 5):
            loop.hold_up()
            if node[1] % 2:
                await asyncio.sleep(0)
            self._hear(f"{called} read {loop.time() - began}")

    async def _sleeps_until(self, node: Node, called: str) -> Any:
        when = anyio.current_time() + limit_s(node)
        await anyio.sleep_until(when)
        return anyio.current_time() >= when

    async def _checkpoint(self, node: Node, called: str) -> Any:
        await anyio.lowlevel.checkpoint()

    # -- of parts ------------------------------------------------------------------------------

    async def _move_on(self, node: Node, called: str) -> Any:
        with anyio.move_on_after(limit_s(node)) as scope:
            await self._play(node[2][0])
        return scope.cancelled_caught

    async def _fail_after(self, node: Node, called: str) -> Any:
        try:
            with anyio.fail_after(limit_s(node)):
                return await self._play(node[2][0])
        except TimeoutError:
            return "too late"

    async def _scope(self, node: Node, called: str) -> Any:
        shield = node[1] % 3 == 0
        with anyio.CancelScope(deadline=_now() + limit_s(node), shield=shield) as scope:
            await self._play(node[2][0])
        return scope.cancelled_caught, scope.cancel_called

    async def _shielded(self, node: Node, called: str) -> Any:
        with anyio.move_on_after(limit_s(node)) as scope:
            with anyio.CancelScope(shield=True):
                await self._play(node[2][0])
            await step(f"{called} behind the shield")
        return scope.cancelled_caught, scope.cancel_called

    async def _deadline_put_off(self, node: Node, called: str) -> Any:
        with anyio.move_on_after(limit_s(node)) as scope:
            await step(f"{called} in between")
            if not scope.cancel_called:
                scope.deadline = _now() + limit_s(node, 1)
            await self._play(node[2][0])
        return scope.cancelled_caught

    async def _scope_cancelled(self, node: Node, called: str) -> Any:
        with anyio.CancelScope() as scope:

            async def cancel() -> None:
                await step(f"{called} before")
                scope.cancel()

            task = asyncio.create_task(cancel())
            await self._play(node[2][0])
        self._left.append(task)
        return scope.cancelled_caught

    async def _scope_cancelled_later(self, node: Node, called: str) -> Any:
        with anyio.CancelScope() as scope:
            timer = asyncio.get_running_loop().call_later(limit_s(node), scope.cancel)
            try:
                await self._play(node[2][0])
            finally:
                timer.cancel()
        return scope.cancelled_caught

    async def _task_group(self, node: Node, called: str) -> Any:
        async with anyio.create_task_group() as group:
            for part in node[2]:
                group.start_soon(self._play, part)
        return "all"

    async def _group_cancelled(self, node: Node, called: str) -> Any:
        async with anyio.create_task_group() as group:
            group.cancel_scope.deadline = _now() + limit_s(node)
            for part in node[2]:
                group.start_soon(self._play, part)
            await step(f"{called} began")
            if node[1] % 2:
                group.cancel_scope.cancel()
        return group.cancel_scope.cancelled_caught

    async def _starts(self, node: Node, called: str) -> Any:
        async def started(part: Node, *, task_status: Any) -> None:
            task_status.started(await step(f"{called} started", self._seen()))
            await self._play(part)

        async with anyio.create_task_group() as group:
            for part in node[2]:
                self._hear(f"{called} starts {await group.start(started, part)}")
            if node[1] % 3 == 0:
                group.cancel_scope.cancel()
        return "all"

    async def _streams(self, node: Node, called: str) -> Any:
        send, receive = anyio.create_memory_object_stream[int](node[1] % 2)
        taken: list[str] = []

        async def sends() -> None:
            async with send:
                for number, part in enumerate(node[2]):
                    await self._play(part)
                    await send.send(number)

        async with anyio.create_task_group() as group, receive:
            group.start_soon(sends)
            with anyio.move_on_after(limit_s(node) * 4):
                async for number in receive:
                    taken.append(await step(f"{called} took {number}", self._seen()))
            group.cancel_scope.cancel()
        return taken

    async def _cleans_up_shielded(self, node: Node, called: str) -> Any:
        try:
            return await self._play(node[2][0])
        finally:
            with anyio.move_on_after(0.002 * (node[1] % 3), shield=True):
                await calls.again(f"{called} cleaned", self._seen())
                await calls.cleans_slowly(f"{called} cleaned up", self._seen())

    async def _until_it_is_over(self, node: Node, called: str) -> Any:
        """Again and again, until some time has passed."""
        deadline = _now() + abs(limit_s(node))
        for number in range(3):
            self._hear(f"{called} goes over it {number}")
            with anyio.CancelScope(deadline=deadline):
                await self._play(node[2][0])
            if _now() >= deadline:
                break
        return "over"


def scoped_agent_of(whole: Node) -> Callable[..., Awaitable[str]]:
    """As `agent_of`."""

    async def graph(run: perdure.AsyncRun[dict[str, Any]]) -> str:
        return await PlayingScoped(run).play(whole)

    return perdure.agent(dict, name="graph")(graph)
