"""Starts the migration twice, the second as standby, and kills whichever executes it, at random.

What happens it sees from outside, by the ledger and by how processes end: nothing of the library
runs in here.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from examples.demo.ledger import Ledger, Line

ROOT = Path(__file__).resolve().parent.parent.parent
POLL_S = 0.002
AIMING_POLL_S = 0.0002
RECOVERY_MAX_S = 60.0
"""Longer than any recovery, even by the lease's expiry on a busy machine: then it is stuck."""

Moment = Literal["starting", "in a batch", "between batches", "taking over"]


@dataclass(frozen=True)
class Job:
    """What is to be copied, and where everything that the demonstration makes is kept."""

    source: Path
    dest: Path
    work: Path
    skip: list[str]
    batch_files: int
    batches: int
    pause_s: float = 0.0  # in each call of the tool

    @property
    def store(self) -> Path:
        return self.work / "agents.db"

    @property
    def ledger(self) -> Path:
        return self.work / "ledger.jsonl"

    def command(self) -> list[str]:
        """The same for the active process and for the standby: they settle it among themselves."""
        skip = [option for name in self.skip for option in ("--skip", name)]
        return [
            sys.executable,
            "-m",
            "examples.demo.worker",
            str(self.ledger),
            str(self.pause_s),
            str(self.source),
            str(self.dest),
            "--store",
            str(self.store),
            "--batch-files",
            str(self.batch_files),
            *skip,
        ]


@dataclass(frozen=True)
class Kill:
    """One SIGKILL that ended a process; `standby_too`: a power cut, no process was left."""

    number: int
    pid: int
    batch: int
    moment: Moment
    standby_too: bool


@dataclass
class Outage:
    """From a kill until the tool is called again, by a process that lives: time.monotonic().

    A successor may be killed before it comes to that: one outage then has several kills.
    """

    began: float
    kills: int = 0
    cold: bool = False
    ended: float | None = None

    @property
    def seconds(self) -> float:
        return (self.ended or time.monotonic()) - self.began


@dataclass
class Worker:
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid


@dataclass
class Story:
    """What has happened so far."""

    kills: list[Kill] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    batches_begun: int = 0
    problems: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    finished: bool = False

    @property
    def recoveries(self) -> list[Outage]:
        return [outage for outage in self.outages if outage.ended is not None]


class Conductor:
    """One performance. `tell` is given each event in words; `play` returns when all is over."""

    def __init__(self, job: Job, kills: int, seed: int, tell: Callable[[str], None]) -> None:
        self.job = job
        self.story = Story()
        self.ledger = Ledger(job.ledger)
        self._kills = kills
        self._random = random.Random(seed)
        self._tell = tell
        self._workers: list[Worker] = []
        self._started = 0
        self._keys: set[str] = set()
        self._last: Line | None = None
        self._killed: set[int] = set()
        self._kill_at: float | None = None
        self._aiming = False
        self._first_at = 0.0

    def play(self) -> Story:
        """Run it all to its end. Whatever happens, no process of ours is left behind."""
        try:
            self._start()
            self._start()
            if self._random.random() < 0.3:  # the first kill may come before anything has begun
                self._kill_at = time.monotonic() + self._random.uniform(0, 0.4)
            while not (self.story.finished or self.story.problems):
                self._look()
                if self._due():
                    self._strike()
                time.sleep(AIMING_POLL_S if self._aiming else POLL_S)
            if not self.story.problems:
                self._end()
        finally:
            for worker in self._workers:
                worker.process.kill()
                worker.process.wait()
            for log in self.job.work.glob("worker-*.log"):
                if not log.stat().st_size:  # of one that was killed before it had anything to say
                    log.unlink()
        return self.story

    # -- watching ----------------------------------------------------------------------------

    def _look(self) -> None:
        for line in self.ledger.follow():
            if self._last is None:
                self._first_at = time.monotonic()
            self._last = line
            self._keys.add(line.key)
            if not line.returned and line.pid not in self._killed:
                self._recovered(f"process {line.pid} is at batch {len(self._keys)}")
            if line.returned and self._aiming and self._kill_at is None:
                self._kill_at = time.monotonic() + self._random.uniform(0, 0.006)
        self.story.batches_begun = len(self._keys)
        for worker in list(self._workers):
            self._reap(worker)
        outage = self._open_outage()
        if outage is not None and outage.seconds > RECOVERY_MAX_S:
            self.story.problems.append(f"no recovery within {RECOVERY_MAX_S:.0f} s: it is stuck")

    def _reap(self, worker: Worker) -> None:
        status = worker.process.poll()
        if status is None:
            return
        self._workers.remove(worker)
        output = worker.log.read_text(errors="replace").strip()
        if status == 0:
            self.story.finished = True
            self.story.results.append(output)
            self._recovered(f"process {worker.pid} finished the migration")
        else:
            last = "\n".join(output.splitlines()[-12:])
            self.story.problems.append(f"process {worker.pid} ended with {status}:\n{last}")

    def _recovered(self, how: str) -> None:
        outage = self._open_outage()
        if outage is None:
            return
        outage.ended = time.monotonic()
        self._tell(f"  recovered in {outage.seconds:.2f} s: {how}")
        self._plan_next_kill()

    def _open_outage(self) -> Outage | None:
        outages = self.story.outages
        return outages[-1] if outages and outages[-1].ended is None else None

    def _end(self) -> None:
        """One process finished; the other, standing by, must give the same result by itself."""
        until = time.monotonic() + RECOVERY_MAX_S
        while self._workers and not self.story.problems and time.monotonic() < until:
            self._look()
            time.sleep(POLL_S)
        self._look()
        if self._workers:
            self.story.problems.append("the standby did not return the finished run's result")

    # -- killing -----------------------------------------------------------------------------

    def _plan_next_kill(self) -> None:
        """Choose how the next moment is chosen; progress says when, see `_due`."""
        self._aiming = self._random.random() < 0.35
        self._kill_at = None

    def _due(self) -> bool:
        """Kills are spread over the job by its own progress, so that it cannot outrun them."""
        done = len(self.story.kills)
        if done >= self._kills:
            return False
        now = time.monotonic()
        if self._kill_at is not None:
            return now >= self._kill_at
        if self._open_outage() is not None:
            return False
        if len(self._keys) < max(1, done / self._kills * self.job.batches):
            return False
        if not self._aiming:  # when aiming, `_look` sets the time, just behind the end of a batch
            self._kill_at = now + self._random.uniform(0, 2 * self._batch_s(now))
        return False

    def _batch_s(self, now: float) -> float:
        """How long a batch takes, on average so far; at most a second."""
        down = sum(outage.seconds for outage in self.story.outages)
        return min(max(now - self._first_at - down, 0.005) / len(self._keys), 1.0)

    def _strike(self) -> None:
        target, moment = self._choose()
        if target is None:
            self._kill_at = None
            return
        power_cut = moment != "starting" and self._random.random() < 0.2
        victims = list(self._workers) if power_cut else [target]
        at = time.monotonic()
        for worker in victims:  # all of them first, or the standby would notice
            os.kill(worker.pid, signal.SIGKILL)
        hit = [worker for worker in victims if worker.process.wait() == -signal.SIGKILL]
        self._killed |= {worker.pid for worker in hit}
        self._workers = [worker for worker in self._workers if worker not in hit]
        if target in hit:
            self._note(target, moment, power_cut, at)
        for _ in hit:
            self._start()
        self._kill_at = None
        if self._random.random() < 0.25:  # do not let the successor come to its feet
            self._kill_at = time.monotonic() + self._random.uniform(0, 0.4 if power_cut else 0.08)
        elif moment == "starting":
            self._plan_next_kill()

    def _note(self, target: Worker, moment: Moment, power_cut: bool, at: float) -> None:
        number = len(self.story.kills) + 1
        batch = len(self._keys)
        self.story.kills.append(Kill(number, target.pid, batch, moment, power_cut))
        outage = self._open_outage()
        if outage is None:
            outage = Outage(at)
            self.story.outages.append(outage)
        outage.kills += 1
        outage.cold |= power_cut or moment in ("starting", "taking over")
        where = {
            "starting": "as it starts",
            "taking over": "as it takes over",
            "in a batch": f"in batch {batch}",
            "between batches": f"just behind batch {batch}",
        }[moment]
        whom = f"processes {target.pid} and standby" if power_cut else f"process {target.pid}"
        self._tell(f"kill {number}: {whom}, {where}")

    def _choose(self) -> tuple[Worker | None, Moment]:
        """Who executes now, as far as can be seen from outside."""
        if self._open_outage() is not None:
            return self._workers[0], "taking over"  # the standby is the older one
        self._look()
        if self.story.finished or self.story.problems:
            return None, "starting"
        last = self._last
        for worker in self._workers:
            if last is not None and worker.pid == last.pid:
                return worker, "between batches" if last.returned else "in a batch"
        return self._random.choice(self._workers), "starting"

    def _start(self) -> None:
        self._started += 1
        log = self.job.work / f"worker-{self._started:03}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                self.job.command(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                process_group=0,  # Ctrl-C is for us, and we end them
            )
        self._workers.append(Worker(process, log))
