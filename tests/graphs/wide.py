"""Programs by chance of all that tasks do beside each other: they end beside tasks that are still
at their steps, swallow cancellations, map over functions of every kind, wait for each other by what
asyncio has, for signals, answers and children, and clean up behind generators and contexts."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from typing import Any

import perdure
from perdure import Signal, Timer
from tests.graphs import called as calls
from tests.graphs.generate import OF_SEVERAL as GROUPED
from tests.graphs.generate import Grower, Node, called_first, playing, step
from tests.graphs.timed import PlayingTimed

LEAVES = (
    "step",
    "step",
    "step",
    "slow",
    "tool",
    "failing",
    "edit",
    "long edit",
    "now",
    "thread",
    "sleeps",
    "naps",
    "puts",
    "sets",
    "yields",
    "rings",
    "ticks",
    "draws",
    "raises",
    "again",
    "asked for",
    "asked for in thread",
    "once",
    "once in thread",
    "probed",
    "late",
    "late in thread",
    "tried again",
    "cleans slowly",
    "keeps on",
    "failing in thread",
    "direct",
    "context",
    "signal",
    "signal",
    "question",
    "selects",
    "child",
)
NESTS = (
    "row",
    "row",
    "gather",
    "gather",
    "gather all",
    "group",
    "group",
    "first",
    "some",
    "timeout",
    "wait for",
    "try",
    "loop",
    "task",
    "deep",
    "cancel",
    "cancel later",
    "cancel soon",
    "outlives",
    "takes",
    "awaits",
    "shield",
    "late shield",
    "cleans up",
    "cleans up much",
    "leaves",
    "leaves",
    "abandons",
    "abandons",
    "swallows",
    "swallows",
    "first error",
    "as completed",
    "generates",
    "contexts",
    "stack",
    "lock",
    "semaphore",
    "condition",
    "barrier",
    "bounded queue",
    "callback",
    "soon",
    "in context",
    "maps",
    "maps",
    "maps",
    "map of parts",
    "races",
    "cancel twice",
    "again and again",
)
OF_SEVERAL = (
    "leaves",
    "first error",
    "as completed",
    "generates",
    "lock",
    "semaphore",
    "condition",
    "barrier",
    "bounded queue",
    "map of parts",
    "races",
)
SIGNALS = 3
SOME_S = (0.0005, 0.002, 0.004, 0.01)


class _Grower(Grower):
    of_several = (*GROUPED, *OF_SEVERAL)


def wide_program(seed: int, depth: int = 3) -> Node:
    """By a seed. The root says how it ends: as its first part does, or by raising, or beside
    tasks, or by another turn."""
    chance = random.Random(seed)
    few = chance.random() < 0.5  # a few kinds that meet each other often
    leaves = chance.sample(LEAVES, 8) if few else LEAVES
    nests = chance.sample(NESTS, 8) if few else NESTS
    grower, depth = _Grower(chance, leaves, nests, 0.25), chance.randint(1, depth)
    end = chance.choice(("awaits", "awaits", "returns", "raises", "again"))
    return end, 0, [grower.node(depth), grower.node(depth - 1), grower.step()]


def kinds_of(node: Node) -> set[str]:
    """Of all nodes in it."""
    parts = node[2] if isinstance(node[2], list) else []
    return {node[0]}.union(*(kinds_of(part) for part in parts))


class PlayingWide(PlayingTimed):
    """As that, with much more."""

    var: contextvars.ContextVar[str] = contextvars.ContextVar("var", default="")

    async def play(self, whole: Node) -> str:
        playing.append(self)
        end, _, parts = whole
        try:
            return await self._whole(end, parts)
        finally:
            self.over = True

    async def _whole(self, end: str, parts: list[Node]) -> str:
        result: Any = "nothing"
        try:
            result = [await self._play(parts[0]), await self._play(parts[1])]
        except* ValueError as group:
            result = sorted(str(error) for error in group.exceptions)
            if end == "raises":
                raise ValueError(str(result)) from None
        self._hear(f"all of it: {result}")
        if end == "awaits":
            for task in [*self._outlive]:
                self._hear(f"outlived: {await asyncio.gather(task, return_exceptions=True)}")
        self._hear(str(await step("the end", str(self._count()))))
        return str(self._count())

    def _count(self) -> int:
        """How much was heard; a task group cancels its tasks in any order."""
        return sum(not what.endswith("cancelled") for _, what in self.heard)

    def _told(self, node: Node) -> str:
        """What a call is given of what came before."""
        return self._seen() + (f" {self._count()}" if node[1] % 3 else "")

    def _spawn(self, work: Awaitable[Any]) -> asyncio.Task[Any]:
        return asyncio.create_task(_awaiting(work))

    # -- leaves --------------------------------------------------------------------------------

    async def _recorded(self, function: Callable[..., Any], node: Node, called: str) -> Any:
        try:
            return await self._run.call(function, called, self._told(node))
        except (perdure.InDoubt, perdure.TimedOut) as error:
            return type(error).__name__

    async def _step(self, node: Node, called: str) -> Any:
        return await step(called, self._told(node))

    async def _tool(self, node: Node, called: str) -> Any:
        return await self._again(node, called)

    async def _thread(self, node: Node, called: str) -> Any:
        return await self._recorded(calls.in_thread, node, called)

    async def _again(self, node: Node, called: str) -> Any:
        return await self._recorded(calls.again, node, called)

    async def _asked_for(self, node: Node, called: str) -> Any:
        return await self._recorded(calls.asked_for, node, called)

    async def _asked_for_in_thread(self, node: Node, called: str) -> Any:
        return await self._recorded(calls.asked_for_in_thread, node, called)

    async def _once(self, node: Node, called: str) -> Any:
        return await self._recorded(calls.once, node, called)

    async def _once_in_thread(self, node: Node, called: str) -> Any:
        return await self._recorded(calls.once_in_thread, node, called)

    async def _probed(self, node: Node, called: str) -> Any:
        return await self._recorded(calls.probed, node, called)

    async def _late(self, node: Node, called: str) -> Any:
        return await self._recorded(calls.late, node, called)

    async def _late_in_thread(self, node: Node, called: str) -> Any:
        return await self._recorded(calls.late_in_thread, node, called)

    async def _tried_again(self, node: Node, called: str) -> Any:
        return await self._recorded(calls.tried_again, node, called)

    async def _cleans_slowly(self, node: Node, called: str) -> Any:
        return await self._recorded(calls.cleans_slowly, node, called)

    async def _keeps_on(self, node: Node, called: str) -> Any:
        return await self._recorded(calls.keeps_on, node, called)

    async def _failing_in_thread(self, node: Node, called: str) -> Any:
        return await self._recorded(calls.failing_in_thread, node, called)

    async def _direct(self, node: Node, called: str) -> Any:
        return calls.in_thread(called, self._told(node))

    async def _raises(self, node: Node, called: str) -> Any:
        raise ValueError(called)

    async def _draws(self, node: Node, called: str) -> Any:
        return self._run.random(), str(self._run.uuid())

    async def _context(self, node: Node, called: str) -> Any:
        before = self.var.get()
        self.var.set(called)
        return before, await step(called, self.var.get())

    async def _signal(self, node: Node, called: str) -> Any:
        name = f"signal {node[1] % SIGNALS}"
        limit = random.Random(node[1]).choice((None, 0, *SOME_S))
        return await self._run.wait_for(name, timeout=limit, default="none")

    async def _question(self, node: Node, called: str) -> Any:
        limit = random.Random(node[1]).choice((None, *SOME_S))
        return await self._run.ask(f"{called}?", schema=int, timeout=limit, default=-1)

    async def _selects(self, node: Node, called: str) -> Any:
        found = await self._run.select(
            a=Signal(f"signal {node[1] % SIGNALS}"), b=Timer(0.002), c=Signal("signal 0")
        )
        return found.name, found.value

    async def _child(self, node: Node, called: str) -> Any:
        born = await self._run.start(calls.child, f"child {called}", called)
        self._hear(f"{called} born")
        if node[1] % 3:
            return await born.result()
        try:
            return await born.result(timeout=0.002)
        except perdure.TimedOut:
            return "not yet"

    # -- ends, and cancellations -----------------------------------------------------------------

    async def _leaves(self, node: Node, called: str) -> Any:
        """The others go on with what they were at, if one of them raises."""
        return await asyncio.gather(
            *(self._play(part) for part in node[2]), self._raising(node, called)
        )

    async def _raising(self, node: Node, called: str) -> None:
        await step(f"{called} looks", self._told(node))
        if node[1] % 2:
            raise ValueError(called)

    async def _abandons(self, node: Node, called: str) -> Any:
        self._left.append(self._spawn(self._play(node[2][0])))
        if node[1] % 2:
            await step(f"{called} abandoned")

    async def _swallows(self, node: Node, called: str) -> Any:
        try:
            return await self._play(node[2][0])
        except asyncio.CancelledError:
            if node[1] % 3 == 0:
                await step(f"{called} swallowed")
            return "swallowed"

    async def _cleans_up_much(self, node: Node, called: str) -> Any:
        try:
            return await self._play(node[2][0])
        finally:
            for n in range(2):
                await calls.again(f"{called} cleaned {n}", self._seen())
            with suppress(ValueError):
                await self._run.call(calls.failing_in_thread, f"{called} cleaned up")

    async def _cancel_twice(self, node: Node, called: str) -> Any:
        task = self._spawn(self._play(node[2][0]))
        await step(f"{called} before")
        task.cancel()
        await step(f"{called} between")
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    async def _again_and_again(self, node: Node, called: str) -> Any:
        """Each time under a timeout, until it is through."""
        for attempt in range(3):
            try:
                async with asyncio.timeout(0.001 * 2**attempt):
                    return await self._play(node[2][0])
            except TimeoutError:
                self._hear(f"{called} out of time")
        return "given up"

    async def _races(self, node: Node, called: str) -> Any:
        """The first that is through cancels the others, and nobody waits for these."""
        tasks = [self._spawn(self._play(part)) for part in node[2]]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        self._left += tasks
        return called_first(tasks, done)

    async def _first_error(self, node: Node, called: str) -> Any:
        return await self._until(node, return_when=asyncio.FIRST_EXCEPTION, timeout=0.006)

    async def _as_completed(self, node: Node, called: str) -> Any:
        tasks = [self._spawn(self._play(part)) for part in node[2]]
        for number, one in enumerate(asyncio.as_completed(tasks)):
            end = await asyncio.gather(one, return_exceptions=True)
            self._hear(f"{called} completed {number}: {end}")
        return "all"

    # -- generators and contexts -----------------------------------------------------------------

    async def _generates(self, node: Node, called: str) -> Any:
        async def parts() -> AsyncGenerator[Any, None]:
            try:
                for part in node[2]:
                    yield await self._play(part)
            finally:
                await step(f"{called} generated", self._seen())

        async with aclosing(parts()) as generated:
            async for number, one in _numbered(generated):
                self._hear(f"{called} generates {one}")
                if number == node[1] % 3:
                    break
        return "generated"

    @asynccontextmanager
    async def _around(self, called: str) -> AsyncIterator[None]:
        await step(f"{called} enters")
        try:
            yield
        finally:
            await step(f"{called} leaves", self._seen())

    async def _contexts(self, node: Node, called: str) -> Any:
        async with self._around(f"{called} out"), self._around(f"{called} in"):
            return await self._play(node[2][0])

    async def _stack(self, node: Node, called: str) -> Any:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(step, f"{called} popped")
            await stack.enter_async_context(self._around(called))
            stack.push_async_callback(self._raising, node, called)
            return await self._play(node[2][0])

    async def _in_context(self, node: Node, called: str) -> Any:
        context = contextvars.copy_context()
        context.run(self.var.set, f"in {called}")
        task = asyncio.create_task(_awaiting(self._play(node[2][0])), context=context)
        await step(f"{called} beside", self.var.get())
        return await task, context[self.var]

    # -- what asyncio has for tasks that wait for each other -------------------------------------

    async def _side_by_side(self, works: list[Awaitable[Any]]) -> Any:
        ends = await asyncio.gather(*map(self._spawn, works), return_exceptions=True)
        return [str(end) for end in ends]

    async def _lock(self, node: Node, called: str) -> Any:
        return await self._one_by_one(asyncio.Lock(), node, called)

    async def _semaphore(self, node: Node, called: str) -> Any:
        return await self._one_by_one(asyncio.Semaphore(2), node, called)

    async def _one_by_one(self, lock: Any, node: Node, called: str) -> Any:
        async def locked(number: int, part: Node) -> Any:
            async with lock:
                self._hear(f"{called} has it {number}")
                return await self._play(part)

        return await self._side_by_side([locked(n, part) for n, part in enumerate(node[2])])

    async def _condition(self, node: Node, called: str) -> Any:
        condition, come = asyncio.Condition(), 0

        async def waits(number: int, part: Node) -> Any:
            async with condition:
                await condition.wait_for(lambda: come >= number)
            return await self._play(part)

        tasks = [self._spawn(waits(n, part)) for n, part in enumerate(node[2])]
        try:
            for number in range(len(tasks)):
                await step(f"{called} comes {number}")
                async with condition:
                    come += 1
                    condition.notify_all()
        except BaseException:
            for task in tasks:
                task.cancel()
            raise
        return [str(end) for end in await asyncio.gather(*tasks, return_exceptions=True)]

    async def _barrier(self, node: Node, called: str) -> Any:
        barrier = asyncio.Barrier(len(node[2]))

        async def meets(part: Node) -> Any:
            try:
                await self._play(part)
            except ValueError:
                await step(f"{called} failed")
            try:
                async with asyncio.timeout(0.05):  # one of them may be cancelled
                    number = await barrier.wait()
            except (TimeoutError, asyncio.BrokenBarrierError) as error:
                return type(error).__name__
            return number, await step(f"{called} met {number}", self._told(part))

        return await self._side_by_side([meets(part) for part in node[2]])

    async def _bounded_queue(self, node: Node, called: str) -> Any:
        queue: asyncio.Queue[int | None] = asyncio.Queue(1)
        taken: list[str] = []

        async def puts() -> None:
            try:
                for number, part in enumerate(node[2]):
                    with suppress(ValueError, ExceptionGroup):
                        await self._play(part)
                    await queue.put(number)
                await queue.put(None)
            except asyncio.CancelledError:
                taker.cancel()
                raise

        async def takes() -> None:
            while (number := await queue.get()) is not None:
                taken.append(await step(f"{called} took {number}", self._seen()))

        taker = self._spawn(takes())
        ends = await asyncio.gather(self._spawn(puts()), taker, return_exceptions=True)
        return taken, [str(end) for end in ends]

    async def _callback(self, node: Node, called: str) -> Any:
        heard = asyncio.get_running_loop().create_future()

        def tell(task: asyncio.Task[Any]) -> None:
            self._hear(f"{called} done")
            if not heard.done():
                heard.set_result(task.cancelled())

        task = self._spawn(self._play(node[2][0]))
        task.add_done_callback(tell)
        try:
            if node[1] % 2:
                await step(f"{called} beside")
                task.cancel()
            return await heard, await step(f"{called} told", self._told(node))
        finally:
            self._left.append(task)

    async def _soon(self, node: Node, called: str) -> Any:
        loop = asyncio.get_running_loop()

        def begin(left: int) -> None:
            self._hear(f"{called} soon {left}")
            if left:
                loop.call_soon(begin, left - 1)
            else:
                begun.set_result(self._spawn(self._play(node[2][0])))

        begun = loop.create_future()
        loop.call_soon(begin, node[1] % 3)
        return await asyncio.gather(await begun, return_exceptions=True)

    # -- maps ------------------------------------------------------------------------------------

    def _mapped(self, node: Node, called: str) -> Callable[[int], Any]:
        run = self._run
        forms: list[Callable[[int], Any]] = [
            lambda n: step(f"{called}.{n}"),
            lambda n: run.call(calls.in_thread, f"{called}.{n}"),
            lambda n: calls.in_thread(f"{called}.{n}"),
            lambda n: calls.in_thread(f"{called}.{n}") + calls.in_thread(f"{called}.{n} too"),
            lambda n: calls.again_in_thread(f"{called}.{n}"),
            lambda n: run.call(calls.asked_for, f"{called}.{n}"),
            lambda n: calls.once(f"{called}.{n}") if n % 2 else calls.again(f"{called}.{n}"),
            lambda n: run.call(calls.failing_in_thread if n == 1 else step, f"{called}.{n}"),
            lambda n: calls.failing_in_thread(f"{called}.{n}") if n == 1 else n,
            lambda n: run.map(lambda m: run.call(calls.in_thread, f"{called}.{n}.{m}"), range(2)),
            lambda n: calls.cleans_slowly(f"{called}.{n}"),
            lambda n: n,
        ]
        return random.Random(node[1]).choice(forms)

    async def _maps(self, node: Node, called: str) -> Any:
        """Of functions of all kinds; let be, cancelled beside its other part, or timed out."""
        chance = random.Random(node[1] * 7)
        bare = chance.choice((step, calls.in_thread, calls.again_in_thread, calls.again, None))
        items: list[Any] = [f"{called}.{n}" for n in range(4)]
        function: Any = bare
        if bare is None:
            function, items = self._mapped(node, called), [*range(4)]
        limit, how = chance.randint(1, 3), chance.choice(("let be", "cancelled", "timed out"))
        if how == "timed out":
            try:
                async with asyncio.timeout(chance.choice(SOME_S)):
                    return await self._run.map(function, items, limit=limit)
            except TimeoutError:
                return "too late"
        task = self._spawn(self._run.map(function, items, limit=limit))
        try:
            await self._play(node[2][0])
        finally:
            if how == "cancelled":
                task.cancel()
            ends = await asyncio.gather(task, return_exceptions=True)
        return [str(end) for end in ends]

    async def _map_of_parts(self, node: Node, called: str) -> Any:
        return await self._run.map(self._play, node[2], limit=node[1] % 3 + 1)


async def _awaiting(work: Awaitable[Any]) -> Any:
    return await work


async def _numbered(these: AsyncIterator[Any]) -> AsyncIterator[tuple[int, Any]]:
    number = 0
    async for one in these:
        yield number, one
        number += 1


def wide_agent_of(
    whole: Node, player: type[PlayingWide] = PlayingWide
) -> Callable[..., Awaitable[str]]:
    """As `agent_of`."""

    async def graph(run: perdure.AsyncRun[dict[str, Any]], turn: int = 0) -> str:
        play = player(run)
        play.turn = turn
        said = await play.play(whole)
        if whole[0] == "again" and turn == 0:
            again: str = run.again(1)
            return again
        return said

    return perdure.agent(dict, name="graph")(graph)
