"""The soak: processes, lives, kills and moves, and samples of what all of it takes."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import perdure
from perdure.store import Store
from tests.soak import cases
from tests.soak.house import House, living_agents
from tests.soak.lives import Life, SoakError
from tests.soak.measuring import Book, Bound, file_sizes, process_use

MB = 1 << 20
ROOT = Path(__file__).parents[2]
BOUNDS = {
    "memory": Bound(0.1, 16 * MB),
    "descriptors": Bound(0, 4),
    "threads": Bound(0, 4),
    "file less graves": Bound(0.25, MB),
    "log to be moved": Bound(0.25, 16 * MB),
    "commits": Bound(0.25, 0),
}
GRAVE_BYTES = 512
"""What stays in the file of an agent that was purged: at most so much."""

PURGE_MAX_S = 5.0
ENDS_S = 30.0
LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class Plan:
    """How long it goes on and how often things happen: in seconds, or in lives that ended.

    Attributes:
        plants: what is to leak in the workers ("memory", "descriptors"); with "file" nothing is
            ever deleted.
        at_once: agents that live at the same time.
        kept: agents that are done and not deleted yet.
        purges_min: it goes on until there were so many, too: fewer say nothing about the store.
        bounds: what is steady, by what is sampled.
    """

    until: float
    purge_every: float
    kill_every: float
    sample_every: float
    by_lives: bool = False
    plants: frozenset[str] = frozenset()
    seed: str = "1"
    at_once: int = 10
    kept: int = 10
    purges_min: int = 0
    bounds: Mapping[str, Bound] = field(default_factory=lambda: BOUNDS)


@dataclass(slots=True)
class Tally:
    """What happened."""

    lives: int = 0
    kills: int = 0
    purges: int = 0
    purged: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class _Due:
    """Something that happens again and again."""

    every: float
    at: float = field(default=0.0)

    def now(self, pace: float) -> bool:
        if pace < self.at + self.every:
            return False
        self.at = pace
        return True


class Soak:
    """One soak in a folder of its own; `run` does it."""

    def __init__(self, folder: Path, plan: Plan, say: Callable[[str], None]) -> None:
        self.book = Book(plan.bounds)
        self.tally = Tally()
        self._plan = plan
        self._say = say
        self._house = House(folder)
        self._dice = random.Random(plan.seed)
        self._slots = 0
        self._lives: list[Life] = []
        self._done: deque[Life] = deque()
        self._began = time.monotonic()
        cases.come(folder)

    def run(self) -> list[str]:
        """All of it.

        Returns:
            What is not steady, in words.

        Raises:
            SoakError, Corrupt: something is not as it has to be.
        """
        with perdure.open(self._house.store) as store:
            workers = [self._spawn(), self._spawn()]
            try:
                self._live(store, workers)
                self._finish(store, workers)
            finally:
                for worker in workers:
                    worker.kill()
                    worker.wait()
        self.tally.seconds = time.monotonic() - self._began
        return self.book.verdicts()

    def _spawn(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [
                sys.executable,
                "-X",
                "faulthandler",
                "-m",
                "tests.soak.worker",
                str(self._house.folder),
                str(os.getpid()),
                *sorted(self._plan.plants),
            ],
            cwd=ROOT,
            start_new_session=True,
        )

    def _pace(self) -> float:
        """Where the plan is."""
        return self.tally.lives if self._plan.by_lives else time.monotonic() - self._began

    # -- the middle --------------------------------------------------------------------------

    def _live(self, store: Store, workers: list[subprocess.Popen[bytes]]) -> None:
        plan = self._plan
        kill, sample = _Due(plan.kill_every), _Due(plan.sample_every)
        purge, line = _Due(plan.purge_every), _Due(plan.until / 60)

        def do_what_is_due() -> None:
            pace = self._pace()
            if kill.now(pace):
                self._kill(workers)
            if purge.now(pace):
                self._purge(store)
                self.tally.purges += 1
            if sample.now(pace):
                self._sample(workers[0].pid)
            if line.now(pace):
                self._say(self._line())

        while self._pace() < plan.until or self.tally.purges < plan.purges_min:
            self._begin_some(store)
            self._go_on(store, do_what_is_due)  # on a loaded machine several end at one look
            if self._lives:  # all may be done at once, where the client waits for a processor
                self._dice.choice(self._lives).fiddle(store)
            if workers[0].poll() is not None:
                raise SoakError(f"the worker ended with {workers[0].returncode}")
            do_what_is_due()
            time.sleep(LOOK_S)

    def _begin_some(self, store: Store) -> None:
        while len(self._lives) < self._plan.at_once:
            self._slots += 1
            # Some names are used again and again: new incarnations of what was deleted.
            used = {life.name for life in (*self._lives, *self._done)}
            again = f"again-{self._slots % 7}"
            fresh = self._slots % 2 or again in used
            name = f"case-{self._slots}" if fresh else again
            life = Life(name, self._slots, self._dice)
            life.begin(store)
            self._lives.append(life)

    def _go_on(self, store: Store, ended: Callable[[], None] = lambda: None) -> None:
        for life in list(self._lives):
            with contextlib.suppress(perdure.Conflict):  # a worker looks at it just now
                if life.go_on(store):
                    life.check(store)
                    self._lives.remove(life)
                    self._done.append(life)
                    self.tally.lives += 1
                    ended()
        with contextlib.suppress(perdure.Conflict):
            while len(self._done) > self._plan.kept and "file" not in self._plan.plants:
                self._done[0].end(store)
                self._done.popleft()

    def _kill(self, workers: list[subprocess.Popen[bytes]]) -> None:
        """`kill -9` for the second one, wherever it is; another one takes its place."""
        killed = workers[1]
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait()
        workers[1] = self._spawn()
        self.tally.kills += 1

    def _purge(self, store: Store) -> None:
        """Retention: what was deleted goes; a commit of each agent stays, which says so."""
        self.tally.purged += len(store.purge(seconds=PURGE_MAX_S).agents)
        kept = store.sizes().commits - self.tally.purged
        self.book.note("store", {"commits": kept})

    def _sample(self, worker: int) -> None:
        self.book.note("worker", process_use(worker))
        self.book.note("client", process_use(os.getpid()))
        file, log = file_sizes(self._house.store)
        graves = GRAVE_BYTES * self.tally.purged
        self.book.note("store", {"file less graves": file - graves, "log to be moved": log})

    def _line(self) -> str:
        values = {name: series.values[-1] for name, series in self.book.series.items()}
        minutes = (time.monotonic() - self._began) / 60
        shown = [
            f"{name} {value / MB:,.1f} MB" if value > 10_000 else f"{name} {value:,.0f}"
            for name, value in values.items()
        ]
        return (
            f"{minutes:5.1f} min  {self.tally.lives} lives, {self.tally.kills} kills, "
            f"{self.tally.purged} purged | {', '.join(shown)}"
        )

    # -- the end -----------------------------------------------------------------------------

    def _finish(self, store: Store, workers: list[subprocess.Popen[bytes]]) -> None:
        """What is under way ends, too: `Life.go_on` says where something does not."""
        while self._lives:
            self._go_on(store)
            time.sleep(LOOK_S)
        if left := store.runs(unfinished=True):
            raise SoakError(f"stranded: {left}")
        self._house.finished.touch()
        for worker in workers:
            worker.wait(ENDS_S)
        store.check_pages()
        for info in living_agents(store):
            store.agent_of(info).verify()
