"""Wrong arguments for everything, one after the other: each is refused, or does no harm."""

from __future__ import annotations

import asyncio
import random
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import Parameter
from typing import Any

from msgspec import Struct

from perdure.core.arguments import exact_types
from perdure.core.arguments.exact_types import is_a
from tests.rubbish.calls import Caller
from tests.rubbish.hostile import EndlessError
from tests.rubbish.tolerances import may_write, trouble
from tests.rubbish.values import MAKERS, shown
from tests.rubbish.world import Print, World, forget_memories, memories

HANG_S = 60
CHANGES_MAX = 25
"""Of a world, until it is used up and another one made."""


class Finding(Struct, frozen=True):
    target: str
    wrong: str
    problem: str
    trace: str = ""

    def __str__(self) -> str:
        return f"{self.target}({self.wrong}): {self.problem}\n{self.trace}"


class HungError(BaseException):
    """A call took longer than any may."""


@contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Raise what is in a call that hangs. On the main thread."""

    def hung(*_: Any) -> None:
        raise HungError

    before = signal.signal(signal.SIGALRM, hung)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


Case = tuple[str, dict[str, int]]
"""A target, and by parameter which of the wrong values it gets."""


def one_wrong(caller: Caller) -> Iterator[Case]:
    """Each wrong value at each parameter."""
    for target, params in caller.targets():
        for param in params:
            for index in range(len(MAKERS)):
                yield target, {param.name: index}


def several_wrong(caller: Caller, rng: random.Random) -> Iterator[Case]:
    """Any at any, for ever."""
    every = list(caller.targets())
    while True:
        target, params = rng.choice(every)
        yield target, {param.name: rng.randrange(len(MAKERS)) for param in _some(params, rng)}


def _some(params: list[Parameter], rng: random.Random) -> list[Parameter]:
    return rng.sample(params, rng.randint(1, len(params)))


class Attack:
    """Calls case after case on worlds of a backend."""

    def __init__(self, new_url: Callable[[], str]) -> None:
        self.loop = asyncio.new_event_loop()
        # What callbacks that were given raise is the loop's to report, and no finding.
        self.loop.set_exception_handler(lambda *_: None)
        self.caller = Caller(self.loop)
        self._new_url = new_url
        self._world: World | None = None
        self._memories = memories()
        self.calls = 0
        self.refused = 0
        self._behind: list[str] = []
        """What was called before: a world's end may show what came of an earlier call."""

    def close(self) -> None:
        self._drop()
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    def _drop(self) -> None:
        if self._world is not None:
            self._world.close()
            self._world = None
        forget_memories(self._memories)

    def run(self, case: Case) -> Finding | None:
        """One call, and what is the matter with it, if anything is."""
        target, indexes = case
        wrong = {name: MAKERS[index]() for name, index in indexes.items()}
        words = ", ".join(f"{name}={shown(value)}" for name, value in wrong.items())
        world = self._world
        if world is None:
            world = self._world = World(self._new_url())
        self.caller.prepare(world, target)
        before = world.print()
        self.calls += 1
        self._behind = [*self._behind[-CHANGES_MAX:], f"{target}({words})"]
        problem, trace = "", ""
        raised = False
        try:
            with bounded(HANG_S):
                self.caller.call(world, target, wrong)
        except (HungError, EndlessError) as error:
            problem = "it hangs" if isinstance(error, HungError) else "it goes on without an end"
            trace, raised = "".join(traceback.format_tb(error.__traceback__)[-6:]), True
            problem = problem if trouble(target, error, wrong) else ""
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            raised = True
            self.refused += 1
            problem = trouble(target, error, wrong)
            if problem:
                trace = _last(error)
                problem += f": {type(error).__name__}: {shown(error)}"
        try:
            if not problem:
                problem = self._look(world, target, wrong, before, raised=raised)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            problem, trace = (
                f"cannot be read any more: {error!r:.300}, behind {self._behind}",
                _last(error),
            )
        if problem or target == "replication.migrate":  # its agents are elsewhere, or some are
            self._drop()
        if problem:
            return Finding(target, words, problem, trace)
        return None

    def _look(
        self, world: World, target: str, wrong: dict[str, Any], before: Print, *, raised: bool
    ) -> str:
        after = world.print()
        if after == before:
            return ""
        # A run that is named rightly and then fails is one of its agent, which an earlier call may
        # have made.
        named = wrong.get("agent")
        meant = exact_types.text(named) if is_a(named, str) else None
        if raised and (
            not may_write(target) or (_moved(target) and after.touched(before, but=meant))
        ):
            return "it raised, and something was written"
        world.dirty += 1
        room = self.caller.rooms.get(target)
        world.read_all(of=before, but=() if room is None else room.own_words)
        if room is not None:
            room.read(world, after.changed(before)[0])
        if room is not None and room.own_words:
            self._drop()
        elif target == "replication.migrate":
            world.read_elsewhere()
        elif world.dirty >= CHANGES_MAX:
            world.use_all()
            self._drop()
        return ""


def _moved(target: str) -> bool:
    return target != "replication.migrate"


def _last(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-5:]
    return "".join(f"    {f.filename.rpartition('/src/')[2]}:{f.lineno} {f.line}\n" for f in frames)
