"""The activity of a run in this process: it is unloaded when all of it provably waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct

from perdure.engine.journal.entry import Entry
from perdure.engine.journal.scopes import Scope
from perdure.engine.journal.waits import Suspended
from perdure.system.locks import Lock


class Waiting(Struct, eq=False):
    """One wait; see `Going.waiting`.

    Attributes:
        looked: the number of the last message that it looked at, in vain; -1 before its first look.
    """

    words: str
    until: int
    own: bool
    deaf: bool
    runs: Sequence[str]
    looked: int = -1


class Crew:
    """The threads of one executor of a run.

    Attributes:
        submitted: calls that have not ended.
        begun: those of them that a thread makes.
    """

    __slots__ = ("begun", "limit", "submitted")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.submitted = self.begun = 0

    @property
    def is_due(self) -> bool:
        """True if a free thread is about to begin a call."""
        return self.begun < min(self.limit, self.submitted)


class Going:
    """The activity of one execution: counts the threads that the run has of its own, the first
    being its function's. Safe between threads.

    Args:
        wake: makes waiting code look again. A wait looks by itself when it begins; this is called
            when something else was the last that kept the run from waiting as a whole.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._lock = Lock()
        self._wake = wake
        self._threads = 1
        self._joined: list[Callable[[], bool]] = []
        self._crews: list[Crew] = []
        self._lenders: list[Callable[[str], bool]] = []
        self._waits: dict[Waiting, None] = {}
        self._left: Suspended | None = None
        self._told = 0
        """The number of the last message of which all waits were told that it was read."""
        self.waits = 0
        """The number of waits that any of it began here."""
        self.has_waited = False
        """True if any of it ever waited here for a message, or for a time."""
        self.gives_way = False
        """Set where others are due for its place: then no time is waited for here."""
        self.calling = Counting()
        """Around a call of a step or tool."""
        self.handing = Counting()
        """Around an outcome from when it is being committed until the function has it."""
        self.resting = Counting()
        """Around what a thread of the run does while it goes on only when others of it do."""

    @contextmanager
    def waiting(
        self,
        words: str,
        until: int,
        *,
        own: bool,
        deaf: bool = False,
        runs: Sequence[str] = (),
    ) -> Iterator[Waiting]:
        """Context manager around a wait for a message, or for a time (0: none).

        Args:
            own: the wait is on a thread of the run.
            deaf: no message is news for it.
            runs: the runs whose ends are all that it waits for.
        """
        self._begin(wait := Waiting(words, until, own, deaf, runs))
        try:
            yield wait
        finally:
            self.goes_on(wait)

    def _begin(self, wait: Waiting) -> None:
        with self._lock:
            self._waits[wait] = None
            self.waits += 1
            self.has_waited = True

    def goes_on(self, wait: Waiting) -> Suspended | None:
        """Ends a wait, before anything follows from what came. Returns the exception with which the
        function is being left, if that was decided before: then nothing may follow from it."""
        with self._lock:
            self._waits.pop(wait, None)
            return self._left

    def follow(self, before: Going) -> None:
        """Takes over from the turn before, in the same place."""
        self.has_waited, self.gives_way = before.has_waited, before.gives_way

    @contextmanager
    def joining(self, lasts: Callable[[], bool]) -> Iterator[None]:
        """Context manager around waiting, on a thread of the run, for other threads of it, for as
        long as `lasts` returns True."""
        try:
            self._join(lasts)
            yield
        finally:
            self._join_no_more(lasts)

    def _join(self, lasts: Callable[[], bool]) -> None:
        with self._lock:
            self._joined.append(lasts)
        self._wake_if_all_wait()

    def _join_no_more(self, lasts: Callable[[], bool]) -> None:
        with self._lock:
            if lasts in self._joined:
                self._joined.remove(lasts)

    @contextmanager
    def crew(self, limit: int) -> Iterator[Crew]:
        """Context manager around the use of an executor."""
        crew = Crew(limit)
        try:
            self._hire(crew)
            yield crew
        finally:
            self._dismiss(crew)

    def _hire(self, crew: Crew) -> None:
        with self._lock:
            self._crews.append(crew)

    def _dismiss(self, crew: Crew) -> None:
        with self._lock:
            if crew in self._crews:
                self._crews.remove(crew)

    @contextmanager
    def lending(self, lend: Callable[[str], bool]) -> Iterator[None]:
        """Context manager around calls that a limit may keep from beginning; see `lend`."""
        try:
            self._lenders.append(lend)
            yield
        finally:
            if lend in self._lenders:
                self._lenders.remove(lend)

    def lend(self, first: Entry | None) -> bool:
        """Lets the scope that has recorded this entry begin, beside others that wait for it,
        whatever the limit is now: it began when that was higher. Returns True if it had not
        begun."""
        return first is not None and any(lend(first.scope) for lend in [*self._lenders])

    def submitted(self, crew: Crew) -> None:
        with self._lock:
            crew.submitted += 1

    def thread_began(self, crew: Crew, scope: Scope) -> None:
        scope.home = threading.get_ident()
        with self._lock:
            self._threads += 1
            crew.begun += 1

    @property
    def has_crews(self) -> bool:
        """True if there may be other threads of the run than its function's."""
        return bool(self._crews)

    def lent(self, crew: Crew, threads: int) -> None:
        with self._lock:
            crew.limit += threads

    def thread_ended(self, crew: Crew, scope: Scope, *, begun: bool, lent: bool = False) -> None:
        """Ends the scope, too, at the same moment: who waits for it goes on from here."""
        with self._lock:
            crew.limit -= lent
            self._threads -= begun
            crew.begun -= begun
            crew.submitted -= 1
            scope.ended()
        self._wake_if_all_wait()

    def _wake_if_all_wait(self) -> None:
        with self._lock:
            wakes = bool(self._waits) and self._all(self._waiting_threads())
        if wakes:
            self._wake()

    @property
    def calls(self) -> int:
        """Steps and tools that are being made."""
        return self.calling.number

    @property
    def threads_wait(self) -> bool:
        """True if each thread of the run waits, and no step or tool call is under way."""
        with self._lock:
            return self._all(self._waiting_threads())

    @property
    def is_single(self) -> bool:
        """True if the function's own thread is the only one of the run."""
        with self._lock:
            return self._threads == 1 and not any(crew.submitted for crew in self._crews)

    @property
    def all_rest(self) -> bool:
        """True if each thread of the run waits, if only for another one, and no call is under
        way."""
        with self._lock:
            return self._all(self._waiting_threads() + self.resting.number)

    def _all(self, waiting: int) -> bool:
        idle = not self.calls and not any(crew.is_due for crew in self._crews)
        return idle and self._threads <= waiting

    def _waiting_threads(self) -> int:
        waits = sum(wait.own for wait in self._waits)
        return waits + sum(lasts() for lasts in self._joined)

    @property
    def deaf(self) -> bool:
        """True if no message is news for anything that waits."""
        with self._lock:
            return all(wait.deaf for wait in self._waits)

    def leaves(self, read: int) -> Suspended | None:
        """Returns the exception with which to leave the function, for a caller that found that all
        of it waits. None if something goes on meanwhile, or if a wait has not looked yet at what
        others have read: it is told to.

        Args:
            read: the number of the last message that was read.
        """
        with self._lock:
            waits = [*self._waits]
            if any(w.own for w in waits) and not self._all(self._waiting_threads()):
                return None
            behind = any(wait.looked < read for wait in waits if not wait.deaf)
            tells = behind and read > self._told
            if tells:
                self._told = read
            elif not behind and self._left is None:
                until = min((wait.until for wait in waits if wait.until), default=0)
                all_runs = all(wait.runs for wait in waits)
                runs = [run for wait in waits for run in wait.runs] if all_runs else ()
                words = "; ".join(wait.words for wait in waits)
                self._left = Suspended(words, until, runs, seen=read)
        if tells:
            self._wake()
        return None if behind else self._left


class Counting:
    """Context manager around something that is counted while it goes on, on whichever thread.

    Attributes:
        marks: one for each.
    """

    __slots__ = ("marks",)

    def __init__(self) -> None:
        self.marks: list[None] = []

    # One operation each, which needs no lock.

    def __enter__(self) -> None:
        self.marks.append(None)

    def __exit__(self, *error: object) -> None:
        self.marks.pop()

    @property
    def number(self) -> int:
        return len(self.marks)
