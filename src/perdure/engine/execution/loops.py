"""Wrappers of the event loops in which runs are driven: there, a run's timers are set, and its
function asks for the time.

asyncio's own loops show their timers; other loops, like uvloop, do not, and there the timers are
noted.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from perdure.engine.execution.current_run import RunFrame, current, current_in
from perdure.engine.execution.run_timers import Timed

if TYPE_CHECKING:
    from perdure.engine.execution.run_clock import RunClock
    from perdure.engine.execution.run_timers import Timers


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
    """Returns True if something of the run will happen at some time, such as a timeout that it set.
    True if in doubt."""
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
    """Lets each `asyncio.Timeout` that a run's function enters set a timer. One whose time is over
    by then would go off by `call_soon`, of which nobody hears: whether it is over depends on how
    busy the machine is."""
    plain = asyncio.Timeout.reschedule
    if hasattr(plain, "__wrapped__"):
        return

    @functools.wraps(plain)
    def reschedule(self: asyncio.Timeout, when: float | None) -> None:
        frame = current() if isinstance(when, float | int) else None
        if when is not None and frame is not None and _timers_of(frame, asyncio.get_running_loop()):
            when = _Deadline(when)
        plain(self, when)

    cast(Any, asyncio.Timeout).reschedule = reschedule


def note_timers(loop: asyncio.AbstractEventLoop) -> None:
    """See the module; as often as anybody likes."""
    if hasattr(loop.call_at, "noted"):
        return
    _take_timeouts_in_hand()
    with suppress(AttributeError):  # else nothing is known of its timers
        _wrap(loop)


def _wrap(loop: Any) -> None:
    noted = _Noted() if scheduled_in(loop) is None else None
    tell: Callable[[], float] = loop.time
    make_at, make_later = loop.call_at, loop.call_later
    if isinstance(loop, asyncio.BaseEventLoop):  # its own goes by what a run's function is told

        def make_later(delay: float, *callback: Any, **context: Any) -> asyncio.TimerHandle:
            return cast(asyncio.TimerHandle, make_at(tell() + delay, *callback, **context))

    def time() -> float:
        if (frame := current()) is None or (timers := _timers_of(frame, loop)) is None:
            return tell()
        return timers.clock.ask()

    def begin(
        make: Callable[..., asyncio.TimerHandle],
        at: float,
        times: Callable[[RunClock, float], tuple[float, float]],
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> asyncio.TimerHandle:
        """`times`: when it is by the clock of its run, and what the loop's own call is given."""
        frame = _sets(callback, context)
        if frame is None:
            return make(at, callback, *args, context=context)
        timers = _timers_of(frame, loop)
        if timers is None:
            return _noted_timer(make, noted, frame.run, at, callback, args, context)
        when, for_loop = times(timers.clock, at)
        timed = timers.make(frame.scope or frame.run.root, context, callback, args, when)
        timed.handle = _noted_timer(make, noted, frame.run, for_loop, timed, (), timed.context)
        return timers.began(timed)

    def call_at(
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return begin(make_at, when, _at, callback, args, context)

    def call_later(
        delay: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return begin(make_later, delay, _later, callback, args, context)

    call_at.noted = call_later.noted = noted  # type: ignore[attr-defined]
    time.by_loop = tell  # type: ignore[attr-defined]
    loop.call_at, loop.call_later, loop.time = call_at, call_later, time


def _at(clock: RunClock, when: float) -> tuple[float, float]:
    return when, clock.by_loop(when)


def _later(clock: RunClock, delay: float) -> tuple[float, float]:
    return clock.told + delay, delay


def clock_of(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """Returns the loop's own clock, whoever asks."""
    return getattr(loop.time, "by_loop", loop.time)


def _sets(callback: Callable[..., Any], context: contextvars.Context | None) -> Any:
    """The frame of the code that sets a timer; None: it is of no run."""
    frame = current() if context is None else current_in(context)
    of_run = frame is not None and frame.run is not None and not isinstance(callback, Timed | _Call)
    return frame if of_run else None


def _noted_timer(
    make: Callable[..., asyncio.TimerHandle],
    noted: _Noted | None,
    run: Any,
    when: float,
    callback: Callable[..., Any],
    args: tuple[Any, ...],
    context: contextvars.Context | None,
) -> asyncio.TimerHandle:
    if noted is None:
        return make(when, callback, *args, context=context)
    call = _Call(noted, callback, args)
    call.timer = make(when, call, context=context)
    noted.add(call.timer, run)
    return call.timer


class _Call:
    """A callback in a loop that does not show its timers."""

    timer: asyncio.TimerHandle

    def __init__(self, noted: _Noted, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._noted, self._callback, self._args = noted, callback, args

    def __call__(self) -> None:
        self._noted.remove(self.timer)
        self._callback(*self._args)


def _timers_of(frame: RunFrame, loop: asyncio.AbstractEventLoop) -> Timers | None:
    """Returns the timers of the run whose function sets one in its loop, or asks the loop for the
    time; None for other code."""
    tasks = frame.run.tasks if frame.run is not None else None
    # The block of an edit is replayed in the place of its end: an event in between would wait for
    # that, and the edit for the event.
    if tasks is None or not tasks.numbered or frame.inside != "function":
        return None
    assert frame.run is not None
    performer = frame.run.async_performer
    here = performer.loop is loop and threading.get_ident() == performer.home
    return performer.timers if here else None


def scheduled_in(loop: asyncio.AbstractEventLoop) -> Iterable[asyncio.TimerHandle] | None:
    """The timers of a loop; None: it does not show them."""
    return getattr(loop, "_scheduled", None)


def _run_in(context: contextvars.Context | None) -> Any:
    return _run_of(current_in(context)) if context is not None else None


def _run_of(frame: RunFrame | None) -> Any:
    return frame.run if frame is not None else None
