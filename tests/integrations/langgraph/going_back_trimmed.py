"""As `going_back`, with trims in between: nothing comes back that was gone back from, and of what
stands nothing is missing, nor changed; now, and at each moment that a rollback leads to."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.sqlite import SqliteSaver

from perdure.errors import Conflict, NotFound
from tests.integrations.langgraph.checkpoints import config
from tests.integrations.langgraph.conftest import Place
from tests.integrations.langgraph.going_back import (
    THREAD,
    Both,
    Plain,
    State,
    Walk,
    graph_for,
    place_of,
    same,
)

Spot = tuple[str, str]
"""Namespace and id of a checkpoint."""


class BothTrimmed(Both):
    """Theirs keeps all. `before`: what ours had before that commit may have gone.

    Whatever ends a line may not: that of which nothing came, or nothing that is there.
    """

    def __init__(self, place: Place, chance: random.Random) -> None:
        super().__init__(place, chance)
        self.before = 1
        self._born: dict[Spot, int] = {}
        self._parents: dict[Spot, Spot] = {}
        self._gone: set[Spot] = set()

    def note(self) -> int:
        seq = super().note()
        for row in self._copies[seq]["checkpoints"]:
            spot = row[1:3]
            self._born.setdefault(spot, seq)
            if row[3]:
                self._parents[spot] = row[1], row[3]
        return seq

    # -- what may be missing ---------------------------------------------------------------

    def _ends(self, spots: set[Spot]) -> set[Spot]:
        ends = set(spots)
        for spot in spots:
            above = self._parents.get(spot)
            while above is not None:
                ends.discard(above)
                above = self._parents.get(above)
        return ends

    def _check(self, found: dict[Spot, CheckpointTuple], theirs: dict[Spot, Any]) -> None:
        assert found.keys() <= theirs.keys(), ("back", sorted(found.keys() - theirs.keys()))
        missing = theirs.keys() - found.keys()
        young = {spot for spot in missing if self._born[spot] >= self.before}
        assert not young, ("missing", young)
        ends = (missing & self._ends({*theirs})) - self._gone
        assert not ends, ("an end is missing", ends)
        assert not found.keys() & self._gone, ("back from the dead", found.keys() & self._gone)
        for spot, mine in found.items():
            same(mine, theirs[spot])

    def _listed(self, at: Any, **more: Any) -> dict[Spot, CheckpointTuple]:
        return {place_of(one): one for one in SqliteSaver.list(self, at, **more)}

    # -- a saver ---------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        with self._mutex:
            theirs, found = SqliteSaver.get_tuple(self, config), self.ours.get_tuple(config)
            if found is None and theirs is not None and config["configurable"].get("checkpoint_id"):
                assert self._born[place_of(theirs)] < self.before
                return None
            same(found, theirs)
            return found

    def list(self, config: Any, **more: Any) -> Iterator[CheckpointTuple]:
        with self._mutex:
            found = [*self.ours.list(config, **more)]
            if more.get("limit"):  # what a subgraph goes on from
                theirs = [*SqliteSaver.list(self, config, **more)]
                assert [place_of(one) for one in found] == [place_of(one) for one in theirs]
            listed = self._listed(config)
            for one in found:
                same(one, listed[place_of(one)])
            return iter(found)

    def get_delta_channel_history(self, **more: Any) -> Any:
        with self._mutex:
            return self.ours.get_delta_channel_history(**more)

    def compare(self) -> None:
        if self._chance.random() < 0.4:
            self._savers[self._chance.randrange(2)] = self._place.open()
        every: RunnableConfig = {"configurable": {"thread_id": THREAD}}
        theirs, saver = self._listed(every), self.ours
        found = {place_of(one): one for one in saver.list(every)}
        self._check(found, theirs)
        for space, one in self.places():
            at = saver.get_tuple(config(THREAD, one, space))
            same(at, theirs[space, one] if (space, one) in found else None)
        for space in {space for space, _ in theirs}:
            same(
                saver.get_tuple(config(THREAD, ns=space)),
                SqliteSaver.get_tuple(self, config(THREAD, ns=space)),
            )
            ids = [place_of(one) for one in saver.list(config(THREAD, ns=space))]
            assert ids == sorted(ids, reverse=True)
        for space in {space for space, _ in self.places()} - {space for space, _ in theirs}:
            assert saver.get_tuple(config(THREAD, ns=space)) is None

    # -- what is done ----------------------------------------------------------------------

    def trim(self, before: Any) -> bool:
        """Whether it was done."""
        try:
            (done,) = self.ours.trim(before, [THREAD])
        except Conflict:
            return False
        self.before = max(self.before, done.before)
        self.note()
        every: RunnableConfig = {"configurable": {"thread_id": THREAD}}
        self.compare()
        self._gone |= {*self._listed(every)} - {place_of(one) for one in self.ours.list(every)}
        return True

    def roll_back(self, to: int, branch: str = "main") -> None:
        self.agent(branch).rollback(to)
        self._restore(to)

    def adopt(self, at: int, branch: str) -> None:
        name = f"what-if {len(self._copies)}"
        self.agent().fork(name, at=at)
        self.agent(branch).adopt(name)
        self._restore(at)

    def _restore(self, to: int) -> None:
        self.set_rows(to)
        self.note()
        every: RunnableConfig = {"configurable": {"thread_id": THREAD}}
        there = {place_of(one) for one in self.ours.list(every)}
        theirs = {*self._listed(every)}
        # What was hidden while a trim took it.
        self._gone |= (theirs - there) - self._ends(theirs)

    def drop(self, places: set[Spot]) -> None:
        """Their part of a removal."""
        for table in ("checkpoints", "writes"):
            for space, one in places:
                self.conn.execute(
                    f"DELETE FROM {table} WHERE checkpoint_ns = ? AND checkpoint_id = ?",
                    (space, one),
                )
        self.note()

    def prune_all(self) -> None:
        self.ours.prune([THREAD])
        every: RunnableConfig = {"configurable": {"thread_id": THREAD}}
        spots = {*self._listed(every)}
        latest = {space: max(one for of, one in spots if of == space) for space, _ in spots}
        self.drop({(space, one) for space, one in spots if latest[space] != one})

    def delete_run(self, run: str) -> None:
        every: RunnableConfig = {"configurable": {"thread_id": THREAD}}
        self.ours.delete_for_runs([run])
        self.drop(
            {spot for spot, one in self._listed(every).items() if one.metadata.get("run_id") == run}
        )

    def copy(self) -> None:
        """A copy is what it is of, also when that is trimmed."""
        saver = self.ours
        saver.copy_thread(THREAD, "copy")
        self.note()
        of, made = ([*saver.list({"configurable": {"thread_id": one}})] for one in (THREAD, "copy"))
        assert [*map(place_of, of)] == [*map(place_of, made)]
        for one, other in zip(of, made, strict=True):
            same(other, one)
        saver.delete_thread("copy")


class TrimmedWalk(Walk):
    """What users do with a thread, at random."""

    both: BothTrimmed

    def __init__(self, place: Place, seed: int) -> None:
        self.chance = random.Random(seed)
        self.both = BothTrimmed(place, self.chance)
        self.delta = self.chance.random() < 0.2
        self.app = graph_for(
            self.both, State if self.delta else Plain, remembers=self.chance.random() < 0.7
        )
        self.thread = {"configurable": {"thread_id": THREAD}}
        self.trims = 0
        self.runs: list[str] = []

    def act(self) -> None:
        act = self.chance.choices(
            [
                self._ask,
                self._answer,
                self._update,
                self._again,
                self._roll_back,
                self._trim,
                self._adopt,
                self._remove,
                self._copy,
            ],
            [3, 8, 2, 2, 4, 3, 0.7, 0.7, 0.3],
        )[0]
        act()
        if self.both.moments():
            self.both.compare()

    def _target(self) -> tuple[int, str] | None:
        moments = self.both.moments()
        if not moments:
            return None
        near = moments[-12:] if self.chance.random() < 0.7 else moments
        lines = [one.name for one in self.both.agent().branches() if one.name.startswith("main")]
        return self.chance.choice(near), self.chance.choice(["main", *lines])

    def _roll_back(self) -> None:
        target = self._target()
        if target is not None:
            self._move(self.both.roll_back, *target)

    def _adopt(self) -> None:
        target = self._target()
        if target is not None:
            self._move(self.both.adopt, *target)

    def _move(self, move: Any, to: int, branch: str) -> None:
        try:
            move(to, branch)
        except NotFound:
            assert to < self.both.before

    def _trim(self) -> None:
        moments = self.both.moments()
        if not moments:
            return
        before = self.chance.choice([timedelta(0), timedelta(0), self.chance.choice(moments)])
        known = [one.values for one in self.app.get_state_history(self.thread)]
        if self.both.trim(before):
            self.trims += 1
            for found in self.app.get_state_history(self.thread):
                assert found.values in known

    def _remove(self) -> None:
        if not self.both.moments():
            return
        if self.chance.random() < 0.5 or not self.runs:
            self.both.prune_all()
        else:
            self.both.delete_run(self.chance.choice(self.runs))

    def _copy(self) -> None:
        if self.both.moments():
            self.both.copy()

    def run(self, given: Any, at: RunnableConfig) -> None:
        run = uuid.UUID(int=self.chance.getrandbits(128), version=4)
        self.runs.append(str(run))
        how = self.chance.choice(["sync", "async", "exit"])
        self.app.invoke(given, {**at, "run_id": run}, durability=how)
