"""Kills processes at random moments until everything is done, and looks at what came of it."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.engine.functions.other_versions import UNKNOWN
from perdure.model import Durability
from perdure.store import Store
from tests.chaos import agents
from tests.chaos.agents import CHILDREN, POLICIES, TURNS
from tests.chaos.processes import Site, care, heard, look, spawn, stand_by, work_new, work_old
from tests.chaos.world import World

if TYPE_CHECKING:
    from tests.chaos.database import Database

LIFE_S = 0.27
"""How long a process lives, on average."""

PAUSE_S = 1.2
STRANDED_S = 60
"""How long what is left may take once nobody is killed any more."""

KINDS = (work_old, work_new, stand_by, care)
"""What is running at any moment."""

DURABILITIES: tuple[Durability, ...] = ("os", "os", "group", "sync")


class ChaosError(AssertionError):
    """Something is not as it has to be."""


@dataclass(slots=True)
class _Process:
    kind: int
    pid: int
    ends_at: float
    paused_at: float = 0.0
    wakes_at: float = 0.0


@dataclass(slots=True)
class Outcome:
    """What happened in a round."""

    kills: int = 0
    pauses: int = 0
    servers: int = 0
    runs: int = 0
    effects: int = 0
    repeated: int = 0
    seconds: float = 0.0
    attention: list[str] = field(default_factory=list)


def round_of_chaos(
    folder: Path,
    seed: str,
    kills: int,
    *,
    copies: int = 2,
    rounds: int = 6,
    postgres: bool = False,
) -> Outcome:
    """One store, its agents, and up to so many kills; then it is left alone, and checked.

    Args:
        postgres: the store is on a server of its own, which is killed, too.

    Raises:
        ChaosError: a run is stranded, an effect was repeated, or anything else is wrong.
    """
    dice = random.Random(seed)
    folder.mkdir(parents=True)
    database = None
    if postgres:
        from tests.chaos.database import Database  # psycopg: where it is wanted

        database = Database(folder / "postgres", dice)
    url = database.url if database else ""
    site = Site(folder, copies, rounds, dice.choice(DURABILITIES), url=url)
    World(folder)
    outcome, began = Outcome(), time.monotonic()
    monkey = _Monkey(site, dice, kills, outcome, database)
    try:
        try:
            monkey.play()
        finally:
            monkey.end()
        _run_to_its_end(site, "check", look(check))
    finally:
        if database is not None:
            database.end()
    odd = folder / "odd"
    if odd.exists():
        raise ChaosError(f"processes ended oddly: {odd}\n{odd.read_text()[:4000]}")
    attention = folder / "attention"
    if attention.exists():
        raise ChaosError(f"a run stopped without a doubt: {attention.read_text()[:4000]}")
    outcome.seconds = time.monotonic() - began
    _count(site, outcome)
    return outcome


class _Monkey:
    def __init__(
        self,
        site: Site,
        dice: random.Random,
        kills: int,
        outcome: Outcome,
        database: Database | None,
    ) -> None:
        self._site = site
        self._database = database
        self._dice = dice
        self._left = kills
        self._outcome = outcome
        self._processes: dict[int, _Process] = {}

    def play(self) -> None:
        """Until all is finished."""
        quiet_since = 0.0
        while not self._site.finished.exists():
            for kind in range(len(KINDS)):
                if not any(process.kind == kind for process in self._processes.values()):
                    self._spawn(kind)
            now = time.monotonic()
            for process in list(self._processes.values()):
                self._attend(process, now)
            self._reap()
            if self._database is not None:
                self._database.attend(spare=self._left <= 0)
                self._outcome.servers = self._database.kills
            if self._left <= 0:
                quiet_since = quiet_since or now
                if now - quiet_since > STRANDED_S:
                    raise ChaosError(f"stranded: {self._unfinished()}")
            time.sleep(0.005)

    def _spawn(self, kind: int) -> None:
        pid = spawn(self._site, KINDS[kind])
        dice, now = self._dice, time.monotonic()
        process = _Process(kind, pid, now + 0.02 + dice.expovariate(1 / LIFE_S))
        if dice.random() < 0.15:
            process.paused_at = now + dice.uniform(0.05, LIFE_S)
            process.wakes_at = process.paused_at + dice.uniform(0.3, 1.5) * PAUSE_S
            process.ends_at = process.wakes_at + dice.expovariate(1 / LIFE_S)
        self._processes[pid] = process

    def _attend(self, process: _Process, now: float) -> None:
        if process.paused_at and now >= process.paused_at:
            os.kill(process.pid, signal.SIGSTOP)
            process.paused_at = 0.0
            self._outcome.pauses += 1
        if process.wakes_at and now >= process.wakes_at:
            os.kill(process.pid, signal.SIGCONT)
            process.wakes_at = 0.0
        if self._left > 0 and now >= process.ends_at:
            os.kill(process.pid, signal.SIGKILL)
            os.waitpid(process.pid, 0)
            del self._processes[process.pid]
            self._left -= 1
            self._outcome.kills += 1

    def _reap(self) -> None:
        """Those that ended by themselves: by an error, which they have noted, or because all is
        finished."""
        for pid in list(self._processes):
            if os.waitpid(pid, os.WNOHANG)[0]:
                del self._processes[pid]

    def _unfinished(self) -> str:
        def tell(site: Site, store: Store) -> None:
            for info in store.runs(unfinished=True):
                site.note("stranded", f"{info.id} {info.status} {info.problem or info.waits}")

        _run_to_its_end(self._site, "tell", look(tell))
        path = self._site.folder / "stranded"
        return path.read_text() if path.exists() else "nothing is, and nobody said so"

    def end(self) -> None:
        """Nothing of it is left."""
        for pid in self._processes:
            os.kill(pid, signal.SIGKILL)
        for pid in self._processes:
            os.waitpid(pid, 0)
        self._processes.clear()


def _run_to_its_end(site: Site, what: str, main: object) -> None:
    pid = spawn(site, main)  # type: ignore[arg-type]
    _, status = os.waitpid(pid, 0)
    if status:
        odd = site.folder / "odd"
        raise ChaosError(f"{what}: {odd.read_text() if odd.exists() else status}")


# -- checks --------------------------------------------------------------------------------------


def expected_ops(function: str, rounds: int) -> list[str]:
    """The operations of one agent."""
    match function:
        case "busy":
            return [f"op-{number * number}" for number in range(rounds)]
        case "abreast" | "returning":
            return [f"op-{n}-{which}" for n in range(rounds) for which in range(len(POLICIES))]
        case "gathering":
            return [f"op-{number}-{letter}" for number in range(rounds) for letter in "abcde"]
        case "listening":
            return [f"op-{n}{part}" for n in range(rounds) for part in ("", "-b")]
        case "parent":
            return ["op-begin", "op-end"]
        case "turning":
            return [f"op-{turn}-{number}" for turn in range(TURNS) for number in range(rounds)]
        case "undoing":
            return [f"{what}op-{number}" for number in range(rounds) for what in ("", "no-")]
        case _:
            return [f"op-{number}" for number in range(rounds)]


def expected_result(function: str, rounds: int) -> object:
    """What its run gives."""
    ops = expected_ops(function, rounds)
    match function:
        case "parent":
            return ["op-begin", *[f"child {rounds}"] * CHILDREN, "op-end"]
        case "child":
            return rounds
        case "turning":
            return rounds * TURNS
        case "undoing":
            return [f"booked#{number}" for number in range(rounds, 0, -1)]
        case _:
            return ops


def check(site: Site, store: Store) -> None:
    """Everything, from outside."""
    runs = {run.agent: run for run in store.runs()}
    wanted = {agent: name for name, agent in site.orders()}
    for agent in [agent for agent, name in wanted.items() if name == "parent"]:
        wanted |= {f"{agent}-{number}": "child" for number in range(CHILDREN)}
    ended = [f"{run.id} is {run.status}: {run.problem}" for run in runs.values()]
    _same(
        f"runs ({'; '.join(one for one in ended if ' is done' not in one)})",
        sorted(runs),
        sorted(wanted),
    )
    for agent, run in runs.items():
        name, rounds = wanted[agent], site.rounds
        _same(f"status of {run.id} ({run.problem})", run.status, "done")
        _same(f"result of {run.id}", run.result, expected_result(name, rounds))
        check_world(agent, expected_ops(name, rounds))
        state = store.agent(agent).state
        _same(f"state of {agent}", state["n"], rounds * (TURNS if name == "turning" else 1))
        if name.startswith("listening"):
            _same(f"signals of {agent}", state["heard"], heard(rounds))
        if name == "deployed":
            _same(f"stops of {run.id}", _stops(store, agent), [])
        left = [e for e in store.handle(run.id).effects() if e.state == "in doubt"]
        _same(f"in doubt of {run.id}", left, [])
        store.agent(agent).verify()
    _same("messages left over", store._context.backend.inbox(), [])


def _stops(store: Store, agent: str) -> list[str]:
    """Why its run was stopped, other than for a tool call in doubt: in the wrong version, say, of
    which workers of the right one make up by themselves."""
    records = [one for commit in store.agent(agent).log() for one in commit.records]
    stops = [str(one["problem"]) for one in records if one["t"] == "run-stopped"]
    return [one for one in stops if "in doubt" not in one and UNKNOWN not in one]


def check_world(agent: str, ops: list[str]) -> None:
    """Each operation was done, and once, but where its receiver was told that it may come twice:
    then with the same key."""
    effects = agents.world.effects(agent)
    _same(f"operations of {agent}", sorted({effect.op for effect in effects}), sorted(set(ops)))
    keys = {(effect.op, effect.key) for effect in effects}
    _same(f"keys of {agent}", len(keys), len(set(ops)))
    times = Counter(effect.op for effect in effects)
    repeated = {op for op, count in times.items() if count > 1}
    may_be = {op for op in ops if may_repeat(agent, op)}
    _same(f"silently repeated by {agent}", sorted(repeated - may_be), [])


def may_repeat(agent: str, op: str) -> bool:
    """Whether an operation is done by the tool that is called again after a crash."""
    match agent.partition("-")[0]:
        case "busy":
            return bool(round(int(op[3:]) ** 0.5) % len(POLICIES) == 0)
        case "abreast" | "returning" | "turning":
            return int(op.rpartition("-")[2]) % len(POLICIES) == 0
        case "gathering":
            return op.endswith("-d")
        case _:
            return False


def _same(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise ChaosError(f"{what}: {found!r}, not {wanted!r}")


def _count(site: Site, outcome: Outcome) -> None:
    world = World(site.folder)
    for path in (site.folder / "world").iterdir():
        effects = world.effects(path.name)
        outcome.runs += 1
        outcome.effects += len(effects)
        outcome.repeated += len(effects) - len({(effect.op, effect.key) for effect in effects})
