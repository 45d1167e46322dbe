"""One simulation, from its seed to what became of everything."""

from __future__ import annotations

import gc
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

from msgspec import Struct

from perdure.engine.dispatch.worker import Worker
from perdure.storage.memory.backend import MemoryBackend
from perdure.store import Store
from tests.simulation.connection import Connection, Weather
from tests.simulation.fate import Fate, Hardship
from tests.simulation.people import Client, Expected, Operator, Started, Trimmer, work
from tests.simulation.primitives import current_process
from tests.simulation.programs import Author, Stage
from tests.simulation.promises import Audit
from tests.simulation.scheduler import Halted, Process, Scheduler
from tests.simulation.stage import staged
from tests.simulation.tape import Tape
from tests.simulation.world import World

START = 1_767_225_600_000_000
"""The first moment: 2026-01-01."""

HEALED_S = 240.0
"""How long everything may take to come to rest, once nothing goes wrong any more."""

LEASE_TTL = timedelta(seconds=2)

Break = Callable[[Any, "Simulation"], Any]
"""Breaks what a process has of the store, on purpose: to see that it is noticed."""


class Outcome(Struct, frozen=True):
    """What a seed gave.

    Attributes:
        violations: what was not as promised; none is the aim.
        history: all that happened, as bytes.
        counts: how often what happened.
        virtual_s: how long it lasted, by the true time in it.
    """

    seed: int
    violations: list[str]
    history: bytes
    digest: str
    counts: dict[str, int]
    virtual_s: float


class Simulation:
    """See the module."""

    def __init__(self, seed: int, break_: Break | None = None) -> None:
        draw = Random(f"perdure simulation {seed}")
        self.seed = seed
        self.break_ = break_
        self.scheduler = Scheduler(
            draw.getrandbits(64), start=START, switching=draw.choice((0.0, 0.0, 0.01, 0.1))
        )
        self.tape = Tape()
        self.world = World()
        self.expected = Expected()
        self.weather = _weather(draw)
        self.hardship = _hardship(draw)
        self.author = Author(draw, agents=draw.randint(2, 4))
        self.workers: dict[Process, Worker] = {}
        self.mortals: list[Process] = []
        self.healed = False
        self.forsaken: set[str] = set()
        self.resumed: list[tuple[str, str]] = []
        self.violations: list[str] = []
        self.fate = Fate(self, self.hardship, draw)
        self._draw = draw
        self._agents = [f"agent-{number}" for number in range(draw.randint(1, 4))]
        self._runs_max = draw.randint(2, 12)
        self._workers = draw.randint(1, 3)
        self._clients = draw.randint(1, 3)
        self._moment_s = draw.choice((0.02, 0.02, 0.2, 1.0))
        self._skewed = draw.random() < 0.5
        self._trouble_s = draw.uniform(5, 25)
        self._trimmers = int(draw.random() < 0.4)
        self._names = 0
        self.memory: MemoryBackend

    def run(self) -> Outcome:
        collecting = gc.isenabled()
        gc.disable()  # what is thrown away leaves at a time of its own
        Stage.world, Stage.random = self.world, self.scheduler.random
        Stage.dawdle, Stage.sleep = self.dawdle, self.scheduler.sleep
        try:
            with staged(self.scheduler):
                self.memory = MemoryBackend("simulated", clock=lambda: self.scheduler.now)
                director = Process(self.scheduler, "director")
                try:
                    self.scheduler.run(director.spawn("main", self._direct))
                except Halted as halted:
                    self.violations.append(f"it does not come to rest: {halted}")
                self.violations += director.failures
        finally:
            if collecting:
                gc.enable()
        lasted_s = (self.scheduler.now - START) / 1e6
        return Outcome(
            self.seed,
            self.violations,
            self.tape.bytes(),
            self.tape.digest,
            self.tape.counts,
            lasted_s,
        )

    # -- the course of things ----------------------------------------------------------------

    def _direct(self) -> None:
        self.keep_manned(None)
        helper = self._process("operator")
        helper.spawn("main", lambda: Operator(self, self._store(helper, Weather())).live())
        destiny = self._process("fate")
        destiny.spawn("main", self.fate.live)
        self.scheduler.sleep(self._trouble_s)
        self.healed = True
        for name in ("kill", "pause", "lose_answer", "refuse", "lose_notice"):
            setattr(self.weather, name, 0.0)
        self.fate.end()
        self.tape.say(self.scheduler.now, "director", "heals")
        self.keep_manned(None)
        auditor = self._store(self._process("auditor"), Weather(latency_s=0, slow=0, read_yields=0))
        audit = Audit(self, auditor)
        self._come_to_rest(audit)
        for process in [*self.mortals, helper, destiny]:
            self.violations += process.failures
        self.violations += audit.violations()

    def _come_to_rest(self, audit: Audit) -> None:
        until, still = self.scheduler.now + round(HEALED_S * 1e6), 0
        while self.scheduler.now < until:
            self.scheduler.sleep(2.0)
            self.keep_manned(None, "worker")
            # Clients may stand by for ever, for what waits for what never comes.
            still = 0 if audit.unsettled() else still + 1
            if still == 3:
                return
        self.violations += [f"still not settled: {what}" for what in audit.unsettled()]

    # -- processes ---------------------------------------------------------------------------

    def _process(self, name: str) -> Process:
        if not self._skewed or not name.startswith(("worker", "client")):
            return Process(self.scheduler, name)
        skew = round(self._draw.uniform(-3, 3) * 1e6)
        return Process(self.scheduler, name, skew=skew, rate=self._draw.uniform(0.8, 1.25))

    def _store(self, process: Process, weather: Weather) -> Store:
        connection: Any = Connection(process, self.memory, weather, self.tape)
        if self.break_ is not None:
            connection = self.break_(connection, self)
        return Store(connection, lease_ttl=LEASE_TTL)

    def keep_manned(self, random: Random | None, *kinds: str) -> None:
        """Let new processes take the places of those that are gone, by and by; without `random`,
        at once."""
        wanted = {"worker": self._workers, "client": self._clients, "trimmer": self._trimmers}
        for kind in kinds or wanted:
            there = sum(
                one.name.startswith(kind) and not one.dead and one.threads > 0
                for one in self.mortals
            )
            for _ in range(wanted[kind] - there):
                if random is None or random.random() < 0.3:
                    self._begin(kind)

    def _begin(self, kind: str) -> None:
        process = self._process(f"{kind}-{len(self.mortals)}")
        self.mortals.append(process)
        self.tape.say(self.scheduler.now, process, "begins")
        random = Random(self._draw.getrandbits(64))
        limit, acts = random.choice((1, 3, 8)), random.randint(3, 25)

        def live() -> None:
            store = self._store(process, self.weather)
            if kind == "worker":
                work(self, store, limit)
            elif kind == "client":
                Client(self, store, random, acts).live()
            else:
                Trimmer(self, store, random).live()

        process.spawn("main", live)

    def drain(self, process: Process) -> None:
        """As SIGTERM would have a worker do."""
        worker = self.workers.get(process)
        if worker is not None and process.threads:
            self.tape.say(self.scheduler.now, process, "is to drain")
            self.tape.count("drains")
            worker.stop()

    def dawdle(self) -> None:
        """Takes a moment, for the code that calls it; a long one, perhaps, or its last."""
        random, process = self.scheduler.random, current_process(self.scheduler)
        if random.random() < self.weather.pause:
            self.fate.pause(process)
        self.scheduler.sleep(random.random() * self._moment_s)
        if random.random() < self.weather.kill:
            self.tape.say(self.scheduler.now, process, "killed at work")
            self.tape.count("kills")
            self.scheduler.kill(process)

    # -- what is drawn as it goes --------------------------------------------------------------

    def new_name(self, what: str) -> str:
        self._names += 1
        return f"{what}-{self._names}"

    def next_start(self, random: Random) -> Started:
        """A run to ask for: a new one, or one again."""
        started = self.expected.started
        if len(started) >= self._runs_max or (started and random.random() < 0.3):
            return random.choice(started)
        new = Started(random.choice(self._agents), self.new_name("run"), self.author.program())
        started.append(new)
        self.tape.say(self.scheduler.now, "a client", "wants", new.agent, new.key, new.program)
        return new


def _weather(draw: Random) -> Weather:
    """Not every kind of trouble in each simulation: some hide others."""

    def perhaps(chance: float) -> float:
        return chance if draw.random() < 0.5 else 0.0

    return Weather(
        kill=perhaps(0.04),
        pause=perhaps(0.05),
        lose_answer=perhaps(0.02),
        refuse=perhaps(0.02),
        lose_notice=perhaps(0.3),
        latency_s=draw.choice((0.0005, 0.005, 0.05)),
        slow=perhaps(0.02),
        read_yields=draw.choice((0.05, 0.3, 1.0)),
    )


def _hardship(draw: Random) -> Hardship:
    def perhaps(chance: float) -> float:
        return chance if draw.random() < 0.6 else 0.0

    return Hardship(
        kill=perhaps(0.15),
        pause=perhaps(0.15),
        cut_off=perhaps(0.08),
        drain=perhaps(0.08),
        pace_s=draw.choice((0.3, 1.0, 3.0)),
    )


def simulate(seed: int, break_: Break | None = None) -> Outcome:
    """Run one simulation. The same seed gives the same history, byte for byte."""
    return Simulation(seed, break_).run()
