"""The performer of a run's effects on the thread that its code runs on."""

from __future__ import annotations

import contextvars
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from perdure.engine.execution.activity import Waiting
from perdure.engine.execution.branch_changes import change, record_named
from perdure.engine.execution.commit_items import Item
from perdure.engine.execution.current_run import RunFrame, current, enter, inside
from perdure.engine.execution.run_position import RunPosition
from perdure.engine.execution.wakeups import POLL_S
from perdure.engine.journal import release_order
from perdure.engine.journal.call import Call
from perdure.engine.journal.effects import (
    Arrive,
    Arrived,
    Await,
    Came,
    Carried,
    Change,
    Effect,
    Effects,
    Invoke,
    Now,
    Pause,
    RecordEffect,
    first_timer,
)
from perdure.engine.journal.entry import Entry
from perdure.engine.journal.journal import OthersFirstError, changed
from perdure.engine.journal.replay import AttemptTimedOut, arrival, from_there, outcome_of
from perdure.engine.journal.retries import NO_LIMITS
from perdure.engine.journal.scopes import Scope
from perdure.engine.journal.waits import only_runs
from perdure.model import Cause
from perdure.system.flag import Flag
from perdure.system.late_imports import loading
from perdure.system.threads import begin
from perdure.system.user_errors import of_code

SETTLING = ("step", "outcome", "wait-ended")
"""Records after which a call gives what it gave."""

GIVEN_UP_S = 0.005
"""The interval at which a thread checks whether the task that waits for it is cancelled."""


class Performer:
    """Performs the effects of one run, synchronously."""

    def __init__(self, execution: RunPosition[Any]) -> None:
        self._execution = execution

    def make(self, call: Call) -> Any:
        """Makes a call of a recorded function, or returns its recorded result."""
        execution = self._execution
        try:
            if not execution.past_record:
                # A replayed step takes 0.87 of the time that the long way of all others takes.
                entry = execution.next_recorded(call)
                if entry is not None:
                    if execution.tasks is not None:
                        self._passes(entry.hands)
                    return outcome_of(call, entry)
            return drive(from_there(call, self._arrive(arrival(call))), self.perform)
        except BaseException as raised:
            error = execution.leaving.passed_on(raised)
        raise error

    def call(self, effects: Effects) -> Any:
        """Drive effects to their result."""
        try:
            return drive(effects, self.perform)
        except BaseException as raised:
            error = self._execution.leaving.passed_on(raised)
        raise error

    def perform(self, effect: Effect) -> Any:
        # Of every call, the first ones: a `match` asks for each case, and takes five times as long.
        if isinstance(effect, RecordEffect):
            return self.record(effect)
        if isinstance(effect, Invoke):
            return self.invoke(effect)
        if isinstance(effect, Arrive):
            return self._arrive(effect)
        if isinstance(effect, Now):
            return self._execution.now()
        if isinstance(effect, Pause):
            return self._pause(effect)
        if isinstance(effect, Change):
            return change(self, self._execution, effect)
        return self._await(effect)

    def _arrive(self, effect: Arrive) -> Arrived:
        execution = self._execution
        if execution.past_record or execution.comes_past_record():
            scope = execution.check_place(effect.name)
            if scope.is_cancelled is not None:
                check_given_up(scope)
            return execution.arrived(effect, scope, None)
        scope = execution.scope()
        entry = self._find(effect, scope)
        self.wait_for_turn(entry, scope, effect.name)
        arrived = execution.arrived(effect, scope, entry)
        if entry is not None and entry.order >= 0 and entry.hands:
            self._passes(entry.hands)
        if entry is not None and entry.cancelled:
            raise changed(
                f"the task of {entry.place} was cancelled there, and threads cannot be",
                execution.id,
            )
        return arrived

    def _find(self, effect: Arrive, scope: Scope) -> Entry | None:
        execution = self._execution
        if not execution.journal.replaying or threading.get_ident() == scope.home:
            return execution.find(effect, scope)
        while True:
            try:
                return execution.find(effect, scope, patient=True)
            except OthersFirstError:
                news = Flag()
                waiter = execution.watch_others(scope, news.set)
                if waiter is None:
                    continue
                moves = execution.turns.moves
                while not news.wait(release_order.STALL_S):
                    if execution.turns.moves == moves:  # then it says what is wrong
                        return execution.find(effect, scope)
                    moves = execution.turns.moves
                execution.check()

    def wait_for_turn(self, entry: Entry | None, scope: Scope, name: str) -> None:
        """Waits until everything recorded before this entry has been released."""
        execution = self._execution
        order, going = execution.turns, execution.going
        given_up = entry is None and scope.is_cancelled is not None
        while not order.is_ready(entry, scope.path):
            if _holds_up_a_loop():
                return  # whoever is to come first may be a task of that loop
            event = Flag()
            moves = order.moves
            waiter = order.ready(entry, scope.path, event.set)
            if waiter is None:
                return
            own = threading.get_ident() == scope.home
            try:
                with going.resting if own else nullcontext():
                    until, rested = time.monotonic() + release_order.STALL_S, False
                    given = scope if given_up else None
                    while not _comes(event, given) and order.moves == moves:
                        if going.lend(order.next_entry()):
                            continue
                        rests = own and going.all_rest
                        if (rests and rested) or time.monotonic() >= until:
                            raise execution.interrupt(order.stalled(scope.named(name)))
                        rested = rests  # a thread may be between two tasks: it takes two looks
            finally:
                order.forget(waiter)
            execution.check()
        if given_up:
            check_given_up(scope)

    def record(self, effect: RecordEffect) -> None:
        item, last = self._execution.to_write(effect), effect.last
        if last.t in SETTLING:
            self.settle(item, last.place)
        elif item is not None and effect.point:
            record_named(self._execution, effect, item)
        elif item is not None:
            self._execution.writer.write(item)

    def settle(self, item: Item | None, place: str) -> None:
        """Records what a call came to, unless that waits for the run's next commit; the function
        hears of it."""
        execution = self._execution
        told = execution.tasks is not None
        if item is not None:
            if told:
                item.landing = partial(self._passes, place)
            execution.writer.write(item)
        elif told:
            self._passes(place)
        if told and execution.seeing.is_home:
            shown = execution.seeing.showing(edit=item is None or item.changes)
            execution.seeing.show(shown)

    def _passes(self, place: str) -> None:
        """The function hears of an outcome; in an event loop that is an event like others."""
        if self._execution.tasks is not None and self._execution.tasks.numbered:
            self._execution.async_performer.pace.passes(place)

    # -- calling the user's functions ----------------------------------------------------------

    def invoke(self, effect: Invoke) -> Any:
        """Calls the function, in this thread, or in one of its own if its time is limited."""
        frame = frame_of(self._execution, effect)
        limits = effect.limits
        if limits is not NO_LIMITS and limits.timed and effect.attempt is not None:
            with self._execution.going.calling:
                return self._invoke_timed(effect, frame)
        try:
            with self._execution.going.calling:
                enter(frame)
                try:  # in here: what comes as these begin or end is none of the function's
                    return effect.function(*effect.args, **effect.kwargs)
                except of_code() as error:
                    raise Carried(error) from None
                except BaseException as left:
                    self._execution.leaving.left(left, f"a {effect.inside}")
                    raise
        finally:
            enter(frame.outer)

    def _invoke_timed(self, effect: Invoke, frame: RunFrame) -> Any:
        """Calls a function on a thread; as no thread can be ended from outside, one that takes too
        long is left to itself, and its result is thrown away."""
        with inside(frame):
            thread = CallThread(lambda: effect.function(*effect.args, **effect.kwargs))
        clock = AttemptClock(effect)
        while not thread.done.wait(clock.left_s()):
            if (late := clock.late()) is not None:
                raise late
        if issubclass(type(thread.error), of_code()):  # whatever it says that its class is
            raise Carried(thread.error)  # type: ignore[arg-type]
        if thread.error is not None:
            self._execution.leaving.left(thread.error, f"a {effect.inside}")
            raise thread.error
        return thread.result

    # -- waiting -------------------------------------------------------------------------------

    def _pause(self, effect: Pause) -> None:
        execution = self._execution
        if execution.played is not None:
            execution.played.skip(effect.until)
        here = self._waiting(effect.why, effect.until, deaf=True)
        with execution.wakeups.watch(execution.id) as watch, here as wait:
            for left_s in pausing(execution, effect, wait, lambda: execution.going.threads_wait):
                if left_s is not None:
                    watch.wait(min(left_s, POLL_S))

    def _waiting(
        self, words: str, until: int, *, deaf: bool = False, runs: Sequence[str] = ()
    ) -> AbstractContextManager[Waiting]:
        own = threading.get_ident() == self._execution.scope().home
        return self._execution.going.waiting(words, until, own=own, deaf=deaf, runs=runs)

    def _await(self, effect: Await) -> Came:
        execution = self._execution
        until, runs = execution.look_by(effect), only_runs(effect.branches)
        here = self._waiting(effect.words, until, runs=runs)
        with execution.wakeups.watch(execution.id) as watch, here as wait:
            for wanted in waiting(execution, effect, wait, lambda: execution.going.threads_wait):
                if isinstance(wanted, Came):
                    return wanted
                if isinstance(wanted, Item):
                    execution.writer.write(wanted)
                elif wanted is not None:
                    watch.wait(min(wanted, POLL_S))
        raise AssertionError("unreachable")


def drive(effects: Generator[Any, Any, Any], perform: Callable[[Any], Any]) -> Any:
    """Perform effects one after the other on this thread; returns what the generator returns."""
    try:
        effect = next(effects)
        while True:
            try:
                result = perform(effect)
            except BaseException as error:
                effect = effects.throw(error)
            else:
                effect = effects.send(result)
    except StopIteration as end:
        return end.value


def pausing(
    execution: RunPosition[Any], effect: Pause, wait: Waiting, unloadable: Callable[[], bool]
) -> Iterator[float | None]:
    """Yields the seconds that are left of a pause, for both performers, until none are; None before
    it checks if all of the run waits, so that due work is done first.

    Args:
        unloadable: returns True if all of the run provably waits.
    """
    until, seen = effect.until, execution.now()
    while True:
        now = execution.now()
        until -= max(seen - now, 0)  # a clock that is set back makes it no longer
        seen, left_s = now, (until - now) / 1e6
        if left_s <= 0:
            _go_on(execution, wait)
            return
        execution.check_stop()
        if left_s > _in_place_s(execution):
            yield None
            _leave_if(unloadable(), execution)
        yield left_s


def waiting(
    execution: RunPosition[Any], effect: Await, wait: Waiting, unloadable: Callable[[], bool]
) -> Iterator[float | Item | Came | None]:
    """The way of a wait, for both performers: seconds to wait for news, something to commit before
    that, and in the end what came; None as in `pausing`."""
    begun = False
    timer = first_timer(effect.branches)
    while True:
        execution.check_stop()
        came = execution.came(effect)
        if isinstance(came, Came):
            _go_on(execution, wait)
            yield came
            return
        wait.looked = came
        left_s = POLL_S
        if timer is not None:
            left_s = (timer.until - execution.now()) / 1e6
        soon = timer and len(effect.branches) == 1 and left_s <= _in_place_s(execution)
        if not soon:
            yield None
            _leave_if(unloadable(), execution)
        if soon or begun:
            yield left_s
            continue
        begun = True
        if execution.writer.waiting:  # when it began and what it asks must be in the log
            yield Item(Cause("wait-began", run=execution.id, step=effect.place))


def _in_place_s(execution: RunPosition[Any]) -> float:
    """Up to how long is waited for a time without the run being unloaded."""
    return 0.0 if execution.going.gives_way else execution.wakeups.in_place_s


def frame_of(execution: RunPosition[Any], effect: Invoke) -> RunFrame:
    """Returns the frame of a call's code."""
    outer = current()
    within = outer is not None and outer.run is execution and outer.scope
    scope = within or execution.root
    return RunFrame(execution, effect.inside, scope, effect.key, effect.attempt, outer)


def _leave_if(unloadable: bool, execution: RunPosition[Any]) -> None:
    """Leaves the function, so that the run is unloaded, if all of it waits."""
    if not unloadable:
        return
    if execution.going.deaf:
        with execution.asking:
            execution.mail.look()  # no message is news for the run until then
    if (
        execution.mail.moves
    ):  # read behind the last boundary: it is not resumed for what it has read
        execution.check_stop()
    if execution.mail.moves:
        return
    if (reason := execution.going.leaves(execution.mail.seen)) is not None:
        raise execution.interrupt(reason)


def _go_on(execution: RunPosition[Any], wait: Waiting) -> None:
    """Ends a wait, as what it waits for is there. If it was decided before that the run is
    unloaded, the function is left: what came is there when it is resumed."""
    if (reason := execution.going.goes_on(wait)) is not None:
        raise execution.interrupt(reason)


def _comes(event: Flag, given_up: Scope | None) -> bool:
    """Waits for the event as long as it takes to prove that nothing moves; or until its task is
    cancelled, if the call is given up with it: what comes first may wait for the call's end."""
    if given_up is None:
        return event.wait(release_order.PROVEN_S)
    until = time.monotonic() + release_order.PROVEN_S
    while not event.wait(GIVEN_UP_S):
        check_given_up(given_up)
        if time.monotonic() >= until:
            return False
    return True


def check_given_up(scope: Scope) -> None:
    """Checks, for a call on a thread that its task waits for, and of which nothing is recorded,
    that the task was not cancelled in the meantime: then it is not made. Nothing tells when its
    thread got there.

    Raises:
        Carried: with a CancelledError.
    """
    if scope.is_cancelled is not None and scope.is_cancelled():
        with loading:
            from asyncio import CancelledError  # not for those who do without

        raise Carried(CancelledError())  # type: ignore[arg-type]


def _holds_up_a_loop() -> bool:
    """Returns True if this code was called from a task, and not awaited."""
    events = sys.modules.get("asyncio.events")  # not imported for those who do without
    return events is not None and events._get_running_loop() is not None


class AttemptClock:
    """The remaining time of an attempt."""

    def __init__(self, effect: Invoke) -> None:
        self._limits = effect.limits
        self._attempt = effect.attempt
        assert effect.attempt is not None
        self._began = effect.attempt.beat = time.monotonic()
        longest = [t for t in (self._limits.timeout, effect.attempt.total_left_s) if t is not None]
        self._until = self._began + min(longest) if longest else None

    def left_s(self) -> float:
        """Seconds until it is late, if it shows no more sign of life; never less than 0."""
        return max(min(self._ends()) - time.monotonic(), 0.0)

    def _ends(self) -> list[float]:
        assert self._attempt is not None
        ends = [] if self._until is None else [self._until]
        if self._limits.heartbeat_timeout is not None:
            ends.append(self._attempt.beat + self._limits.heartbeat_timeout)
        return ends

    def late(self) -> AttemptTimedOut | None:
        """The error, if it is late."""
        now = time.monotonic()
        if self._until is not None and now >= self._until:
            return AttemptTimedOut(
                f"took longer than {self._until - self._began:g} s",
                hint="give it more time, or look what holds it up",
            )
        if now >= min(self._ends()):
            return AttemptTimedOut(
                f"showed no sign of life for {self._limits.heartbeat_timeout:g} s",
                hint="call perdure.heartbeat() more often, or look what holds it up",
            )
        return None


class CallThread:
    """A call on a daemon thread of its own, in the caller's context."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.done = Flag()
        self.result: Any = None
        self.error: BaseException | None = None
        context = contextvars.copy_context()
        begin(
            threading.Thread(
                target=lambda: context.run(self._run, call), name="perdure-call", daemon=True
            )
        )

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            self.result = call()
        except BaseException as error:
            self.error = error
        finally:
            self.done.set()
