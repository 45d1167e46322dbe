"""Goes through a scene, one injection after the other, on one open store."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import perdure
from perdure.agents import Agent
from perdure.errors import Conflict, NotFound
from perdure.state.event_loop.polling import LOST_S, Ticker
from perdure.store import Store
from tests.faults import (  # noqa: F401  they add their scenes
    acting_scenes,
    async_scenes,
    control_scenes,
    family_scenes,
    framework_scenes,
    run_scenes,
    store_scenes,
    user_scenes,
)
from tests.faults.checking import WrongError, check_agent, check_usable
from tests.faults.injecting import (
    KINDS,
    Helper,
    Injector,
    Watchdog,
    counted,
    inject,
    interrupt,
    is_told,
)
from tests.faults.scenes import SCENES

_numbers = itertools.count(1)

AGENTS_MAX = 500
"""In one store: then a new one is opened, or what a store remembers would be what is measured."""

Inject = Callable[[Callable[[], object]], Injector | user_scenes.Trap]


class Finding(Exception):
    """An injection behind which something does not hold."""


class Runner:
    """A store that is made anew after a finding, and who helps to look."""

    def __init__(self, urls: Callable[[], str]) -> None:
        self._urls = urls
        self._whole: dict[str, tuple[int, Any]] = {}
        self._calls: dict[str, list[int]] = {}
        self._points: dict[str, int] = {}
        self._watchdog = Watchdog()
        self._left = 0
        self._store: Store | None = None
        self.anew()

    @property
    def store(self) -> Store:
        assert self._store is not None
        return self._store

    def anew(self) -> None:
        """After a finding: nobody knows what the open store would do."""
        self.helper = Helper()
        self._store = perdure.open(self._urls(), durability="os")
        self._left = AGENTS_MAX

    def close(self) -> None:
        self.helper.call(self.store.close, 60.0)

    def points(self, scene: str) -> int:
        """How many instructions there are to raise at."""
        if scene in self._points:
            return self._points[scene]
        points = 0
        for _ in range(2):  # the first one fills caches
            agent, call = self._begin(scene)
            before = _last(self.store, agent)
            found = counted(call)
            points, self._calls[scene] = found.count, found.calls
            after = _last(self.store, agent)
            self._whole[scene] = after - before, _state(self.store, agent)
        self._points[scene] = points
        return points

    def _begin(self, scene: str) -> tuple[Agent[Any], Callable[[], object]]:
        self._left -= 1
        if self._left < 0:
            self.close()
            self.anew()
        return SCENES[scene](self.store, f"{scene}-{next(_numbers)}")

    def inject(self, scene: str, at: int, kind: int, again: int = 0) -> str:
        """One injection, or two; gives where it was, or "" where the call had ended before.

        Raises:
            Finding: what does not hold behind it.
        """
        words = f"--at {at} --kind {kind}" + (f" --again {again}" if again else "")
        calls = self._calls.get(scene, ())
        return self.try_one(scene, words, lambda call: inject(call, at, KINDS[kind], again, calls))

    def trap(self, scene: str, call_no: int, kind: int) -> str:
        """As `inject`: that call of the user's own code raises."""
        words, make = f"--call {call_no} --kind {kind}", user_scenes.USER_KINDS[kind]
        return self.try_one(scene, words, lambda call: user_scenes.trap.spring(call, call_no, make))

    def calls(self, scene: str) -> int:
        """How many calls of the user's own code there are."""
        if scene not in user_scenes.USERS:
            return 0
        return user_scenes.trap.spring(self._begin(scene)[1], 0, KINDS[0]).count

    def interrupt(self, scene: str, after_s: float, kind: int) -> str:
        """As `inject`, by a real signal after that time."""
        words = f"--after {after_s:.6f} --kind {kind}"
        return self.try_one(scene, words, lambda call: interrupt(call, after_s, KINDS[kind]))

    def seconds(self, scene: str) -> float:
        """How long the call takes where nobody looks on."""
        _, call = self._begin(scene)
        began = time.perf_counter()
        call()
        return time.perf_counter() - began

    def try_one(self, scene: str, words: str, raising: Inject) -> str:
        """As `inject`, whatever it is that raises."""
        agent, call = self._begin(scene)
        where = "?"
        try:
            before = _last(self.store, agent), _state(self.store, agent)
            with self._watchdog:
                where = raising(call).where
            self._check(scene, agent, call, before)
        except BaseException as error:
            where = "; ".join(getattr(error, "__notes__", [where]))
            words = f"--only {scene} {words}: {where}: {type(error).__name__}: {error}"
            raise Finding(words) from error
        return where

    def _check(
        self, scene: str, agent: Agent[Any], call: Callable[[], object], before: tuple[int, Any]
    ) -> None:
        check_agent(agent)
        commits, state = self._settled(agent)
        commits -= before[0]
        whole, done = self._whole[scene]
        if commits in (0, whole) and whole < 2:
            expected = done if commits else before[1]
            if state != expected:
                raise WrongError(f"{commits} of {whole} commits are in: {state}, not {expected}")
        elif not 0 <= commits <= whole and not scene.startswith("run_"):
            raise WrongError(f"{commits} commits are in, of {whole}")
        try:
            self.helper.call(call, 30.0)
        except asyncio.CancelledError:
            if not scene.startswith("run_user"):  # its function had cancelled itself
                raise
        except (Conflict, NotFound):
            # What it had handed over may still have come in since.
            if _last(self.store, agent) == before[0]:
                raise
        except Exception as error:
            # To its function that was an error like any other: it failed with it, on the record.
            if not scene.startswith("run_") or not is_told(error):
                raise
        check_usable(self.store, agent, self.helper)

    def _settled(self, agent: Agent[Any]) -> tuple[int, Any]:
        """The log's end, and the state there. What a loop had handed over when it was ended may
        still come in between the two."""
        while True:
            last, state = _last(self.store, agent), _state(self.store, agent)
            if _last(self.store, agent) == last:
                return last, state


def _last(store: Store, agent: Agent[Any]) -> int:
    """The seq of the log's end, whatever a handle remembers."""
    info = store.find(agent.id)
    return info.seq if info is not None else 0


def _state(store: Store, agent: Agent[Any]) -> Any:
    schema = agent._working.schema
    return store.agent(agent.id, schema, initial=schema.type()).state.model_dump()


HURRY = 0.04
LOOKS = ("LOST_S", "LOOK_MAX_S", "POLL_S")
"""How often who waits looks for what was lost: nothing but time hangs on it."""


@contextmanager
def hurried() -> Iterator[None]:
    """Those looks come sooner, or most of the time nothing would be done."""
    before: list[tuple[Any, str, Any]] = []
    for module in [one for name, one in sys.modules.items() if name.startswith("perdure.")]:
        for name in LOOKS:
            if name in vars(module):
                before.append((module, name, vars(module)[name]))
                setattr(module, name, vars(module)[name] * HURRY)
    defaults, Ticker.__init__.__defaults__ = Ticker.__init__.__defaults__, (LOST_S * HURRY,)
    try:
        yield
    finally:
        Ticker.__init__.__defaults__ = defaults
        for module, name, value in before:
            setattr(module, name, value)


@contextmanager
def runner(urls: Callable[[], str]) -> Iterator[Runner]:
    with hurried():
        made = Runner(urls)
        try:
            yield made
        finally:
            made.close()
