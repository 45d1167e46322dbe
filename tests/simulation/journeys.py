"""Stores that are lived in, trimmed, purged, restored, copied, moved, exported and taken in, in any
order; after each step every log verifies, and every call that reads or moves does so or says why
not. Nothing that is known is `Corrupt`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import perdure
from perdure import Store
from perdure.model import to_micros
from perdure.replication import ClosedError, migrate, promote
from perdure.storage.log.reader import LogReader
from perdure.transfer.follower import Follower
from perdure.transfer.restoring import restore
from perdure.verification.verify import verify_log
from tests.simulation.house import REFUSED, House, backend_of, logs

Open = Callable[[str], Store]
STORES_MAX = 4


class Journey:
    """One seed's stores, and the way from one to the other.

    Args:
        new_url: of a store that is not there yet.
    """

    def __init__(self, open_: Open, new_url: Callable[[], str], seed: int) -> None:
        self.random = Random(f"journey {seed}")
        self._open = open_
        self._new_url = new_url
        self._counts = itertools.count(1)
        self.steps: list[str] = []
        self.houses = [self._house(new_url())]

    def go_on(self, steps: int) -> None:
        """Raises: Corrupt and the like, where something known is not readable any more."""
        ways = (
            [self._live] * 4
            + [self._trim] * 3
            + [self._restore] * 3
            + [self._purge, self._follow, self._follow_lost, self._migrate, self._export]
        )
        for _ in range(steps):
            house, way = self.random.choice(self.houses), self.random.choice(ways)
            self.steps.append(f"{way.__name__} {house.store.url}")
            for one in way(house):
                self.check(one)

    def _house(self, url: str) -> House:
        return House(self._open(url), self.random, names=3, count=1000 * next(self._counts))

    def _moved_in(self, url: str, replaces: House | None = None) -> House:
        """A store that was made by one of the ways; it takes the place of another one."""
        house = self._house(url)
        house.names = [*{info.name for info in logs(backend_of(house.store))}] or ["agent-0"]
        house.names.sort()
        if replaces is None and len(self.houses) >= STORES_MAX:
            replaces = self.random.choice(self.houses)
        if replaces is not None:
            self.houses.remove(replaces)
        self.houses.append(house)
        return house

    # -- ways ----------------------------------------------------------------------------------

    def _live(self, house: House) -> list[House]:
        house.go_on(self.random.choice((3, 15)))
        self.steps += house.deeds[-3:]
        return [house]

    def _trim(self, house: House) -> list[House]:
        for info in house.store.agents():
            if self.random.random() < 0.5:
                with suppress(*REFUSED):
                    agent = house.store.agent_of(info)
                    done = agent.trim(self.random.randint(1, info.seq))
                    self.steps.append(f"  {info.name} before {done.before}: {done.removed}")
        return [house]

    def _purge(self, house: House) -> list[House]:
        house.store.purge()
        return [house]

    def _restore(self, house: House) -> list[House]:
        """To the time of any commit, or between two."""
        moments = [
            commit.at
            for info in logs(backend_of(house.store))
            if not info.purged
            for commit in LogReader(backend_of(house.store), info).commits()
        ]
        if not moments:
            return []
        until = to_micros(self.random.choice(moments)) + self.random.choice((0, 0, -1))
        for leave_out in (False, True):
            url = self._new_url()
            follower = Follower(
                backend_of(house.store), backend_of(self._open(url)), kind="restoring", until=until
            )
            try:
                restore(follower, take_incomplete=leave_out)
            except perdure.Conflict as error:
                if leave_out or "retention removed" not in error.problem:
                    raise
                self.steps.append(f"  refused: {error.problem}")
                continue
            return [house, self._moved_in(url)]
        raise AssertionError("it was refused, though what is missing may be left out")

    def _follow(self, house: House) -> list[House]:
        url = self._new_url()
        target = self._open(url)
        for _ in range(self.random.randint(1, 3)):
            follower = Follower(backend_of(house.store), backend_of(target))
            follower.begin()
            follower.step(limit=self.random.choice((3, 10, 1000)))
            house.go_on(3)
            self._trim(house)
        promote(url, house.store.url)
        return [self._moved_in(url, house)]

    def _follow_lost(self, house: House) -> list[House]:
        """The source is lost when the follower is somewhere."""
        url = self._new_url()
        follower = Follower(backend_of(house.store), backend_of(self._open(url)))
        follower.begin()
        for _ in range(self.random.randint(1, 3)):
            follower.step(limit=self.random.choice((3, 10, 1000)))
        promote(url, source_is_lost=True)
        return [self._moved_in(url)]

    def _migrate(self, house: House) -> list[House]:
        url = self._new_url()

        def meanwhile(_: Any) -> None:
            with suppress(ClosedError):
                house.go_on(2)

        migrate(house.store.url, url, on_moved=meanwhile)
        return [self._moved_in(url, house)]

    def _export(self, house: House) -> list[House]:
        """All its agents into a new store, one by one."""
        url = self._new_url()
        store = self._open(url)
        for info in house.store.agents():
            store.import_log(list(house.store.export_log(info)))
        return [self._moved_in(url)]

    # -- what must hold ------------------------------------------------------------------------

    def check(self, house: House) -> None:
        store = house.store
        for info in logs(backend_of(store)):
            verify_log(backend_of(store), LogReader(backend_of(store), info))
        for info in store.agents():
            self._check_reading(store, info.name)
            self._check_moving(house, info.name)
        for info in logs(backend_of(store)):
            verify_log(backend_of(store), LogReader(backend_of(store), info))

    def _check_reading(self, store: Store, name: str) -> None:
        agent = store.agent(name)
        agent.refresh()
        assert list(agent.log(all_branches=True))
        for branch in agent.branches():
            if not branch.deleted:
                on = agent.branch(branch.name)
                assert isinstance(on.state, dict)
                assert list(on.log())
                on.drift()
        for point in agent.checkpoints():
            assert isinstance(agent.at(point.name).plain, dict)
        for seq in range(1, agent.seq + 1):
            with suppress(perdure.NotFound):
                agent.at(seq).read()
        for run in store.runs(name):
            handle = store.handle(run.id)
            for call in (handle.why, handle.effects, handle.report):
                with suppress(perdure.NotFound):  # its agent was deleted
                    call()
        agent.verify()

    def _check_moving(self, house: House, name: str) -> None:
        random, count = self.random, house.count
        house.count += 1
        agent = house.store.agent(name)
        if random.random() < 0.4:
            agent = agent.branch(random.choice([b.name for b in agent.branches() if not b.deleted]))
        calls: list[Callable[[], Any]] = [
            lambda: agent.fork(f"check-{count}", at=random.randint(1, agent.seq)),
            lambda: agent.rollback(random.randint(1, agent.seq), cancel_run=True),
            lambda: agent.undo(cancel_run=True),
            lambda: agent.redo(),
            lambda: agent.checkpoint(f"checked-{count}"),
            lambda: agent.update(lambda draft: draft.update(checked=count)),
            lambda: agent.adopt(random.choice(agent.branches()).name, cancel_run=True),
            lambda: agent.trim(random.randint(1, agent.seq)),
            lambda: agent.diff(1, agent.seq),
        ]
        for call in random.sample(calls, 3):
            with suppress(*REFUSED):
                call()
            with suppress(*REFUSED):
                agent.refresh()


def travel(open_: Open, new_url: Callable[[], str], seed: int, steps: int = 12) -> Journey:
    """One journey; what came of it."""
    journey = Journey(open_, new_url, seed)
    journey.houses[0].go_on(20)
    journey.go_on(steps)
    return journey
