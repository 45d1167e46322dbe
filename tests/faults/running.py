"""Goes through a scene, one injection after the other, on one open store."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import perdure
from perdure.agents import Agent
from perdure.errors import Conflict, NotFound
from perdure.store import Store
from tests.faults import run_scenes  # noqa: F401  adds its scenes
from tests.faults.checking import State, WrongError, check_agent, check_usable
from tests.faults.injecting import KINDS, Helper, Injector, count, inject, interrupt
from tests.faults.scenes import SCENES

_numbers = itertools.count(1)

AGENTS_MAX = 2000
"""In one store: then a new one is opened, or what a store remembers would be what is measured."""

Inject = Callable[[Callable[[], object]], Injector]


class Finding(Exception):
    """An injection behind which something does not hold."""


class Runner:
    """A store that is made anew after a finding, and who helps to look."""

    def __init__(self, urls: Callable[[], str]) -> None:
        self._urls = urls
        self._whole: dict[str, tuple[int, Any]] = {}
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
        points = 0
        for _ in range(2):  # the first one fills caches
            agent, call = self._begin(scene)
            before = _last(self.store, agent)
            points = count(call)
            after = _last(self.store, agent)
            self._whole[scene] = after - before, _state(self.store, agent)
        return points

    def _begin(self, scene: str) -> tuple[Agent[State], Callable[[], object]]:
        self._left -= 1
        if self._left < 0:
            self.close()
            self.anew()
        return SCENES[scene](self.store, f"{scene}-{next(_numbers)}")

    def inject(self, scene: str, at: int, kind: int) -> str:
        """One injection; gives where it was, or "" where the call had ended before.

        Raises:
            Finding: what does not hold behind it.
        """
        return self.try_one(
            scene, f"--at {at} --kind {kind}", lambda call: inject(call, at, KINDS[kind])
        )

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
            where = raising(call).where
            self._check(scene, agent, call, before)
        except BaseException as error:
            words = f"--only {scene} {words}: {where}: {type(error).__name__}: {error}"
            raise Finding(words) from error
        return where

    def _check(
        self, scene: str, agent: Agent[State], call: Callable[[], object], before: tuple[int, Any]
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
        except (Conflict, NotFound):
            if not commits:
                raise
        except Exception as error:
            # To its function that was an error like any other: it failed with it, on the record.
            if not scene.startswith("run_") or "injected" not in str(error):
                raise
        check_usable(self.store, agent, self.helper)

    def _settled(self, agent: Agent[State]) -> tuple[int, Any]:
        """The log's end, and the state there. What a loop had handed over when it was ended may
        still come in between the two."""
        while True:
            last, state = _last(self.store, agent), _state(self.store, agent)
            if _last(self.store, agent) == last:
                return last, state


def _last(store: Store, agent: Agent[State]) -> int:
    """The seq of the log's end, whatever a handle remembers."""
    info = store.find(agent.id)
    return info.seq if info is not None else 0


def _state(store: Store, agent: Agent[State]) -> Any:
    return store.agent(agent.id, State, initial=State()).state.model_dump()


@contextmanager
def runner(urls: Callable[[], str]) -> Iterator[Runner]:
    made = Runner(urls)
    try:
        yield made
    finally:
        made.close()
