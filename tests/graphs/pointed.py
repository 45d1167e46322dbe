"""Programs by chance of a few kinds each, which meet each other again and again: threads of maps
beside edits, what is cancelled once more while it cleans up, and calls in doubt beside tasks that
look at the state and pass it on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple

from tests.graphs import called as calls
from tests.graphs.generate import OF_SEVERAL as GROUPED
from tests.graphs.generate import Grower, Node, step
from tests.graphs.wide import SOME_S, PlayingWide


class Point(NamedTuple):
    """Kinds that something is about."""

    leaves: tuple[str, ...]
    nests: tuple[str, ...]


POINTS = {
    "threads": Point(
        ("edit", "edit", "edit", "long edit", "step", "naps", "yields", "again", "waits"),
        (
            "maps beside",
            "maps beside",
            "maps beside",
            "gather",
            "group",
            "row",
            "loop",
            "timeout",
            "edits in a row",
        ),
    ),
    "cancelled again": Point(
        (
            "step",
            "slow",
            "slow",
            "again",
            "again",
            "edit",
            "long edit",
            "naps",
            "sleeps",
            "signal",
            "asked for",
            "thread",
            "cleans slowly",
            "waits",
        ),
        (
            "behind all",
            "behind all",
            "behind all",
            "two limits",
            "two limits",
            "limited group",
            "waits and cancels",
            "cancels at once",
            "cancels at once",
            "gather",
            "group",
            "row",
            "task",
            "cancel twice",
            "edits in a row",
            "swallows",
        ),
    ),
    "settled": Point(
        (
            "asked for",
            "asked for",
            "asked for in thread",
            "step",
            "naps",
            "naps",
            "edit",
            "spins",
            "slow",
            "again",
            "draws",
        ),
        (
            "gather",
            "gather",
            "group",
            "row",
            "row",
            "looks beside",
            "looks beside",
            "loop",
            "task",
            "edits in a row",
            "timeout",
        ),
    ),
}
OF_SEVERAL = (
    *GROUPED,
    "maps beside",
    "limited group",
    "waits and cancels",
    "looks beside",
    "edits in a row",
)
LATER_S = (0.0, 0.0, 1e-9, 0.0001, 0.0005, 0.001, 0.003)
"""How much later a second limit is over than the first."""


class _Grower(Grower):
    of_several = OF_SEVERAL


def pointed_program(seed: int, depth: int = 3) -> Node:
    """By a seed, which also says what it is about."""
    chance = random.Random(seed)
    point = POINTS[point_of(seed)]
    grower, depth = _Grower(chance, point.leaves, point.nests, 0.2), chance.randint(1, depth)
    end = chance.choice(("awaits", "awaits", "awaits", "returns", "raises", "again"))
    return end, 0, [grower.node(depth), grower.node(depth - 1), grower.step()]


def point_of(seed: int) -> str:
    return [*POINTS][seed % len(POINTS)]


class PlayingPointed(PlayingWide):
    """As that, with what these programs are about."""

    # -- threads of maps -------------------------------------------------------------------------

    async def _maps_beside(self, node: Node, called: str) -> Any:
        """A map whose function is plain, so that it is called on threads, beside its parts."""
        chance, run = random.Random(node[1] * 3), self._run
        forms: list[Callable[[str], Any]] = [
            lambda item: calls.in_thread(item),
            lambda item: [calls.in_thread(item), calls.in_thread(f"{item} too")],
            lambda item: calls.again_in_thread(item),
            lambda item: [calls.in_thread(item), calls.again_in_thread(f"{item} too")],
            lambda item: run.call(calls.in_thread, item),
            lambda item: item,
            calls.in_thread,
            calls.again_in_thread,
        ]
        items = [f"{called}.{n}" for n in range(chance.randint(2, 6))]
        mapped = run.map(chance.choice(forms), items, limit=chance.randint(1, 4))
        works: list[Awaitable[Any]] = [mapped, *(self._play(part) for part in node[2])]
        if chance.random() < 0.5:
            works.reverse()
        return await self._side_by_side(works)

    async def _edits_in_a_row(self, node: Node, called: str) -> Any:
        found = []
        for part in node[2]:
            found += [await self._edit(node, called), await self._play(part)]
        return found

    # -- what is cancelled, and cancelled again ----------------------------------------------------

    async def _behind_all(self, node: Node, called: str) -> Any:
        try:
            return await self._play(node[2][0])
        finally:
            for number in range(1 + (node[1] % 4 == 0)):
                await self._clean_up(random.Random(node[1] + number), f"{called} behind {number}")

    async def _clean_up(self, chance: random.Random, called: str) -> None:
        run = self._run
        ways: list[Callable[[], Awaitable[Any]]] = [
            lambda: step(called, self._seen()),
            lambda: calls.again(called, self._seen()),
            lambda: calls.asked_for(called, self._seen()),
            lambda: calls.cleans_slowly(called),
            lambda: run.call(calls.in_thread, called, self._seen()),
            lambda: self._edit(("edit", chance.randint(0, 99), None), called),
            lambda: self._long_edit(("long edit", chance.randint(0, 99), None), called),
            lambda: run.sleep(0.001),
            lambda: run.wait_for(f"signal {called}", timeout=0.001, default="none"),
            lambda: run.map(lambda n: calls.in_thread(f"{called}.{n}"), range(2)),
            lambda: asyncio.gather(step(f"{called} one"), step(f"{called} two", self._seen())),
        ]
        self._hear(f"{called} got {await chance.choice(ways)()}")

    def _limits_s(self, node: Node) -> tuple[float, float]:
        """Two, of which one is over just when, or soon after, the other one is."""
        chance = random.Random(node[1] * 11)
        first = chance.choice(SOME_S)
        both = first, first + chance.choice(LATER_S)
        return both if chance.random() < 0.5 else (both[1], both[0])

    async def _two_limits(self, node: Node, called: str) -> Any:
        outer, inner = self._limits_s(node)
        try:
            async with asyncio.timeout(outer):
                try:
                    async with asyncio.timeout(inner):
                        return await self._play(node[2][0])
                except TimeoutError:
                    return "too late", await step(f"{called} late", self._seen())
        except TimeoutError:
            return "much too late"

    async def _limited_group(self, node: Node, called: str) -> Any:
        outer, inner = self._limits_s(node)

        async def limited() -> Any:
            async with asyncio.timeout(inner), asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._play(part)) for part in node[2]]
            return [task.result() for task in tasks]

        try:
            return await asyncio.wait_for(limited(), outer)
        except TimeoutError:
            return "too late"

    async def _waits_and_cancels(self, node: Node, called: str) -> Any:
        outer, inner = self._limits_s(node)
        tasks: list[asyncio.Task[Any]] = []
        try:
            async with asyncio.timeout(outer):
                tasks += [self._spawn(self._play(part)) for part in node[2]]
                try:
                    await asyncio.wait(tasks, timeout=inner)
                finally:
                    for task in tasks:
                        task.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)
        except TimeoutError:
            self._hear(f"{called} out of time")
        finally:
            if tasks:
                await asyncio.wait(tasks)
        return [task.cancelled() for task in tasks]

    async def _cancels_at_once(self, node: Node, called: str) -> Any:
        """Again and again, with some turns of the loop between, in which it cleans up."""
        chance = random.Random(node[1] * 13)
        task = self._spawn(self._behind_all(node, called))
        if chance.random() < 0.5:
            await step(f"{called} before", self._seen())
        else:
            await asyncio.sleep(chance.choice(SOME_S))
        for _ in range(chance.randint(2, 4)):
            task.cancel()
            for _ in range(chance.randint(0, 6)):
                await asyncio.sleep(0)
        await asyncio.wait([task])
        return task.cancelled()

    # -- what looks at the state -------------------------------------------------------------------

    async def _looks_beside(self, node: Node, called: str) -> Any:
        """Beside its parts, some time later; and what it found decides what it does then."""

        async def looks() -> Any:
            found = []
            for number in range(2 + node[1] % 2):
                await asyncio.sleep(random.Random(node[1] + number).choice(SOME_S) / 4)
                seen = self._seen()
                self._hear(f"{called} looks {number}")
                if seen.endswith("0") or number % 2:
                    found.append(await step(f"{called} looked {number}", seen))
            return found

        with suppress(ValueError):
            return await asyncio.gather(*(self._play(part) for part in node[2]), looks())
        return "failed"
