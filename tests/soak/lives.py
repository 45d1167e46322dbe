"""One agent's life as those who use it see it: asked for, listened to, looked at, deleted."""

from __future__ import annotations

import random
import time
from collections import Counter
from itertools import islice
from typing import Any

import perdure
from perdure.store import Store
from tests.soak import cases
from tests.soak.cases import FUNCTIONS, ROUNDS

STRANDED_S = 180.0
FORKS_MAX = 2
PAGE = 20


class SoakError(AssertionError):
    """Something is not as it has to be."""


class Life:
    """An agent with one run."""

    def __init__(self, name: str, number: int, dice: random.Random) -> None:
        self.name = name
        self._function: Any = FUNCTIONS[number % len(FUNCTIONS)]
        self._dice = dice
        self._forks = 0
        self._said = ""
        self._moved_at = time.monotonic()

    def begin(self, store: Store) -> None:
        store.start(self._function, self.name)

    def go_on(self, store: Store) -> bool:
        """Give the run what it waits for; whether it is done.

        Raises:
            SoakError: it failed, needs somebody, or does not move any more.
        """
        found = [info for info in store.runs(self.name) if info.function == self._function.__name__]
        info = found[-1] if found else None
        self._watch(store, info)
        if info is None:
            return False
        if info.status == "done":
            return True
        if info.status not in ("pending", "running", "waiting"):
            raise SoakError(f"{info.id} is {info.status}: {info.problem}")
        tick = info.waits.rpartition("tick-")[2].rstrip("'\"")
        if info.status == "waiting" and tick.isdecimal():
            store.handle(info.id).signal(f"tick-{tick}", key="once")
        return False

    def _watch(self, store: Store, info: perdure.types.RunInfo | None) -> None:
        said = f"{info.status} {info.changed_at_micros} {info.waits}" if info is not None else ""
        if said != self._said:
            self._said, self._moved_at = said, time.monotonic()
        elif time.monotonic() - self._moved_at > STRANDED_S:
            why = store.handle(info.id).why() if info is not None else "it never began"
            raise SoakError(f"{self.name} is stranded: {said or 'asked for'}\n{why}")

    def fiddle(self, store: Store) -> None:
        """Something that people and programs do beside the run."""
        agent = store.agent(self.name)
        if not agent.seq:
            return
        what = self._dice.randrange(3)
        if what == 0:
            past = agent.at(self._dice.randint(1, agent.seq))
            if past.seq > agent.seq or not isinstance(past.plain, dict):
                raise SoakError(f"{self.name} at {past.seq}: {past.plain!r:.200}")
        elif what == 1:
            page = [commit.seq for commit in islice(agent.log(newest_first=True), PAGE)]
            if page != sorted(page, reverse=True):
                raise SoakError(f"{self.name}: its log is {page}")
            agent.diff(page[-1], page[0])
        elif self._forks < FORKS_MAX:
            self._forks += 1
            _try_out(agent, f"what-if-{self._forks}")

    def check(self, store: Store) -> None:
        """What came of it, once it is done.

        Raises:
            SoakError: an effect was repeated or is missing, or the state is another one.
            Corrupt: its log does not verify.
        """
        done = Counter(effect.op for effect in cases.world.effects(self.name))
        wanted = Counter(f"op-{number}" for number in range(ROUNDS))
        if done != wanted:
            raise SoakError(f"{self.name}: its effects were {dict(done)}")
        agent = store.agent(self.name)
        if agent.state["round"] != ROUNDS:
            raise SoakError(f"{self.name}: its state is {agent.state!r:.200}")
        if self._forks and "what-if-1" in {one.name for one in agent.branches() if not one.deleted}:
            agent.delete_branch("what-if-1")
        agent.verify()

    def end(self, store: Store) -> None:
        """Delete it.

        Raises:
            Conflict: a worker still looks at its run.
        """
        store.delete(self.name, purge=True)
        cases.world.forget(self.name)


def _try_out(agent: perdure.Agent[dict[str, Any]], name: str) -> None:
    """A branch with a checkpoint, edits that are taken back, and a key that is used twice."""
    branch = agent.fork(name)
    with branch.edit("tried", key=name) as draft:
        cases.remember(draft, cases.TEXT)
    before = branch.checkpoint(f"before {name}").seq
    seq = branch.seq
    with branch.edit("tried", key=name) as draft:
        cases.remember(draft, "never")
    if branch.seq != seq:
        raise SoakError(f"{agent.id}: the key {name!r} took effect twice")
    state = agent.at(before).plain
    with branch.edit("more") as draft:
        draft["more"] = True
    branch.undo()
    with branch.edit("much more") as draft:
        draft["more"] = [1] * 100
    branch.rollback(f"before {name}")
    if branch.state != state:
        raise SoakError(f"{agent.id}: rolled back, it is {branch.state!r:.200}")
