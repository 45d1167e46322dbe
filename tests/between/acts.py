"""All that somebody may do to a store, with what is needed for it chosen beforehand: the same deed
in whatever order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from random import Random
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

import perdure
from perdure import Store
from perdure.model import FINISHED, RunInfo
from perdure.replication import DoneBeforeError, following, migrate, promote, restore
from perdure.store import LogEntry
from tests.between.worlds import World
from tests.simulation.house import FUNCTIONS, PLACES, Once, short, waits

Do = Callable[[World, str], object]
"""Takes the stores, and whose they are."""


class Act(Struct, frozen=True):
    """One deed.

    Attributes:
        in_parts: it consists of several, each whole: where it is refused, some may be done, and it
            is called again. Others may come between them.
        repeats: it consists of several, and called again it goes on where it was.
        executes: it executes runs, which others wait for.
        alone: it needs the store for itself.
        takes_what_is_there: of one that is done in parts, too.
        is_told: others are told of it once it is done, with what can fail for itself.
    """

    name: str
    do: Do
    in_parts: bool = False
    repeats: bool = False
    executes: bool = False
    alone: bool = False
    takes_what_is_there: bool = False
    is_told: bool = False


class Facts(Struct, frozen=True):
    """What was there when a program began.

    Attributes:
        ends: of the living agents, by name, the last seqs of their logs.
        branches: of each, with the checkpoints.
        guest: the log of an agent that is not there.
        moments: the times of commits.
        is_file: True if it is a SQLite store.
    """

    ends: dict[str, int]
    branches: dict[str, list[str]]
    gone: list[str]
    runs: list[RunInfo]
    guest: Sequence[LogEntry]
    moments: list[datetime]
    is_file: bool


class Acts:
    """Deeds by chance."""

    def __init__(self, facts: Facts, random: Random) -> None:
        self._facts = facts
        self._random = random
        self._count = 0

    def choose(self, names: Sequence[str]) -> Act | None:
        """Returns a deed of one of these names that can be tried there, if there is one."""
        for name in self._random.sample(names, len(names)):
            self._count += 1
            made: Act | None = getattr(self, f"_{name}")()
            if made is not None:
                return made
        return None

    # -- state -----------------------------------------------------------------------------------

    def _on(self, name: str, do: Callable[[Any], object]) -> Act | None:
        """Returns a deed on a branch of an agent that is there."""
        if not self._facts.ends:
            return None
        agent = self._random.choice([*self._facts.ends])
        branch = "main"
        if self._random.random() < 0.25:
            branch = self._random.choice(self._facts.branches[agent])

        def on(world: World, who: str) -> None:
            handle = world.store("here", who).agent(agent)
            do(handle if branch == "main" else handle.branch(branch))

        return Act(f"{name} {agent} {branch}", on)

    def _seq(self) -> int:
        return self._random.randint(1, max(self._facts.ends.values(), default=1))

    def _edit(self) -> Act | None:
        value, key = self._count, self._random.choice([None, None, "same"])

        def edit(agent: Any) -> None:
            with agent.edit(f"edit {value}", key=key) as draft:
                draft[f"field-{value}"] = value

        return self._on("edit", edit)

    def _update(self) -> Act | None:
        value = self._count
        return self._on("update", lambda agent: agent.update(lambda d: d.update(updated=value)))

    def _checkpoint(self) -> Act | None:
        name = f"named-{self._random.randint(1, 2)}"
        return self._on("checkpoint", lambda agent: agent.checkpoint(name))

    def _fork(self) -> Act | None:
        seq, name = self._seq(), f"side-{self._random.randint(1, 2)}"
        return self._on(f"fork at {seq}", lambda agent: agent.fork(name, at=seq))

    def _drop(self) -> Act | None:
        return self._on_side("drop", lambda agent, branch: agent.delete_branch(branch))

    def _adopt(self) -> Act | None:
        return self._on_side("adopt", lambda agent, branch: agent.adopt(branch, cancel_run=True))

    def _on_side(self, name: str, do: Callable[[Any, str], object]) -> Act | None:
        sides = [
            (agent, branch)
            for agent, branches in self._facts.branches.items()
            for branch in branches
            if branch != "main"
        ]
        if not sides:
            return None
        agent, branch = self._random.choice(sides)

        def on(world: World, who: str) -> None:
            do(world.store("here", who).agent(agent), branch)

        return Act(f"{name} {agent} {branch}", on)

    def _rollback(self) -> Act | None:
        seq, cancel = self._seq(), self._random.random() < 0.7
        return self._on(f"rollback to {seq}", lambda one: one.rollback(seq, cancel_run=cancel))

    def _undo(self) -> Act | None:
        return self._on("undo", lambda agent: agent.undo(cancel_run=True))

    def _redo(self) -> Act | None:
        return self._on("redo", lambda agent: agent.redo())

    def _trim(self) -> Act | None:
        seq = self._seq()
        return self._on(f"trim before {seq}", lambda agent: agent.trim(seq))

    def _anew(self) -> Act | None:
        """An agent of a name that was used before, or never."""
        agent, value = self._random.choice([*self._facts.gone, "guest-1"]), self._count

        def anew(world: World, who: str) -> None:
            world.store("here", who).agent(agent).update(lambda d: d.update(anew=value))

        return Act(f"anew {agent}", anew, in_parts=True)

    # -- runs ------------------------------------------------------------------------------------

    def _agent(self) -> str:
        return self._random.choice([*self._facts.ends, *self._facts.gone, "new"])

    def _start(self) -> Act | None:
        agent, key, n = self._agent(), f"key-{self._random.randint(1, 2)}", self._count
        function: Any = self._random.choice([short, waits])
        return Act(
            f"start {agent}",
            lambda world, who: _started(world.store("here", who), function, agent, key, n),
        )

    def _run(self) -> Act | None:
        agent, key, n = self._agent(), f"key-{self._random.randint(1, 2)}", self._count

        def run(world: World, who: str) -> None:
            store = world.store("here", who)
            _started(store, short, agent, key, n)
            Once(store, FUNCTIONS).look_once()

        return Act(f"run {agent}", run, executes=True, in_parts=True)

    def _serve(self) -> Act | None:
        return Act("serve", _serve, executes=True, in_parts=True)

    def _to(
        self, name: str, do: Callable[[Any], object], wanted: Callable[[RunInfo], bool]
    ) -> Act | None:
        runs = [run for run in self._facts.runs if wanted(run)]
        if not runs:
            return None
        run = self._random.choice(runs)
        return Act(
            f"{name} {run.id}", lambda world, who: do(world.store("here", who).handle(run.id))
        )

    def _signal(self) -> Act | None:
        value, key = f"word {self._count}", f"s{self._random.randint(1, 2)}"
        return self._to(
            "signal",
            lambda run: run.signal("word", value, key=key),
            lambda run: run.function in ("waits", "turns"),
        )

    def _answer(self) -> Act | None:
        return self._to("answer", lambda run: run.answer(True), lambda run: "ask" in run.waits)

    def _cancel(self) -> Act | None:
        """A message, and then the commit of the run's end."""
        made = self._to("cancel", lambda run: run.cancel(), lambda run: run.status not in FINISHED)
        return made and replace(made, in_parts=True)

    def _retry(self) -> Act | None:
        place = self._random.choice(PLACES)
        return self._to(
            f"retry from {place}",
            lambda run: run.retry(place, effects="live"),
            lambda run: run.status in (*FINISHED, "needs_attention"),
        )

    def _fork_run(self) -> Act | None:
        return self._to(
            "fork the run",
            lambda run: run.fork("look", branch="side-1", effects="live"),
            lambda run: True,
        )

    def _resume(self) -> Act | None:
        return self._to(
            "resume", lambda run: run.resume(), lambda run: run.status == "needs_attention"
        )

    # -- whole agents ----------------------------------------------------------------------------

    def _delete(self) -> Act | None:
        if not self._facts.ends:
            return None
        agent, purge = self._random.choice([*self._facts.ends]), self._random.random() < 0.5
        return Act(
            f"delete {agent}{' to be purged' * purge}",
            lambda world, who: world.store("here", who).delete(agent, purge=purge),
        )

    def _purge(self) -> Act | None:
        return Act("purge", lambda world, who: world.store("here", who).purge(), repeats=True)

    def _purge_there(self) -> Act | None:
        return Act("purge there", lambda world, who: world.store("there", who).purge())

    def _purge_name(self) -> Act | None:
        if not self._facts.gone:
            return None
        agent = self._random.choice(self._facts.gone)
        return Act(
            f"purge {agent}",
            lambda world, who: world.store("here", who).purge(agent),
            repeats=True,
        )

    def _repair(self) -> Act | None:
        if not self._facts.is_file:
            return None
        return Act(
            "repair",
            lambda world, who: perdure.repair(world.urls["here"]),
            repeats=True,
            alone=True,
        )

    def _close(self) -> Act | None:
        """The first one's stores, by another thread of its process."""
        return Act("close", lambda world, who: world.close("1"))

    def _shrink(self) -> Act | None:
        return Act("shrink", lambda world, who: world.store("here", who).shrink())

    # -- from store to store ---------------------------------------------------------------------

    def _take_in(self) -> Act | None:
        guest = self._facts.guest
        return Act(
            "take in", lambda world, who: world.store("here", who).import_log(guest), is_told=True
        )

    def _export(self) -> Act | None:
        """One agent, and into another store."""
        if not self._facts.ends:
            return None
        agent = self._random.choice([*self._facts.ends])

        def export(world: World, who: str) -> None:
            store = world.store("here", who)
            info = store.find(agent)
            if info is None:
                raise perdure.NotFound("is not there", target=agent)
            world.store("elsewhere", who).import_log(store.export_log(info))

        return Act(f"export {agent}", export, is_told=True)

    def _drain(self) -> Act | None:
        return self._drain_to("there")

    def _drain_elsewhere(self) -> Act | None:
        return self._drain_to("elsewhere")

    def _drain_to(self, side: str) -> Act | None:
        def drain(world: World, who: str) -> None:
            with following(world.urls["here"], world.urls[side]) as follower:
                follower.drain()

        return Act(f"drain {side}", drain, repeats=True)

    def _promote(self) -> Act | None:
        lost = self._random.random() < 0.3

        def promoted(world: World, who: str) -> None:
            with suppress(DoneBeforeError):
                promote(world.urls["there"], source_is_lost=lost)

        name = f"promote{' without it' * lost}"
        return Act(name, promoted, repeats=True, takes_what_is_there=lost)

    def _migrate(self) -> Act | None:
        return self._migrate_to("there")

    def _migrate_elsewhere(self) -> Act | None:
        return self._migrate_to("elsewhere")

    def _migrate_to(self, side: str) -> Act | None:
        def move(world: World, who: str) -> None:
            with suppress(DoneBeforeError):
                migrate(world.urls["here"], world.urls[side])

        return Act(f"migrate {side}", move, repeats=True)

    def _restore(self) -> Act | None:
        at, leave = self._random.choice(self._facts.moments), self._random.random() < 0.5

        def restored(world: World, who: str) -> None:
            restore(world.urls["here"], world.urls["elsewhere"], at, take_incomplete=leave)

        return Act("restore", restored, repeats=True)

    def _edit_there(self) -> Act | None:
        return self._edit_in("there")

    def _edit_elsewhere(self) -> Act | None:
        return self._edit_in("elsewhere")

    def _edit_in(self, side: str) -> Act | None:
        agent, value = self._agent(), self._count

        def edit(world: World, who: str) -> None:
            store = world.store(side, who)
            store.agent(agent).update(lambda draft: draft.update(there=value))

        return Act(f"edit {agent} {side}", edit, in_parts=True)


def _started(store: Store, function: Any, agent: str, key: str, n: int) -> None:
    store.options(key=key).start(function, agent, 1 if function is waits else n)


def _serve(world: World, who: str) -> None:
    Once(world.store("here", who), FUNCTIONS).look_once()


SOME = (
    *("edit", "update", "checkpoint", "fork", "drop", "adopt", "rollback", "undo", "redo", "trim"),
    *("anew", "start", "run", "serve", "signal", "answer", "cancel", "retry", "fork_run"),
    *("resume", "delete", "purge", "purge_name", "shrink", "take_in", "repair"),
)
"""Deeds on one store."""

MOVES = ("drain", "promote", "migrate", "restore", "export")
OTHERS = (
    *("drain", "drain_elsewhere", "promote", "migrate", "migrate_elsewhere", "restore"),
    *("edit_there", "edit_elsewhere", "purge_there", "close"),
)
