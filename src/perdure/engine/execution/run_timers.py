"""The timers that a run's code set in its event loop: their effects are part of the run.

They are intercepted where they are set; see `loops`. While there are any, the run does not only
wait.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from perdure.core.format.records import Fired
from perdure.core.schema.value_digest import called_by
from perdure.engine.execution.commit_items import Item
from perdure.engine.execution.event_pacing import Pace, PacedEvent
from perdure.engine.execution.run_clock import ClockedRun, RunClock
from perdure.engine.execution.run_writer import RunWriter
from perdure.engine.journal import release_order
from perdure.engine.journal.entry import Entry
from perdure.engine.journal.leaving import Leaving
from perdure.engine.journal.scopes import Scope
from perdure.engine.journal.values import label
from perdure.model import Cause
from perdure.storage.appending import Riders

KIND = "timer:"

WAITING_MAX = 1000
"""The number of records that may wait for the run's next commit before one is made for them."""

LATE_S, HELD_S = 0.002, 0.05
"""The intervals at which late ones are checked; the same, if outcomes come before them."""


class TimedRun(ClockedRun, Protocol):
    """A run, as its timers know it; see `DrivenRun`."""

    id: str
    turns: release_order.ReleaseOrder
    leaving: Leaving
    writer: RunWriter


class Timed:
    """A callback in a loop for when a timer of a run's own is due; see `Timers`.

    Attributes:
        place: its name within the run: its task, the function that it calls, and a number.
        entry: the journal's entry, if it went off before; None if not, as far as known.
        due: True once its time has come.
        offered: True while it is on its way to the function.
        over: True once it has gone off, or was cancelled.
        when: its time by the clock of its run.
    """

    __slots__ = (
        "_args",
        "_callback",
        "context",
        "due",
        "entry",
        "handle",
        "offered",
        "over",
        "place",
        "scope",
        "timers",
        "when",
    )

    def __init__(
        self,
        timers: Timers,
        scope: str,
        place: str,
        context: contextvars.Context,
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        when: float,
    ) -> None:
        self.timers, self.scope, self.place, self.context = timers, scope, place, context
        self.when = when
        self._callback, self._args = callback, args
        self.entry: Entry | None = None
        self.handle: asyncio.TimerHandle | None = None
        self.due = self.offered = self.over = False

    def __call__(self) -> None:
        self.due = True
        try:
            self.timers.is_due(self)
        except BaseException as error:
            # Its place is unknown; but code that waits for it continues, and hears of that.
            self.timers.lost(error)
            if self.is_left:
                self.go_off()
            raise

    @property
    def is_left(self) -> bool:
        """True if it may still go off."""
        return not self.over and not (self.handle is not None and self.handle.cancelled())

    def go_off(self) -> None:
        """Calls its function, in its context."""
        callback, args = self._callback, self._args
        self.forget()
        self.timers.clock.goes_to(self.when)
        callback(*args)

    def forget(self) -> None:
        """Forgets the timer: it will not go off, or has."""
        handle, self.handle, self.over = self.handle, None, True
        self._callback, self._args = _nothing, ()
        if handle is not None and not self.due:
            handle.cancel()


class Timers:
    """The timers that a run's function sets in its event loop, as in `asyncio.timeout` or `sleep`.

    A timer that goes off is an event of the run like an outcome: the outcome before it is recorded,
    and on replay it goes off there again, whatever the time. A timer that did not go off then does
    not go off before everything is replayed that happens without it.

    Args:
        loop_time: the loop's own clock.
        works: returns True if something of the run is at work that is not replayed: threads, or the
            block of an edit.
        has_before: returns True if a task of a scope, or below it, waits for the turn of a recorded
            outcome.
    """

    def __init__(
        self,
        execution: TimedRun,
        pace: Pace,
        loop_time: Callable[[], float],
        works: Callable[[], bool],
        has_before: Callable[[str], bool],
    ) -> None:
        self._execution = execution
        self._pace = pace
        self.clock = RunClock(execution, pace, loop_time, self._note_time)
        self._works = works
        self._has_before = has_before
        self._numbers: dict[str, int] = {}
        self.plain: list[Timed] = []
        """Those that call a function of the user's own, and may be left."""
        self._late: list[Timed] = []
        """Those whose time has come, on replay, and not their turn."""
        self._offered: set[Timed] = set()
        self._looking = False
        self._moves, self._moved_at = -1, 0.0
        self._record: Fired | None = None
        self._ended: set[str] = set()
        """Scopes that have, and had set timers that are not set yet: what they left behind may."""
        self._passed_over = False
        self.ended = False
        """The function has: what is left of its timers is nobody's."""

    def make(
        self,
        scope: Scope,
        context: contextvars.Context | None,
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        when: float,
    ) -> Timed:
        """Returns the timer that the function is about to set."""
        name = scope.named(KIND + label(callback).replace("/", "_"))
        number = self._numbers[name] = self._numbers.get(name, 0) + 1
        context = contextvars.copy_context() if context is None else context
        timed = Timed(self, scope.path, f"{name}#{number}", context, callback, args, when)
        module = getattr(called_by(callback), "__module__", None)
        if not str(module).startswith("asyncio"):
            self.plain = [one for one in self.plain if one.is_left]
            self.plain.append(timed)
        return timed

    def began(self, timed: Timed) -> asyncio.TimerHandle:
        """The loop has it, by this."""
        handle, entry = timed.handle, self._execution.journal.timers.get(timed.place)
        assert handle is not None
        if entry is not None and self._execution.turns.begins(entry):
            self._is_recorded(timed, entry)
        return handle

    def _is_recorded(self, timed: Timed, entry: Entry) -> None:
        timed.entry = entry
        loop, home = asyncio.get_running_loop(), threading.get_ident()

        def over() -> None:
            if threading.get_ident() == home:
                self._has_turn(timed)
                return
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._has_turn, timed, context=contextvars.Context())

        if self._execution.turns.ready(entry, None, over) is None:
            self._offer(timed)

    def _has_turn(self, timed: Timed) -> None:
        if self._execution.interrupted is None:  # else it goes off when its time has come
            self._offer(timed)

    def is_due(self, timed: Timed) -> None:
        """Handles a timer whose time has come. Called by the loop."""
        if not timed.is_left or timed.offered:
            return
        if self.ended or self._execution.interrupted is not None:
            timed.go_off()
        elif timed.entry is None and self._execution.turns.next_entry() is None:
            self._offer(timed, here=True)
        else:
            self._late.append(timed)
            self._look_soon()

    def lost(self, error: BaseException) -> None:
        """Notes that a timer could not be reported in its place."""
        if not self.ended:
            self._execution.leaving.failed(error)

    @property
    def call_back(self) -> bool:
        """True if any is left that calls a function of the user's own."""
        self.plain = [timed for timed in self.plain if timed.is_left]
        return bool(self.plain)

    @property
    def has_due(self) -> bool:
        """True if any is about to go off that the loop does not have any more."""
        return any(timed.is_left for timed in (*self._late, *self._offered))

    def _offer(self, timed: Timed, *, here: bool = False) -> None:
        if timed.offered or timed.over:
            return
        timed.offered = True
        self._offered.add(timed)
        event = PacedEvent(f"{timed.scope}{KIND}", "", lambda: self._go_off(timed, here=here))
        self._pace.offer(event, here=here)
        here = False  # from now on it is called from elsewhere

    def _go_off(self, timed: Timed, *, here: bool) -> bool:
        """Makes a timer go off, when its turn has come; returns False if it was cancelled."""
        self._offered.discard(timed)
        left, execution = timed.is_left, self._execution
        if timed.entry is not None:
            execution.turns.release(timed.entry)
        elif left and not self.ended and execution.interrupted is None:
            self._note("fired", timed.place)
        if not left:
            timed.forget()
            return False
        try:
            if here:
                timed.go_off()
            else:
                timed.context.run(timed.go_off)
        except Exception as error:
            told = {"message": f"Exception in {timed.place}", "exception": error}
            asyncio.get_running_loop().call_exception_handler(told)
        return True

    def _note_time(self, told: tuple[int, int]) -> None:
        if not self.ended:
            self._note("clock", told)

    def _note(self, key: str, one: object) -> None:
        """Adds an entry to the run's next commit: nothing that follows from it is in the log
        before."""
        after, record = self._pace.handed, self._record
        writer = self._execution.writer
        if record is None or record.after != after or not writer.adds(record, key, one):
            record = Fired(run=self._execution.id, after=after, fired=[], clock=[])
            getattr(record, key).append(one)
            writer.later(Riders([record]))
            self._record = record
        if len(getattr(record, key)) >= WAITING_MAX or writer.waiting >= WAITING_MAX:
            writer.post(Item(Cause("timers", run=self._execution.id)))  # nothing else may for long

    # -- those whose turn has not come ---------------------------------------------------------

    def _look_soon(self, seconds: float = 0.0) -> None:
        if not self._looking:
            self._looking = True
            loop = asyncio.get_running_loop()
            loop.call_later(seconds, self._look, context=contextvars.Context())

    def scope_ended(self, scope: str) -> None:
        """Notes, in the loop, the end of a task of a scope. Code that it left behind may still set
        its timers."""
        if any(not entry.consumed for entry in self._execution.journal.timers_in(scope)):
            self._ended.add(scope)
            self._look_soon()

    def pass_over(self) -> bool:
        """Pass over timers that are next and that nobody sets any more; whether there were any."""
        passed = self._execution.turns.pass_over_timers()
        if passed:  # the code has changed: no other one holds up the run for as long
            self._passed_over = True
            self._look_soon()
        return passed

    def _look(self) -> None:
        """Lets the first timer go off if nothing recorded happens without it. Passes over timers
        that are not set any more: if nothing moves, they never will be."""
        self._looking = False
        self._late = [timed for timed in self._late if timed.is_left and not timed.offered]
        execution, moves = self._execution, self._execution.turns.moves
        if self.ended or execution.interrupted is not None or execution.turns.next_entry() is None:
            late, self._late = self._late, []
            for timed in late:
                self._offer(timed)
            return
        if not (self._late or self._ended or self._passed_over):
            return
        now = time.monotonic()
        if moves != self._moves:
            self._moves, self._moved_at = moves, now
        rests = not self._works() or now - self._moved_at >= release_order.PROVEN_S
        if not rests or not self._pace.is_idle():
            self._look_soon(LATE_S)
            return
        unset = execution.turns.next_unset()
        if unset is not None and (self._passed_over or unset.scope in self._ended):
            self.pass_over()
            return
        # One that did not go off before a recorded outcome must not overtake that: it would be
        # recorded, too. The one before may take its time, for example by computing.
        first = next((timed for timed in self._late if not self._has_before(timed.scope)), None)
        if first is not None:
            self._offer(first)
        self._look_soon(HELD_S if first is None else LATE_S)


def _nothing(*args: Any) -> None:
    """Does nothing; the function of a timer that is over."""
