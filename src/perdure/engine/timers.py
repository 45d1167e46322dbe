"""The timers that a run's code set in its event loop: what they do is a part of what it does.

They are taken in hand where they are set: the loop's `call_at` is wrapped, as is its task factory.
While there are any, the run does not only wait. asyncio's own loops show theirs; those of others,
as uvloop, do not, and there it is noted which there are.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from perdure.engine import turns
from perdure.engine.current import Frame, current, current_in
from perdure.engine.items import Item
from perdure.engine.journal import Entry
from perdure.engine.pacing import Event, Pace
from perdure.engine.scopes import Scope
from perdure.model import Cause

if TYPE_CHECKING:
    from perdure.engine.execution import Execution

KIND = "timer:"

WAITING_MAX = 1000
"""How many records may wait for the run's next commit before one is made for them."""

LATE_S, HELD_S = 0.002, 0.05
"""How often those that are late are looked at; the same, where outcomes come before them."""


class Timed:
    """What a loop calls when a timer of a run's own is due; see `Timers`.

    Attributes:
        place: names it within its run: its task, what it calls, and which of those it is.
        entry: of the journal: it went off before; None: not that anybody knows.
        due: its time has come.
        offered: it is on its way to the function.
        over: it has gone off, or was cancelled before that.
    """

    __slots__ = (
        "_args", "_callback", "context", "due", "entry", "handle", "offered", "over", "place",
        "scope", "timers",
    )  # fmt: skip

    def __init__(
        self, timers: Timers, scope: str, place: str, context: contextvars.Context,
        callback: Callable[..., Any], args: tuple[Any, ...],
    ) -> None:  # fmt: skip
        self.timers, self.scope, self.place, self.context = timers, scope, place, context
        self._callback, self._args = callback, args
        self.entry: Entry | None = None
        self.handle: asyncio.TimerHandle | None = None
        self.due = self.offered = self.over = False

    def __call__(self) -> None:
        self.due = True
        try:
            self.timers.is_due(self)
        except BaseException as error:
            # Nobody knows where it went off; but whoever waits for it goes on, and hears of that.
            self.timers.lost(error)
            if self.is_left:
                self.go_off()
            raise

    @property
    def is_left(self) -> bool:
        """Whether it is still to go off."""
        return not self.over and not (self.handle is not None and self.handle.cancelled())

    def go_off(self) -> None:
        """In its context: do what it was set for."""
        callback, args = self._callback, self._args
        self.forget()
        callback(*args)

    def forget(self) -> None:
        """It will not go off, or has."""
        handle, self.handle, self.over = self.handle, None, True
        self._callback, self._args = _nothing, ()
        if handle is not None and not self.due:
            handle.cancel()


class Timers:
    """The timers that a run's function sets in its event loop, as in `asyncio.timeout` or `sleep`.

    That one goes off is an event of the run like an outcome that is handed over: it is recorded
    behind which outcome it did, and on replay it goes off there again, whatever the time. One that
    did not go off then does not before all is replayed that comes without it.

    Args:
        works: whether something of the run is at work that is not replayed: threads, or the block
            of an edit.
        has_before: whether a task of a scope, or below it, waits for the turn of an outcome that
            is recorded.
    """

    def __init__(
        self, execution: Execution[Any], pace: Pace, works: Callable[[], bool],
        has_before: Callable[[str], bool],
    ) -> None:  # fmt: skip
        self._execution = execution
        self._pace = pace
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
        self._record: dict[str, Any] | None = None
        self._ended: set[str] = set()
        """Scopes that have, and had set timers that are not set yet: what they left behind may."""
        self._passed_over = False
        self.ended = False
        """The function has: what is left of its timers is nobody's."""

    def make(
        self, scope: Scope, context: contextvars.Context | None, callback: Callable[..., Any],
        args: tuple[Any, ...],
    ) -> Timed:  # fmt: skip
        """Of a timer that the function is about to set."""
        what = callback.func if isinstance(callback, functools.partial) else callback
        called = str(getattr(what, "__qualname__", type(what).__qualname__))
        name = scope.named(KIND + called.rsplit("<locals>.", 1)[-1].replace("/", "_"))
        number = self._numbers[name] = self._numbers.get(name, 0) + 1
        context = contextvars.copy_context() if context is None else context
        timed = Timed(self, scope.path, f"{name}#{number}", context, callback, args)
        if not str(getattr(what, "__module__", None)).startswith("asyncio"):
            self.plain = [one for one in self.plain if one.is_left]
            self.plain.append(timed)
        return timed

    def began(self, timed: Timed) -> None:
        """The loop has it."""
        entry = self._execution.journal.timers.get(timed.place)
        if entry is None or not self._execution.turns.begins(entry):
            return
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
        """By the loop: its time has come."""
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
        """One could not be told of in its place."""
        if not self.ended:
            self._execution.leaving.failed(error)

    @property
    def call_back(self) -> bool:
        """Whether any is left that calls a function of the user's own."""
        self.plain = [timed for timed in self.plain if timed.is_left]
        return bool(self.plain)

    @property
    def has_due(self) -> bool:
        """Whether any is about to go off that the loop does not have any more."""
        return any(timed.is_left for timed in (*self._late, *self._offered))

    def _offer(self, timed: Timed, *, here: bool = False) -> None:
        if timed.offered or timed.over:
            return
        timed.offered = True
        self._offered.add(timed)
        event = Event(f"{timed.scope}{KIND}", "", lambda: self._go_off(timed, here=here))
        self._pace.offer(event, here=here)
        here = False  # from now on it is called from elsewhere

    def _go_off(self, timed: Timed, *, here: bool) -> bool:
        """It is its turn; False: it was cancelled."""
        self._offered.discard(timed)
        left, execution = timed.is_left, self._execution
        if timed.entry is not None:
            execution.turns.release(timed.entry)
        elif left and not self.ended and execution.interrupted is None:
            self._note(timed.place)
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

    def _note(self, place: str) -> None:
        """It joins the run's next commit: what follows from it is not in the log before that."""
        after, record = self._pace.handed, self._record
        writer = self._execution.writer
        if record is None or record["after"] != after or not writer.adds(record, place):
            record = {"t": "timers", "run": self._execution.id, "after": after, "fired": [place]}
            writer.later([record])
            self._record = record
        if len(record["fired"]) >= WAITING_MAX or writer.waiting >= WAITING_MAX:
            writer.post(Item(Cause("timers", run=self._execution.id)))  # nothing else may for long

    # -- those whose turn has not come ---------------------------------------------------------

    def _look_soon(self, seconds: float = 0.0) -> None:
        if not self._looking:
            self._looking = True
            loop = asyncio.get_running_loop()
            loop.call_later(seconds, self._look, context=contextvars.Context())

    def scope_ended(self, scope: str) -> None:
        """From the loop: one of its tasks has. What that left behind may still set its timers."""
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
        """Let the first go off if nothing that is recorded comes without it. And pass over what
        is not set any more: where nothing goes on, nobody will."""
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
        rests = not self._works() or now - self._moved_at >= turns.PROVEN_S
        if not rests or not self._pace.is_idle():
            self._look_soon(LATE_S)
            return
        unset = execution.turns.next_unset()
        if unset is not None and (self._passed_over or unset.scope in self._ended):
            self.pass_over()
            return
        first = next((timed for timed in self._late if not self._is_held(timed)), None)
        if first is not None:
            self._offer(first)
        self._look_soon(HELD_S if first is None else LATE_S)

    def _is_held(self, timed: Timed) -> bool:
        """Whether it did not go off before an outcome that is recorded, for else it would be, too:
        it would take that away. The one before may take its time, as where something computes."""
        return not self._execution.journal.older and self._has_before(timed.scope)


def _nothing(*args: Any) -> None:
    """Of a timer that is over."""


class _Noted:
    """Timers that were set by runs in one loop, and are not over."""

    def __init__(self) -> None:
        self._of: dict[asyncio.TimerHandle, Any] = {}
        self._prune_at = 64

    def add(self, timer: asyncio.TimerHandle, run: Any) -> None:
        if len(self._of) >= self._prune_at:  # of those that were cancelled nobody says so
            self._of = {one: whose for one, whose in self._of.items() if not one.cancelled()}
            self._prune_at = 2 * len(self._of) + 64
        self._of[timer] = run

    def remove(self, timer: asyncio.TimerHandle) -> None:
        self._of.pop(timer, None)

    def has(self, run: Any) -> bool:
        return any(whose is run and not timer.cancelled() for timer, whose in self._of.items())


def has_timer(loop: asyncio.AbstractEventLoop, run: Any) -> bool:
    """Whether something of the run is to happen at some time, as a timeout that it set. In doubt
    it is True."""
    scheduled = scheduled_in(loop)
    if scheduled is None:
        noted = getattr(loop.call_later, "noted", None)
        return noted is None or bool(noted.has(run))
    return any(
        not timer.cancelled() and _run_in(getattr(timer, "_context", None)) is run
        for timer in scheduled
    )


class _Deadline(float):
    """A time for which `asyncio.Timeout` sets a timer, also if it has passed."""

    def __le__(self, other: object) -> bool:
        return False


def _take_timeouts_in_hand() -> None:
    """Let each `asyncio.Timeout` that a run's function enters set a timer. One whose time is over
    by then would go off by `call_soon`, of which nobody hears: whether it is over depends on how
    busy the machine is."""
    plain = asyncio.Timeout.reschedule
    if hasattr(plain, "__wrapped__"):
        return

    @functools.wraps(plain)
    def reschedule(self: asyncio.Timeout, when: float | None) -> None:
        frame = current() if isinstance(when, float | int) else None
        if when is not None and frame is not None and _timers_of(frame) is not None:
            when = _Deadline(when)
        plain(self, when)

    cast(Any, asyncio.Timeout).reschedule = reschedule


def note_timers(loop: asyncio.AbstractEventLoop) -> None:
    """See the module; as often as anybody likes."""
    if hasattr(loop.call_at, "noted"):
        return
    _take_timeouts_in_hand()
    noted = _Noted() if scheduled_in(loop) is None else None
    with suppress(AttributeError):  # else nothing is known of its timers
        cast(Any, loop).call_at = _noting(loop.call_at, noted)
        if noted is not None:  # asyncio's own calls `call_at`
            cast(Any, loop).call_later = _noting(loop.call_later, noted)


def _noting(make: Callable[..., asyncio.TimerHandle], noted: _Noted | None) -> Any:
    def noting(
        when: float, callback: Callable[..., Any], *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:  # fmt: skip
        frame = current() if context is None else current_in(context)
        if frame is None or frame.run is None or isinstance(callback, Timed | _Call):
            return make(when, callback, *args, context=context)
        timers = _timers_of(frame)
        if timers is None:
            return _noted_timer(make, noted, frame.run, when, callback, args, context)
        timed = timers.make(frame.scope or frame.run.root, context, callback, args)
        timed.handle = _noted_timer(make, noted, frame.run, when, timed, (), timed.context)
        handle = timed.handle
        timers.began(timed)
        return handle

    noting.noted = noted  # type: ignore[attr-defined]
    return noting


def _noted_timer(
    make: Callable[..., asyncio.TimerHandle], noted: _Noted | None, run: Any, when: float,
    callback: Callable[..., Any], args: tuple[Any, ...], context: contextvars.Context | None,
) -> asyncio.TimerHandle:  # fmt: skip
    if noted is None:
        return make(when, callback, *args, context=context)
    call = _Call(noted, callback, args)
    call.timer = make(when, call, context=context)
    noted.add(call.timer, run)
    return call.timer


class _Call:
    """What a loop calls that does not show its timers."""

    timer: asyncio.TimerHandle

    def __init__(self, noted: _Noted, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._noted, self._callback, self._args = noted, callback, args

    def __call__(self) -> None:
        self._noted.remove(self.timer)
        self._callback(*self._args)


def _timers_of(frame: Frame) -> Timers | None:
    """Of the run whose function sets one; None: it is set by something else."""
    tasks = frame.run.tasks if frame.run is not None else None
    # The block of an edit is gone through again in the place of its end: what comes in between
    # would wait for that, and it for what comes in between.
    if tasks is None or not tasks.numbered or frame.inside != "function":
        return None
    assert frame.run is not None
    return frame.run.async_performer.timers


def scheduled_in(loop: asyncio.AbstractEventLoop) -> Iterable[asyncio.TimerHandle] | None:
    """The timers of a loop; None: it does not show them."""
    return getattr(loop, "_scheduled", None)


def _run_in(context: contextvars.Context | None) -> Any:
    return _run_of(current_in(context)) if context is not None else None


def _run_of(frame: Frame | None) -> Any:
    return frame.run if frame is not None else None
