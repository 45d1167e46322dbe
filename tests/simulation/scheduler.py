"""Real threads, one at a time: who runs next, and what time it is, follows from a seed.

Every thread of a simulation waits for its baton, and hands it on where it would block, sleep, or
reach the store. Nothing else runs meanwhile, so that a seed gives the same order of everything,
each time. Time is virtual: it moves on where nobody can run, to the next moment that somebody waits
for. An hour of heartbeats takes no time at all.
"""

from __future__ import annotations

import heapq
import random
import threading
from collections.abc import Callable
from typing import Any

STUCK_S = 600.0
"""Real seconds after which a simulation is given up: some thread blocked without saying so."""


class Killed(BaseException):
    """Leaves the threads of a process that was killed. Whatever they catch, they get it again."""


class Halted(BaseException):
    """The simulation cannot go on: everybody waits for ever, or time is up."""


class Process:
    """A process that is played: some threads that are killed, paused and woken together.

    Its clock may be wrong: `skew` microseconds ahead, and running `rate` times too fast.
    """

    def __init__(
        self, scheduler: Scheduler, name: str, *, skew: int = 0, rate: float = 1.0
    ) -> None:
        self.scheduler = scheduler
        self.name = name
        self.skew = skew
        self.rate = rate
        self.dead = False
        self.paused = False
        self.cut_off = False
        """Whether it reaches nothing."""
        self.threads = 0
        self.failures: list[str] = []
        """What left its threads, though nobody killed it."""
        self.at_end: list[Callable[[], None]] = []
        """What the system does when it is gone."""

    def __repr__(self) -> str:
        return self.name

    def monotonic_s(self) -> float:
        return self.scheduler.now * self.rate / 1e6

    def wall_micros(self) -> int:
        """What it takes for the time of day."""
        return self.scheduler.now + self.skew

    def spawn(self, name: str, call: Callable[[], Any]) -> SimulatedThread:
        """A thread of its own, ready to run."""
        thread = SimulatedThread(self, f"{self.name}/{name}", call)
        self.scheduler.begin(thread)
        return thread


class SimulatedThread:
    """A thread that runs only while it has the baton."""

    def __init__(self, process: Process, name: str, call: Callable[[], Any]) -> None:
        self.process = process
        self.name = name
        self.call = call
        self.baton = threading.Lock()
        self.baton.acquire()
        self.waiting = False
        self.woken = False
        self.round = 0
        """Counts its waits: a timer of an earlier one is none of this one's."""
        self.over = False
        self.joiners: list[SimulatedThread] = []
        self.no = 0
        self.shown: Any = None
        """What code that runs in it has of it."""


class Scheduler:
    """See the module. Used by the thread that has the baton only."""

    def __init__(self, seed: int, *, start: int, switching: float = 0.0) -> None:
        self.random = random.Random(seed)
        self.now = start
        """The true time, in microseconds since 1970."""
        self.switching = switching
        """How likely a thread is to be put back where it takes a free lock."""
        self.limit = 2**62
        self.current: SimulatedThread | None = None
        self.switches = 0
        self._made = 0
        self._ready: list[SimulatedThread] = []
        self._timers: list[tuple[int, int, SimulatedThread, int]] = []
        self._living: set[SimulatedThread] = set()
        self._halted: Halted | None = None
        self._ended = threading.Lock()

    # -- the whole of it -------------------------------------------------------------------

    def run(self, main: SimulatedThread) -> None:
        """Until `main` has ended, and then until all others have left.

        Raises:
            Halted: the simulation cannot go on.
            TimeoutError: some thread blocked without the scheduler's knowing.
        """
        self._main = main
        self._ended.acquire()
        first = self._next()
        assert first is not None
        self._give(first)
        if not self._ended.acquire(timeout=STUCK_S):
            raise TimeoutError(f"{self.current and self.current.name} blocks outside of the rules")
        if self._halted is not None:
            raise self._halted

    def number(self) -> int:
        """One that nothing else of this simulation has."""
        self._made += 1
        return self._made

    def begin(self, thread: SimulatedThread) -> None:
        thread.no = self.number()
        thread.process.threads += 1
        self._living.add(thread)
        threading.Thread(target=self._live, args=(thread,), daemon=True).start()
        self._ready.append(thread)

    def _live(self, thread: SimulatedThread) -> None:
        thread.baton.acquire()
        process = thread.process
        try:
            if not process.dead:
                thread.call()
        except Killed:
            pass
        except BaseException as error:
            if not process.dead:
                process.failures.append(f"{thread.name}: {type(error).__name__}: {error}")
        thread.call = _nothing
        thread.over = True
        self._living.discard(thread)
        process.threads -= 1
        if not process.threads:
            for act in process.at_end:
                act()
        for joiner in thread.joiners:
            self.wake(joiner)
        if thread is self._main:
            self._halt(None)
        self._hand_on(None)

    def _halt(self, why: Halted | None) -> None:
        """Everybody is to leave."""
        self._halted = self._halted or why
        for thread in sorted(self._living, key=lambda one: one.no):
            thread.process.dead = True
            thread.process.paused = False
            self.wake(thread)

    # -- who runs --------------------------------------------------------------------------

    def _hand_on(self, thread: SimulatedThread | None) -> None:
        """Give the baton to whoever is next; back when it is `thread`'s turn again."""
        chosen = self._next()
        if chosen is None:
            self.current = None
            self._ended.release()
            return
        if chosen is thread:
            self.current = chosen
            return
        self._give(chosen)
        if thread is not None:
            thread.baton.acquire()

    def _give(self, thread: SimulatedThread) -> None:
        self.switches += 1
        self.current = thread
        thread.baton.release()

    def _next(self) -> SimulatedThread | None:
        while True:
            ready = [thread for thread in self._ready if not thread.process.paused]
            if ready:
                thread = ready[0] if len(ready) == 1 else self.random.choice(ready)
                self._ready.remove(thread)
                return thread
            if not self._living:
                return None
            if not self._pass_time():
                self._halt(Halted(self._stuck()))

    def _pass_time(self) -> bool:
        """To the next moment that somebody waits for; False: there is none."""
        while self._timers:
            at, _, thread, round_ = heapq.heappop(self._timers)
            if thread.over or not thread.waiting or thread.round != round_:
                continue
            if at > self.limit:
                return False
            self.now = max(self.now, at)
            thread.waiting = False
            self._ready.append(thread)
            return True
        return False

    def _stuck(self) -> str:
        names = ", ".join(sorted(thread.name for thread in self._living))
        return f"at {self.now}: time is up, or nobody can go on: {names}"

    # -- what threads do -------------------------------------------------------------------

    def check(self) -> None:
        """Raises Killed in a thread whose process is dead."""
        if self.current is not None and self.current.process.dead:
            raise Killed

    def wait(self, seconds: float | None) -> bool:
        """Until the current thread is woken, or for so long by its process's clock.

        Returns:
            Whether it was woken.
        """
        thread = self.current
        assert thread is not None
        self.check()
        thread.waiting, thread.woken = True, False
        thread.round += 1
        if seconds is not None:
            micros = max(int(seconds * 1e6 / thread.process.rate) + 1, 1)
            heapq.heappush(
                self._timers,
                (self.now + micros, thread.round * 1_000_000 + thread.no, thread, thread.round),
            )
        self._hand_on(thread)
        self.check()
        return thread.woken

    def wake(self, thread: SimulatedThread) -> None:
        if thread.waiting:
            thread.waiting, thread.woken = False, True
            self._ready.append(thread)

    def sleep(self, seconds: float) -> None:
        """Let so much time pass for the current thread, by true time."""
        thread = self.current
        assert thread is not None
        self.wait(seconds * thread.process.rate)

    def give_way(self) -> None:
        """Let others run first, perhaps."""
        thread = self.current
        if thread is None:
            return
        self.check()
        if self.switching and self.random.random() < self.switching:
            self._ready.append(thread)
            self._hand_on(thread)
            self.check()

    # -- what happens to processes ---------------------------------------------------------

    def kill(self, process: Process) -> None:
        """Its threads leave from where they are; nothing they do counts any more.

        Raises:
            Killed: it is the current thread's own.
        """
        if process.dead:
            return
        process.dead, process.paused = True, False
        for thread in sorted(self._living, key=lambda one: one.no):
            if thread.process is process:
                self.wake(thread)
        self.check()


def _nothing() -> None:
    """What a thread that is over has to do."""
