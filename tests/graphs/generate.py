"""Programs of tasks by chance, each from a seed, and what plays one as the function of a run.

A program is a tree of plain lists: what it does, a number of its own, and its parts.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any

import perdure
from perdure.engine.execution.current_run import current

Node = tuple[str, int, Any]

LEAVES = (
    "step",
    "step",
    "slow",
    "tool",
    "failing",
    "edit",
    "long edit",
    "now",
    "thread",
    "waits",
    "sleeps",
    "naps",
    "puts",
    "sets",
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
    "timeout",
    "timeout",
    "wait for",
    "try",
    "loop",
    "task",
    "deep",
    "cancel",
    "cancel later",
    "map",
    "outlives",
    "takes",
    "awaits",
    "shield",
    "cleans up",
)
OF_SEVERAL = ("row", "gather", "gather all", "group", "first", "some")
MAPS = ("map", "map by lambda")
RACY = (
    "first",
    "some",
    "timeout",
    "wait for",
    "cancel",
    "cancel later",
    "outlives",
    "takes",
    "awaits",
    "group",
    "gather",
)
"""What may call its parts now and not another time, by who is faster."""

LIMIT_S = 0.004


def program(seed: int, depth: int = 3) -> Node:
    """By a seed."""
    grower = Grower(random.Random(seed), LEAVES, NESTS, 0.2)
    return "row", 0, [grower.node(depth), grower.node(max(depth - 1, 0)), grower.step()]


class Grower:
    """Makes nodes by chance, and numbers them."""

    of_several: Sequence[str] = OF_SEVERAL

    def __init__(
        self, chance: random.Random, leaves: Sequence[str], nests: Sequence[str], bare: float
    ) -> None:
        self._chance, self._numbers = chance, count(1)
        self._leaves, self._nests, self._bare = leaves, nests, bare

    def node(self, left: int) -> Node:
        """One with so many levels below it, at most; in that share of cases none."""
        chance, number = self._chance, next(self._numbers)
        bare = left == 0 or chance.random() < self._bare
        kind = chance.choice(self._leaves if bare else self._nests)
        if kind in self.of_several:
            return kind, number, [self.node(left - 1) for _ in range(chance.randint(2, 3))]
        if kind in self._nests and kind not in MAPS:
            return kind, number, [self.node(left - 1)]
        return kind, number, chance.choice(("step", "slow", "tool"))

    def step(self) -> Node:
        return "step", next(self._numbers), None


def is_racy(one: Node) -> bool:
    """Whether it may be one way now and another way another time."""
    parts = one[2] if isinstance(one[2], list) else []
    return one[0] in RACY or any(is_racy(part) for part in parts)


def said_by(cancelled: BaseException) -> str:
    """What a cancellation says; of one of anyio's without the scope, which has another name now."""
    said = ", ".join(map(str, cancelled.args))
    return f" says {said.partition(' scope ')[0]}:" if said else ""


def delay_s(called: str) -> float:
    return sum(called.encode()) % 7 / 1000


class Playing:
    """One time that a program is played. `heard`: what it came to, in order, with its task, and how
    many edits it saw then, which steps are given, too; `begun`: of each call of a step or tool, how
    much of that was before it was really made."""

    def __init__(self, run: perdure.AsyncRun[Any]) -> None:
        self._run = run
        self._numbers: defaultdict[int, int] = defaultdict(int)
        self.heard: list[tuple[str, str]] = []
        self.begun: dict[str, int] = {}
        self.over, self.turn = False, 0
        self._queue: asyncio.Queue[int] = asyncio.Queue()
        self._event = asyncio.Event()
        self._outlive: list[asyncio.Task[Any]] = []
        self._left: list[asyncio.Task[Any]] = []

    async def play(self, whole: Node) -> str:
        playing.append(self)
        try:
            result: Any = await self._play(whole)
        except* ValueError as group:
            result = sorted(str(error) for error in group.exceptions)
        self._hear(f"all of it: {result}")
        for task in self._outlive[1:]:  # the first is left to itself, and cancelled at the end
            result = await asyncio.gather(task, return_exceptions=True)
            self._hear(f"outlived: {result}")
        result = await step("the end")
        self._hear(f"{result}")
        self.over = True
        return str(len(self.heard))

    def _hear(self, what: str) -> None:
        run = self._run._execution
        if run.interrupted is None and not self.over:
            frame = current()
            scope = frame.scope.path if frame is not None and frame.scope is not None else ""
            self.heard.append((scope, f"{self._seen()} {what}"))

    def _seen(self) -> str:
        state = self._run.state
        return "+".join(str(state.get(kind, 0)) for kind in ("edits", "long edits", "by hand"))

    async def _play(self, node: Node) -> Any:
        kind, number, _ = node
        self._numbers[number] += 1
        called = f"{number}.{self._numbers[number]}"
        try:
            result = await getattr(self, "_" + kind.replace(" ", "_"))(node, called)
        except asyncio.CancelledError as cancelled:
            self._hear(f"{called} {kind}{said_by(cancelled)} cancelled")
            raise
        except Exception as error:
            self._hear(f"{called} {kind} raised {type(error).__name__}")
            raise
        self._hear(f"{called} {kind}: {result}")
        return result

    # -- leaves --------------------------------------------------------------------------------

    async def _step(self, node: Node, called: str) -> Any:
        return _same(await step(called, self._seen()), called)

    async def _slow(self, node: Node, called: str) -> Any:
        return _same(await _slow(called, self._seen()), called)

    async def _tool(self, node: Node, called: str) -> Any:
        return _same(await _tool(called, self._seen()), called)

    async def _failing(self, node: Node, called: str) -> Any:
        return await _failing(called)

    async def _thread(self, node: Node, called: str) -> Any:
        return _same(await self._run.call(_thread, called, self._seen()), called)

    async def _edit(self, node: Node, called: str) -> Any:
        async with self._run.edit(f"edit {node[1]}") as draft:
            draft["edits"] = draft.get("edits", 0) + 1
            draft["drawn"] = len(str(self._run.uuid()))
        return "edited"

    async def _long_edit(self, node: Node, called: str) -> Any:
        async with self._run.edit(f"long edit {node[1]}") as draft:
            draft["long edits"] = draft.get("long edits", 0) + 1
            draft["drawn"] = len(str(self._run.uuid()))
            await asyncio.sleep(delay_s(called))

    async def _now(self, node: Node, called: str) -> Any:
        return self._run.now()

    async def _waits(self, node: Node, called: str) -> Any:
        return await self._run.wait_for(f"signal {called}", timeout=0.01, default="in vain")

    async def _sleeps(self, node: Node, called: str) -> Any:
        await self._run.sleep(0.005)

    async def _naps(self, node: Node, called: str) -> Any:
        await asyncio.sleep(delay_s(called))

    async def _puts(self, node: Node, called: str) -> Any:
        self._queue.put_nowait(node[1])

    async def _sets(self, node: Node, called: str) -> Any:
        self._event.set()

    # -- of parts ------------------------------------------------------------------------------

    async def _row(self, node: Node, called: str) -> Any:
        return [await self._play(part) for part in node[2]]

    async def _gather(self, node: Node, called: str) -> Any:
        return await asyncio.gather(*(self._play(part) for part in node[2]))

    async def _gather_all(self, node: Node, called: str) -> Any:
        parts = (self._play(part) for part in node[2])
        return [str(end) for end in await asyncio.gather(*parts, return_exceptions=True)]

    async def _group(self, node: Node, called: str) -> Any:
        tasks: list[asyncio.Task[Any]] = []
        try:
            async with asyncio.TaskGroup() as group:
                tasks += [group.create_task(self._play(part)) for part in node[2]]
        finally:
            assert all(task.done() for task in tasks)
        return [task.result() for task in tasks]

    async def _first(self, node: Node, called: str) -> Any:
        return await self._until(node, return_when=asyncio.FIRST_COMPLETED)

    async def _some(self, node: Node, called: str) -> Any:
        return await self._until(node, timeout=LIMIT_S)

    async def _until(self, node: Node, **how: Any) -> Any:
        tasks = [asyncio.create_task(self._play(part)) for part in node[2]]
        done, pending = await asyncio.wait(tasks, **how)
        self._hear(f"{called_first(tasks, done)} first")
        for task in tasks:
            if task in pending:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return [task.cancelled() for task in tasks]

    async def _timeout(self, node: Node, called: str) -> Any:
        try:
            async with asyncio.timeout(LIMIT_S):
                return await self._play(node[2][0])
        except TimeoutError:
            return "too late"

    async def _wait_for(self, node: Node, called: str) -> Any:
        try:
            return await asyncio.wait_for(self._play(node[2][0]), LIMIT_S)
        except TimeoutError:
            return "too late"

    async def _try(self, node: Node, called: str) -> Any:
        try:
            return await self._play(node[2][0])
        except* ValueError:
            await step(f"{called} caught")
        return "caught"

    async def _loop(self, node: Node, called: str) -> Any:
        return [await self._play(node[2][0]) for _ in range(2)]

    async def _task(self, node: Node, called: str) -> Any:
        return await asyncio.create_task(self._play(node[2][0]))

    async def _deep(self, node: Node, called: str) -> Any:
        async def deeper(left: int) -> Any:
            if left == 0:
                return await self._play(node[2][0])
            return await asyncio.create_task(deeper(left - 1))

        try:
            async with asyncio.timeout(LIMIT_S):
                return await deeper(8)
        except TimeoutError:
            return "too late"

    async def _cancel(self, node: Node, called: str) -> Any:
        task = asyncio.create_task(self._play(node[2][0]))
        await step(f"{called} before")
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    async def _cancel_later(self, node: Node, called: str) -> Any:
        task = asyncio.create_task(self._play(node[2][0]))
        asyncio.get_running_loop().call_later(LIMIT_S, task.cancel)
        await asyncio.wait([task])
        return task.cancelled()

    async def _map(self, node: Node, called: str) -> Any:
        function = {"step": step, "slow": _slow, "tool": _tool}[node[2]]
        return await self._run.map(function, [f"{called}.{n}" for n in range(3)], limit=2)

    async def _outlives(self, node: Node, called: str) -> Any:
        self._outlive.append(asyncio.create_task(self._play(node[2][0])))

    async def _takes(self, node: Node, called: str) -> Any:
        task = asyncio.create_task(self._play(node[2][0]))
        try:
            async with asyncio.timeout(2 * LIMIT_S):
                return await self._queue.get()
        except TimeoutError:
            return "empty"
        finally:
            await asyncio.wait([task])

    async def _awaits(self, node: Node, called: str) -> Any:
        task = asyncio.create_task(self._play(node[2][0]))
        try:
            await asyncio.wait_for(self._event.wait(), 2 * LIMIT_S)
        except TimeoutError:
            return "not set"
        finally:
            self._event.clear()
            await asyncio.wait([task])
        return "set"

    async def _shield(self, node: Node, called: str) -> Any:
        task = asyncio.create_task(self._play(node[2][0]))
        try:
            async with asyncio.timeout(LIMIT_S):
                return await asyncio.shield(task)
        except TimeoutError:
            await asyncio.wait([task])
            return "late"

    async def _cleans_up(self, node: Node, called: str) -> Any:
        try:
            return await self._play(node[2][0])
        finally:
            await step(f"{called} cleaned up")


playing: list[Playing] = []
"""Those that were begun, in order; emptied by whoever looks at them."""


def called_first(tasks: list[asyncio.Task[Any]], done: set[asyncio.Task[Any]]) -> list[int]:
    return [number for number, task in enumerate(tasks) if task in done]


def _same(result: str, called: str) -> str:
    assert result == f"{called}!", (result, called)
    return result


def note_begin(called: str) -> None:
    if playing:
        playing[-1].begun.setdefault(called, len(playing[-1].heard))


@perdure.step
async def step(called: str, seen: str = "") -> str:
    note_begin(called)
    return f"{called}!"


@perdure.step
async def _slow(called: str, seen: str = "") -> str:
    note_begin(called)
    await asyncio.sleep(delay_s(called))
    return f"{called}!"


@perdure.tool(on_crash="retry")
async def _tool(called: str, seen: str = "") -> str:
    note_begin(called)
    await asyncio.sleep(delay_s(called) / 2)
    return f"{called}!"


@perdure.step
async def _failing(called: str) -> str:
    note_begin(called)
    await asyncio.sleep(delay_s(called) / 2)
    raise ValueError(called)


@perdure.step
def _thread(called: str, seen: str = "") -> str:
    note_begin(called)
    return f"{called}!"


def agent_of(whole: Node) -> Callable[..., Awaitable[str]]:
    """An agent function that plays a program."""

    async def graph(run: perdure.AsyncRun[dict[str, Any]]) -> str:
        return await Playing(run).play(whole)

    return perdure.agent(dict, name="graph")(graph)
