"""What happens to simulated processes: they are killed, paused, cut off, drained, and replaced."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from msgspec import Struct

from tests.simulation.scheduler import Process

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation


class Hardship(Struct, frozen=True):
    """How likely each is, at a moment of fate; they come some tenths of a second apart."""

    kill: float = 0.1
    pause: float = 0.1
    cut_off: float = 0.05
    drain: float = 0.05
    pace_s: float = 0.5
    longest_s: float = 6.0
    """Of pauses and of being cut off: longer than leases last."""


class Fate:
    """See the module. A process that nothing happens to."""

    def __init__(self, simulation: Simulation, hardship: Hardship, random: Random) -> None:
        self._simulation = simulation
        self._scheduler = simulation.scheduler
        self._hardship = hardship
        self._random = random
        self._until: list[tuple[int, Process]] = []

    def live(self) -> None:
        while True:
            self._scheduler.sleep(self._random.random() * self._hardship.pace_s)
            if self._simulation.healed:
                return
            self._release(self._scheduler.now)
            self._strike()
            self._simulation.keep_manned(self._random)

    def end(self) -> None:
        """Everybody that is left goes on."""
        self._release(2**62)

    def _release(self, now: int) -> None:
        due = [process for until, process in self._until if until <= now]
        self._until = [(until, process) for until, process in self._until if until > now]
        for process in due:
            process.paused = process.cut_off = False
            self._say(process, "goes on")

    def _strike(self) -> None:
        hardship, draw = self._hardship, self._random.random()
        struck = [process for _, process in self._until]
        living = [
            process
            for process in self._simulation.mortals
            if process.threads and not process.dead and process not in struck
        ]
        if not living:
            return
        process = self._random.choice(living)
        if (draw := draw - hardship.kill) < 0:
            self._say(process, "killed")
            self._simulation.tape.count("kills")
            self._scheduler.kill(process)
        elif (draw := draw - hardship.pause) < 0:
            self.pause(process)
        elif (draw := draw - hardship.cut_off) < 0:
            process.cut_off = True
            self._later(process, "cut off")
        elif draw - hardship.drain < 0:
            self._simulation.drain(process)

    def pause(self, process: Process) -> None:
        process.paused = True
        self._later(process, "paused")

    def _later(self, process: Process, what: str) -> None:
        self._say(process, what)
        self._simulation.tape.count(what)
        lasts = round(self._random.random() * self._hardship.longest_s * 1e6)
        self._until.append((self._scheduler.now + lasts, process))

    def _say(self, process: Process, what: str) -> None:
        self._simulation.tape.say(self._scheduler.now, process, what)
