"""The reasons why an execution stops before its function has ended."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from inspect import CO_VARARGS
from threading import get_ident
from types import FrameType
from typing import Any

from perdure.engine.journal.effects import CancelledInside, Carried
from perdure.engine.journal.failures import words
from perdure.engine.journal.journal import OthersFirstError
from perdure.errors import (
    CallFailed,
    InDoubt,
    NeedsAttention,
    PerdureError,
    RunFailed,
    RunInterrupted,
    SchemaError,
    TimedOut,
)
from perdure.system.late_imports import NotLoadedError
from perdure.system.user_errors import of_code

Interrupt = Callable[[PerdureError], RunInterrupted]


class LeftError(PerdureError):
    """An exception left a call without an outcome: `left`. `went_on`: the caller caught it, and has
    made another call since."""

    def __init__(self, left: BaseException, what: str, target: str) -> None:
        super().__init__(
            f"{type(left).__name__} left {what} without an outcome, and the function went on",
            target=target,
            hint="where the function caught it, let it through; run it again to go on",
        )
        self.left = left
        self.__cause__ = left
        self.went_on = False
        self._thread = None if _in_loop() else get_ident()

    def hears(self) -> None:
        """Notes another call: a caller that did not catch the exception may not even know of it, as
        a thread beside the one that did, or a task that its loop cancels now; or it may be cleaning
        up."""
        if self._thread == get_ident() and not _in_loop() and not _is_on_its_way(self.left):
            self.went_on = True


def _ending(error: BaseException, handled: BaseException | None) -> BaseException | None:
    """Returns the exception with which the calling code is on its way out, from what it handles:
    that itself, or an error while it cleaned up, or closed a generator. One that was turned into an
    error on purpose, `raise … from`, is dealt with; but not Ctrl-C, which comes from outside.

    Args:
        handled: the exception that the function's caller handles.
    """
    dealt_with = False
    for one in _contexts(error):
        if one is handled:
            break
        if isinstance(one, KeyboardInterrupt) or not (dealt_with or _may_go_on(one)):
            return one
        dealt_with = dealt_with or one.__suppress_context__
    if type(one) is GeneratorExit and (closed_for := _closed_for()) is not None:
        return _ending(closed_for, handled)
    return None


def _closed_for() -> BaseException | None:
    """Returns the exception of a block that is now closing an asynchronous generator, as
    `contextlib.aclosing` does: Python gives the exception in there no context, as it does in a
    plain one."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not frame.f_globals.get("__name__", "").startswith("asyncio."):
        code = frame.f_code
        if code.co_name in ("__aexit__", "__exit__"):
            named = code.co_varnames[: code.co_argcount + bool(code.co_flags & CO_VARARGS)]
            given = [frame.f_locals.get(name) for name in named]
            given += [one for many in given if isinstance(many, tuple) for one in many]
            left = next((one for one in given if isinstance(one, BaseException)), None)
            if left is not None:
                return left
        frame = frame.f_back
    return None


def _contexts(error: BaseException) -> Iterator[BaseException]:
    """Yields the error, and the one handled when it was raised, and so on: each once, as there may
    be a circle if an exception was raised again."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__context__


def _may_go_on(error: BaseException) -> bool:
    """Returns True if code may deal with it, or gets it from the library."""
    # The third: its task was cancelled once more while the first time was being recorded.
    kinds = (*of_code(), GeneratorExit, CancelledInside, RunInterrupted)
    if isinstance(error, BaseExceptionGroup):
        return error.split(kinds)[1] is None
    return isinstance(error, kinds)


def _is_on_its_way(error: BaseException) -> bool:
    """Returns True if the calling code is handling it, as in a `finally`, or an error after it."""
    handled = sys.exception()
    return handled is not None and any(one is error for one in _contexts(handled))


def _in_loop() -> bool:
    events = sys.modules.get("asyncio.events")  # not imported for those who do without
    return events is not None and events._get_running_loop() is not None


class CancelAsked(PerdureError):
    """The run was asked to end; `problem` says why."""


class Drained(PerdureError):
    """This executor is ending; the run goes on elsewhere."""


class DeadlinePassed(PerdureError):
    """The run took longer than its deadline, or its time limit, allows; it ends as failed."""


LATE = "its deadline has passed"


def overdue(run: str, why: str = LATE) -> TimedOut:
    """Returns the error with which a run fails whose deadline has passed, or its time limit."""
    return TimedOut(why, target=f"run {run}")


class TornError(PerdureError):
    """An exception from outside ended an operation of an execution between its two parts; and it
    could not be reported, as another one came in the meantime."""

    retry = True

    def __init__(self, what: str, run: str | None) -> None:
        super().__init__(
            f"an exception from outside ended {what}, and another one its report",
            target=f"run {run}",
            hint="run it again to go on",
        )


def is_drained(interrupted: RunInterrupted | None) -> bool:
    """Returns True if a run is left because its executor ends; calls under way are completed before
    that."""
    return interrupted is not None and isinstance(interrupted.reason, Drained)


def is_told_of_others(error: BaseException) -> bool:
    """Returns True if a TaskGroup wrapped what ended its tasks: errors, and the interruption of the
    run."""
    passed_on = (Exception, RunInterrupted, *of_code())
    return isinstance(error, BaseExceptionGroup) and error.split(passed_on)[1] is None


def unwrapped(raised: BaseException, interrupted: RunInterrupted | None) -> BaseException:
    """Returns the interruption of a run whose function was left by a group with that in it."""
    if isinstance(raised, Exception) or interrupted is None or not is_told_of_others(raised):
        return raised
    return interrupted


def turned_back(reason: BaseException | None) -> BaseException | None:
    """Returns the exception from outside that interrupted a run, if the run's caller must get that
    itself: no code continued from it."""
    return reason.left if isinstance(reason, LeftError) and not reason.went_on else None


def end_of(
    raised: BaseException, run: str, function: Callable[..., Any] | None = None
) -> BaseException:
    """Returns the end of a function that was left with this exception.

    Args:
        function: the function whose call raised it; None if that is known.

    Raises:
        BaseException: the same, if it is not an end: the run is left as after a crash.
    """
    reason = raised.reason if isinstance(raised, RunInterrupted) else None
    if (left := turned_back(reason)) is not None:
        raise left  # siblings, and who waited for them, have heard of it first
    if function is not None and not _came_in(function, raised):
        raise raised  # as it was called, or behind its end
    if isinstance(raised, Exception | RunInterrupted):
        return raised
    if isinstance(raised, of_code()):
        return cancelled_itself(raised, run)
    raise raised


def _came_in(function: Callable[..., Any], raised: BaseException) -> bool:
    """Returns True if it was raised in a function, not in its caller, which caught it: an error
    about its arguments is its own."""
    code, trace = getattr(function, "__code__", None), raised.__traceback__
    if code is None or trace is None or isinstance(raised, TypeError | RunInterrupted):
        return True  # the last of these may leave any call, and says itself why
    return trace.tb_next is not None and trace.tb_next.tb_frame.f_code is code


def cancelled_itself(error: BaseException, run: str) -> RunFailed:
    """The end of a run whose function is left by a `CancelledError` though nobody cancelled it: it
    would be so each time. To its caller that error would say that he is cancelled."""
    failed = RunFailed(
        f"CancelledError left its function, which was not cancelled: {words(error)}",
        target=f"run {run}",
        hint="catch it there: something that it awaited was cancelled",
    )
    failed.__cause__ = error
    return failed


def _may_be_done(error: BaseException) -> bool:
    """Returns True if it leaves a call that took effect, or may have."""
    kind = type(error)  # not what an error of the user's says that its class is
    done = issubclass(kind, CallFailed) and getattr(error, "took_effect", False)
    return done or issubclass(kind, InDoubt)


class Leaving:
    """The exceptions that leave the engine's work for a function, and what the function hears of
    them."""

    doubt: BaseException | None = None
    """See `AnyRun.doubt`."""

    def __init__(self, interrupt: Interrupt, run: str) -> None:
        self._interrupt = interrupt
        self._run = run
        self._handled: BaseException | None = None
        self._heard: BaseException | None = None
        """The last exception from outside: if telling of it is ended, a `TornError`."""

    def begins(self) -> None:
        """The function is about to be called: its caller may be handling something himself."""
        self._handled = sys.exception()

    def behind(self, error: BaseException) -> None:
        """Handles a call that begins while the function's code handles an exception. If that ends
        the function, the call is cleanup, and is refused: when the run is resumed, nothing ends
        there, and the call's record would not be reached. The run is left as after a crash."""
        if (left := _ending(error, self._handled)) is not None:
            self._interrupt(LeftError(left, "its own code", f"run {self._run}"))

    def look_behind(self) -> None:
        """Checks as `behind` does for the exception that the calling code handles, if any."""
        if (error := sys.exception()) is not None:
            self.behind(error)

    def left(self, error: BaseException, what: str) -> None:
        """Notes an exception that left a call without an outcome: a function that catches it may
        not continue, for a replay would find the call in doubt."""
        if isinstance(error, RunInterrupted):
            self._interrupt(error.reason)
            return
        self._interrupt(LeftError(error, what, f"run {self._run}"))

    def lets_record(self, kind: str, interrupted: RunInterrupted) -> bool:
        """Returns True if a record is made even if the run is interrupted: a call that an ending
        worker let complete must not be repeated."""
        return kind in ("step", "attempt-failed") and is_drained(interrupted)

    def passed_on(self, raised: BaseException) -> BaseException:
        """Returns the exception that the function gets for one raised in the work for it.

        That is its own code's exception, or a `PerdureError` about its mistake. Any other is not an
        outcome that a replay would repeat: it interrupts the run. So does an exception that comes
        while this one is handled.
        """
        try:
            error = self._passed_on(raised)
            if self.doubt is None and _may_be_done(error):
                self.doubt = error
            return error
        except BaseException as again:
            return self._passed_on(again)

    def _passed_on(self, raised: BaseException) -> BaseException:
        if type(raised) is Carried:
            return raised.original
        if isinstance(raised, NeedsAttention | NotLoadedError):
            return self._interrupt(raised)
        own = isinstance(raised, PerdureError | OthersFirstError)
        return raised if own and not isinstance(raised, TornError) else self.failed(raised)

    def failed(self, error: BaseException) -> BaseException:
        """Returns the exception as `passed_on` does, for a failure to record something."""
        if isinstance(error, SchemaError | RunInterrupted):
            return error
        if isinstance(error, PerdureError):
            if isinstance(error, TornError):
                error.__cause__ = self._heard
            return self._interrupt(error)
        self._heard = error
        if not isinstance(error, Exception):
            self.left(error, "recording")
            return error
        # Nobody knows what of it is in the log: the function must not go on as if it knew.
        reason = PerdureError(
            f"its actions could not be recorded: {type(error).__name__}: {words(error)}",
            target=f"run {self._run}",
            hint="run it again to go on, once that is put right",
        )
        reason.__cause__ = error
        return self._interrupt(reason)
