"""Programs by chance of plain functions: threads of the run's, maps of every kind, loops of their
own, edits, waits and children. Threads come in any order: each notes what it hears for itself.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import perdure
from perdure import Signal, Timer
from tests.graphs import called as calls
from tests.graphs.generate import Grower, Node, playing, step
from tests.graphs.wide import SIGNALS

LEAVES = (
    "step",
    "step",
    "step",
    "again",
    "asked for",
    "once",
    "late",
    "failing",
    "edit",
    "draws",
    "state",
    "now",
    "plain",
)
ALONE = ("signal", "question", "selects", "sleeps", "child", "own loop", "own loop")
"""Of the function's own thread only: what waits, and what several threads would do in any order."""
NESTS = (
    "row",
    "row",
    "map",
    "map",
    "mapped",
    "mapped",
    "mapped",
    "executor",
    "executor",
    "try",
    "cleans up",
    "loop",
    "left in executor",
)
OF_SEVERAL = ("row", "map", "executor", "left in executor")


class _Grower(Grower):
    of_several = OF_SEVERAL


def threads_program(seed: int, depth: int = 3) -> Node:
    """By a seed."""
    chance = random.Random(seed)
    grower, depth = _Grower(chance, (*LEAVES, *ALONE), NESTS, 0.25), chance.randint(1, depth)
    end = chance.choice(("ends", "raises", "again"))
    return end, 0, [grower.node(depth), grower.node(depth - 1), grower.step()]


class PlayingThreads:
    """One time that a program is played; as `Playing`."""

    def __init__(self, run: perdure.Run[Any]) -> None:
        self._run = run
        self.heard: list[tuple[str, str]] = []
        self.begun: dict[str, int] = {}
        self.over, self.turn = False, 0

    def play(self, whole: Node) -> str:
        playing.append(self)  # type: ignore[arg-type]
        end, _, parts = whole
        heard: list[str] = []
        try:
            for number, part in enumerate(parts):
                self._play(part, str(number), heard, alone=True)
        except ValueError as error:
            heard.append(f"raised {error}")
            if end == "raises":
                raise
        finally:
            if self._run._execution.interrupted is None:
                self.heard = [("", what) for what in heard]
                self.over = True
        return str(len(heard))

    def _play(self, node: Node, path: str, heard: list[str], *, alone: bool) -> Any:
        """On one thread. `heard`: what that heard, in order; `alone`: it is the function's own."""
        kind, number, _ = node
        called = f"{path}:{number}"
        if kind in ALONE and not alone:
            kind = "step"
        play: Callable[..., Any] = getattr(self, "_" + kind.replace(" ", "_"))
        try:
            found = play(node, called, heard, alone)
        except Exception as error:
            heard.append(f"{called} {kind} raised {type(error).__name__}")
            raise
        heard.append(f"{called} {kind}: {found}")
        return found

    # -- leaves --------------------------------------------------------------------------------

    def _recorded(self, function: Callable[..., Any], called: str, heard: list[str]) -> Any:
        try:
            return function(called, f"{len(heard)} {heard[-1:]}")
        except (perdure.InDoubt, perdure.TimedOut) as error:
            return type(error).__name__

    def _step(self, node: Node, called: str, heard: list[str], alone: bool) -> Any:
        return self._recorded(calls.in_thread, called, heard)

    def _again(self, node: Node, called: str, heard: list[str], alone: bool) -> Any:
        return self._recorded(calls.again_in_thread, called, heard)

    def _asked_for(self, node: Node, called: str, heard: list[str], alone: bool) -> Any:
        return self._recorded(calls.asked_for_in_thread, called, heard)

    def _once(self, node: Node, called: str, heard: list[str], alone: bool) -> Any:
        return self._recorded(calls.once_in_thread, called, heard)

    def _late(self, node: Node, called: str, heard: list[str], alone: bool) -> Any:
        return self._recorded(calls.late_in_thread, called, heard)

    def _failing(self, node: Node, called: str, heard: list[str], alone: bool) -> Any:
        return calls.failing_in_thread(called, str(len(heard)))

    def _edit(self, node: Node, called: str, heard: list[str], alone: bool) -> Any:
        with self._run.edit(f"edit {called}") as draft:
            draft[called] = draft.get(called, 0) + 1
        return self._run.state.get(called)

    def _draws(self, node: Node, called: str, heard: list[str], alone: bool) -> Any:
        return self._run.random(), str(self._run.uuid())

    def _now(self, node: Node, called: str, heard: list[str], alone: bool) -> Any:
        return str(self._run.now())

    def _state(self, node: Node, called: str, heard: list[str], alone: bool) -> Any:
        return sorted(self._run.state.items()) if alone else None

    def _plain(self, node: Node, called: str, heard: list[str], alone: bool) -> Any:
        return self._run.call(_plain, called, len(heard))

    # -- waits, and loops ------------------------------------------------------------------------

    def _sleeps(self, node: Node, called: str, heard: list[str], alone: bool) -> Any:
        self._run.sleep(0.002)

    def _signal(self, node: Node, called: str, heard: list[str], alone: bool) -> Any:
        limit = random.Random(node[1]).choice((None, 0, 0.001, 0.01))
        name = f"signal {node[1] % SIGNALS}"
        return self._run.wait_for(name, timeout=limit, default="none")

    def _question(self, node: Node, called: str, heard: list[str], alone: bool) -> Any:
        limit = random.Random(node[1]).choice((None, 0.001, 0.01))
        return self._run.ask(f"{called}?", schema=int, timeout=limit, default=-1)

    def _selects(self, node: Node, called: str, heard: list[str], alone: bool) -> Any:
        name = f"signal {node[1] % SIGNALS}"
        found = self._run.select(a=Signal(name), b=Timer(0.002), c=Signal("signal 0"))
        return found.name, found.value

    def _child(self, node: Node, called: str, heard: list[str], alone: bool) -> Any:
        born = self._run.start(calls.child, f"child {called}".replace(":", "-"), called)
        heard.append(f"{called} born")
        try:
            return born.result(timeout=0.002 if node[1] % 2 else None)
        except perdure.TimedOut:
            return "not yet"

    def _own_loop(self, node: Node, called: str, heard: list[str], alone: bool) -> Any:
        """Its tasks have no places of their own: they are told apart by what they call."""

        async def one(number: int) -> list[str]:
            found = [await step(f"{called} {number}", str(len(heard)))]
            found.append(await calls.again(f"{called} {number}", str(found)))
            return found

        async def several() -> list[list[str]]:
            return await asyncio.gather(*map(one, range(node[1] % 3 + 1)))

        return asyncio.run(several())

    # -- of parts ------------------------------------------------------------------------------

    def _row(self, node: Node, called: str, heard: list[str], alone: bool) -> Any:
        return [
            self._play(part, f"{called}.{n}", heard, alone=alone) for n, part in enumerate(node[2])
        ]

    def _loop(self, node: Node, called: str, heard: list[str], alone: bool) -> Any:
        return [self._play(node[2][0], f"{called}.{n}", heard, alone=alone) for n in range(2)]

    def _try(self, node: Node, called: str, heard: list[str], alone: bool) -> Any:
        try:
            return self._play(node[2][0], f"{called}.0", heard, alone=alone)
        except ValueError:
            return calls.in_thread(f"{called} caught", str(heard[-1:]))

    def _cleans_up(self, node: Node, called: str, heard: list[str], alone: bool) -> Any:
        try:
            return self._play(node[2][0], f"{called}.0", heard, alone=alone)
        finally:
            calls.again_in_thread(f"{called} cleaned up", str(heard[-1:]))

    def _apart(self, part: Node, called: str) -> list[str]:
        """What a thread hears of."""
        heard: list[str] = []
        try:
            self._play(part, called, heard, alone=False)
        except ValueError as error:
            if part[1] % 2:
                raise ValueError(f"{error}, behind {heard}") from None
        return heard

    def _map(self, node: Node, called: str, heard: list[str], alone: bool) -> Any:
        parts = [(part, f"{called}.{n}") for n, part in enumerate(node[2])]
        return self._run.map(lambda one: self._apart(*one), parts, limit=node[1] % 3 + 1)

    def _mapped(self, node: Node, called: str, heard: list[str], alone: bool) -> Any:
        run = self._run
        forms: list[Callable[[str], Any]] = [
            calls.in_thread,
            calls.again_in_thread,
            lambda item: calls.in_thread(item, str(len(heard))),
            lambda item: run.call(_plain, item, 1),
            lambda item: calls.failing_in_thread(item) if item.endswith("1") else item,
            lambda item: run.map(calls.in_thread, [f"{item}.{n}" for n in range(2)]),
            lambda item: [calls.once_in_thread(item), calls.asked_for_in_thread(item)],
        ]
        chance = random.Random(node[1])
        items = [f"{called}.{n}" for n in range(4)]
        return run.map(chance.choice(forms), items, limit=chance.randint(1, 3))

    def _executor(self, node: Node, called: str, heard: list[str], alone: bool) -> Any:
        with self._run.executor(node[1] % 3 + 1) as threads:
            futures = self._submitted(threads, node, called)
            if node[1] % 2:
                heard.append(f"{called} first: {futures[0].exception()!r}")
            calls.in_thread(f"{called} beside", str(heard[-1:]))
        return [_end(future) for future in futures]

    def _left_in_executor(self, node: Node, called: str, heard: list[str], alone: bool) -> Any:
        """The block is left beside what its threads are at."""
        futures: list[Future[list[str]]] = []
        try:
            with self._run.executor() as threads:
                futures += self._submitted(threads, node, called)
                calls.failing_in_thread(f"{called} leaves", str(heard[-1:]))
        except ValueError:
            heard.append(f"{called} left")
        return [_end(future) for future in futures]

    def _submitted(self, threads: Any, node: Node, called: str) -> list[Future[list[str]]]:
        parts = enumerate(node[2])
        return [threads.submit(self._apart, part, f"{called}.{n}") for n, part in parts]


def _end(future: Future[list[str]]) -> Any:
    error = future.exception()
    return str(error) if error is not None else future.result()


def _plain(called: str, more: int) -> str:
    return f"{called} and {more}"


def threads_agent_of(whole: Node) -> Callable[..., str]:
    """As `agent_of`."""

    def graph(run: perdure.Run[dict[str, Any]], turn: int = 0) -> str:
        play = PlayingThreads(run)
        play.turn = turn
        said = play.play(whole)
        if whole[0] == "again" and turn == 0:
            again: str = run.again(1)
            return again
        return said

    return perdure.agent(dict, name="graph")(graph)
