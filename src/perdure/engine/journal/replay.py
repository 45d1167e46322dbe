"""The logic of recorded calls, written once: generators of effects; see `effects`."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from perdure.core.arguments.checks import seconds
from perdure.core.format.records import Intent, Outcome, Placed
from perdure.core.values.plain_values import Plain
from perdure.engine.journal.call import Call
from perdure.engine.journal.cancellations import told_of
from perdure.engine.journal.effects import (
    Arrive,
    Arrived,
    Attempt,
    CancelledInside,
    Carried,
    Effect,
    Effects,
    Invoke,
    Now,
    Pause,
    RecordEffect,
    uncarried,
)
from perdure.engine.journal.entry import Entry
from perdure.engine.journal.failures import (
    CallCancelled,
    as_replayed,
    error_record,
    rebuild_error,
    words,
)
from perdure.engine.journal.lacking_resources import lacks
from perdure.engine.journal.left_calls import LEFT, Made
from perdure.engine.journal.own_errors import make_again
from perdure.engine.journal.previews import short
from perdure.engine.journal.recorded_values import completed, plain_of, settle_hint
from perdure.engine.journal.undoing_stops import not_undone, undo_in_doubt
from perdure.errors import (
    CallFailed,
    InDoubt,
    NeedsAttention,
    PerdureError,
    SchemaError,
    TimedOut,
    UnknownZone,
    Unstorable,
)
from perdure.missing import MISSING
from perdure.storage.appending import Riders
from perdure.system.late_imports import NotLoadedError
from perdure.system.user_errors import of_code


class NotDone:
    """The type of NOT_DONE, which a probe returns for a call that did not take effect."""

    def __repr__(self) -> str:
        return "NOT_DONE"


NOT_DONE = NotDone()


class AttemptTimedOut(TimedOut):
    """An attempt took longer than it may. Whether it still does something, nobody knows."""


def _invoke(call: Call, inside: Literal["step", "tool"], tries: _Tries) -> Effects:
    """Makes one attempt; returns the function's result."""
    attempt = Attempt(call, tries.number, tries.saved, tries.total_left_s)
    try:
        return (
            yield Invoke(
                call.function,
                call.args,
                call.kwargs,
                inside,
                call.key or None,
                call.limits,
                attempt,
            )
        )
    finally:
        attempt.over = True
        tries.saved = attempt.saved


def arrival(call: Call) -> Arrive:
    """Returns the effect that the function has reached a call."""
    outside = call.kind == "tool"
    form, digests = call.as_recorded, call.digests
    known = (call.name, call.kind, digests, call.preview, outside, outside, form)
    return Arrive(*known, call.undoes)


def from_there(call: Call, arrived: Arrived) -> Effects:
    """The rest of a call: what `arrival` gave is known."""
    call.place, call.key = arrived.place, arrived.key
    if call.unsaid is not None:
        call.unsaid.check(call.target, recorded=arrived.entry is not None)
    if call.captured is not None:
        call.captured.check(call.target, recorded=arrived.entry is not None)
    if call.kind == "step":
        return _step(call, arrived)
    if arrived.made is not None:
        return _tool_again(call, arrived, arrived.made)
    return _tool(call, arrived.entry)


def _tool_again(call: Call, arrived: Arrived, made: Made) -> Effects:
    """Decides on a tool call that was made before the run was set back; never made again
    without a decision."""
    call.instead = made.key
    if arrived.effects == "live":
        return (yield from _tool(call, arrived.entry))
    asked = call.first(
        Intent,
        key=call.key,
        policy=call.policy,
        attempt=0,
        made=made.key,
        made_at=made.seq,
        of=call.of,
        undo=call.undo,
        compensates=call.compensates,
    )
    gave = made.gave(call.digests, call.of) if arrived.effects == "reuse" else None
    said: dict[str, Any] = {}
    if gave is not None:
        with suppress(NeedsAttention):  # what it was settled with does not fit: it is asked again
            said = (
                {"error": gave.error} if gave.error is not None else {"value": plain_of(call, gave)}
            )
    if said:
        outcome = call.outcome(by="reuse", **said)
        yield RecordEffect(Riders((asked, outcome), sync=True))
        return _outcome(call, outcome)
    yield RecordEffect(Riders((asked,), sync=True))
    raise _made_before(call, made.seq)


def _made_before(call: Call, seq: int) -> NeedsAttention:
    made = f"it was made before, at commit {seq}, {LEFT}"
    if not call.instead:
        made = f"it may have been made before, {LEFT}, as commit {seq} cannot be read"
    return NeedsAttention(
        f"{made}: {call.preview()}",
        target=call.target,
        hint=settle_hint(call),
    )


def _step(call: Call, arrived: Arrived) -> Effects:
    """A function without outside effects: recorded once it is done, repeated freely before."""
    entry = arrived.entry
    if entry is not None and entry.outcome is not None:
        return _outcome(call, (yield from completed(call, entry, entry.outcome)))
    tries = _Tries(call, call.limits.total_timeout is not None)
    if entry is not None:
        tries.go_on_from(entry)
    while True:
        try:
            if tries.wait_first:
                yield from tries.wait()
            value = yield from _invoke(call, "step", tries)
            plain, between = _taken(call, value)
            if between is not None:
                raise between
        except CancelledInside as cancelled:
            yield RecordEffect(call.riders(_cancelled(call.step(), cancelled)))
            raise cancelled.original from None
        except (Carried, PerdureError) as raised:  # a result that cannot be stored, too
            error = _error_of(call, raised)
            failure = error_record(error)
            again_at = yield from tries.again_at(error)
            if again_at is not None:
                yield RecordEffect(call.riders(tries.failed(failure, again_at)))
                continue
            yield RecordEffect(call.riders(call.step(error=failure)))
            raise _handed(call, error, failure) from None
        try:
            yield RecordEffect(call.riders(call.step(value=plain)))
        except Unstorable as too_big:
            named = Unstorable(too_big.problem, target=f"{call.name}()", hint=too_big.hint)
            yield RecordEffect(call.riders(call.step(error=error_record(named))))
            raise named from None
        # I5: the caller gets the stored value, the same the first time as on replay.
        return call.results.build(plain)


def _tool(call: Call, entry: Entry | None) -> Effects:
    """A function with outside effects: its intent is durable before it is called (I5)."""
    tries = _Tries(call, call.limits.total_timeout is not None)
    if entry is not None:
        tries.go_on_from(entry)
        outcome = entry.outcome
        if entry.in_doubt and entry.asked:
            call.instead = entry.call.made
            raise _made_before(call, entry.call.made_at)
        if entry.in_doubt and not (call.asks_first and entry.attempts == 1):
            outcome = yield from _settle_doubt(call, tries, "the process ended, or it stopped,")
        elif outcome is not None and not outcome.not_done:
            outcome = yield from completed(call, entry, outcome)
        if outcome is not None and not outcome.not_done:
            return _outcome(call, outcome)
    if call.asks_first and (entry is None or (entry.in_doubt and entry.attempts == 1)):
        if entry is None:
            yield RecordEffect(Riders((tries.intent(),), sync=True))
        raise undo_in_doubt(call)
    while True:
        try:
            if tries.wait_first:
                yield from tries.wait()
            point = call.point if tries.number == 1 and entry is None else ""
            yield RecordEffect(Riders((tries.intent(),), sync=True), point=point)
            value = yield from _invoke(call, "tool", tries)
        except CancelledInside as cancelled:
            return (yield from _tool_cancelled(call, cancelled))
        except AttemptTimedOut as late:
            # It may still take effect, or have done so: as after a crash.
            outcome = yield from _settle_doubt(call, tries, "it took too long")
            if outcome is not None:
                return _outcome(call, outcome)
            error: Exception = late
        except (Carried, PerdureError) as raised:
            error = _error_of(call, raised)
        else:
            return (yield from _record_value(call, value, by="call"))
        failure = error_record(error)
        again_at = yield from tries.again_at(error)
        if again_at is None and call.compensates:
            yield RecordEffect(Riders((tries.failed(failure, 0),), sync=True))
            raise not_undone(call, error)
        if again_at is None:
            yield RecordEffect(Riders((call.outcome(error=failure),), sync=True))
            raise _handed(call, error, failure)
        yield RecordEffect(Riders((tries.failed(failure, again_at),), sync=True))


def _tool_cancelled(call: Call, cancelled: CancelledInside) -> Generator[Effect, Any, NoReturn]:
    yield RecordEffect(Riders((_cancelled(call.outcome(by="cancel"), cancelled),), sync=True))
    raise cancelled.original from None


def _cancelled(record: Outcome, cancelled: CancelledInside) -> Outcome:
    gone = CallCancelled("its task was cancelled while it was made", target=record.place)
    return replace(
        record,
        cancelled=True,
        after=cancelled.after_s,
        error=error_record(gone),
        **told_of(cancelled.original, several=cancelled.several),
    )


class _Tries(Struct):
    """The attempts of one call: which is next, and whether there is another one after a failure.

    Attributes:
        wait_first: whether there may be anything to `wait` for.
    """

    _call: Call
    wait_first: bool
    number: int = 1
    saved: Plain = MISSING
    total_left_s: float | None = None
    _until: int = 0
    _first: int = 0

    def go_on_from(self, entry: Entry) -> None:
        """Behind the attempts that are recorded."""
        failures: Sequence[Placed] = entry.failures
        last = failures[-1] if failures else None
        self.number = max(entry.attempts, len(failures)) + 1
        if last is not None:
            self._until = last.again_at
            self.wait_first = self.wait_first or self._until > 0
        self._first = int((last if last is not None else entry.call).first_at)
        if entry.progress is not None:
            self.saved = entry.progress.value

    def wait(self) -> Effects:
        """Waits until it is time for the attempt.

        Raises:
            TimedOut: all of the call's time has passed.
        """
        limits = self._call.limits
        if self._until:
            now = yield Now()
            # A clock that was set back must not make more of a pause than the longest there is.
            until = min(self._until, now + round(seconds(limits.retry.longest) * 1e6))
            yield Pause(until, f"attempt {self.number} of {self._call.name}")
        total = limits.total_timeout
        if total is None:
            return
        now = yield Now()
        self._first = self._first or now
        left_s = total - (now - self._first) / 1e6
        if left_s <= 0:
            raise TimedOut(
                f"took longer than {total:g} s, with {self.number - 1} attempts",
                target=self._call.target,
            )
        self.total_left_s = min(left_s, total)

    def intent(self) -> Intent:
        """The record without which a tool is not called."""
        call = self._call
        return call.first(
            Intent,
            key=call.key,
            policy=call.policy,
            attempt=self.number,
            first_at=self._first,
            made=call.instead,
            of=call.of,
            undo=call.undo,
            compensates=call.compensates,
        )

    def again_at(self, error: Exception) -> Generator[Effect, Any, int | None]:
        """Returns the time of the next attempt, by the store's clock; None if there is none."""
        limits = self._call.limits
        retry = limits.retry
        if self.number >= retry.attempts or issubclass(type(error), SchemaError):
            return None
        if not retry.worth_it(error):
            return None
        now = yield Now()
        self._first = self._first or now
        at = int(now + retry.pause_s(self.number) * 1e6)
        total = limits.total_timeout
        if total is not None and at > self._first + total * 1e6:
            return None
        return at

    def failed(self, failure: Mapping[str, Any], again_at: int) -> Placed:
        """The record of a failed attempt that another one follows."""
        record = self._call.first(
            Placed,
            t="attempt-failed",
            attempt=self.number,
            error=failure,
            again_at=again_at,
            first_at=self._first,
        )
        self._until, self.wait_first = again_at, True
        self.number += 1
        return record


def _taken(call: Call, value: Any) -> tuple[Plain, Exception | None]:
    """Returns the plain form of a call's result, and an exception that came from outside in the
    meantime; see `own_errors.its_own`.

    Raises:
        Unstorable, SchemaError: it cannot be stored.
        Carried: the code of its class fails.
    """
    try:
        return call.results.take(value), None
    except PerdureError:
        raise
    except of_code() as first:
        return make_again(partial(call.results.take, value)), first


def _record_value(call: Call, value: Any, *, by: str) -> Effects:
    try:
        plain, between = _taken(call, value)
        yield RecordEffect(Riders((call.outcome(value=plain, by=by),), sync=True))
    except (Carried, PerdureError) as raised:
        # It took effect: that must be known, even where its result cannot be kept.
        error = uncarried(raised)
        lost = CallFailed(f"took effect, but its result cannot be stored: {words(error)}")
        lost.took_effect = True
        yield RecordEffect(Riders((call.outcome(error=error_record(lost), by=by),), sync=True))
        raise lost from error
    if between is not None:
        raise between
    return call.results.build(plain)


def _settle_doubt(call: Call, tries: _Tries, why: str) -> Generator[Effect, Any, Outcome | None]:
    """Settles an intent without an outcome: the declared policy decides, never chance.

    Returns:
        The outcome; None if it must be called again.
    """
    if call.policy == "retry":
        return None
    if call.policy == "probe":
        assert call.probe is not None
        looks = Attempt(call, tries.number, tries.saved, probes=True)
        try:
            found = yield Invoke(
                call.probe, call.args, call.kwargs, "step", call.key, attempt=looks
            )
        except CancelledInside as cancelled:
            return (yield from _tool_cancelled(call, cancelled))
        except (Carried, PerdureError) as raised:
            error = uncarried(raised)
            raise NeedsAttention(
                f"it is in doubt, and its probe failed: {type(error).__name__}: {words(error)}",
                target=call.target,
                hint=settle_hint(call),
            ) from error
        if found is NOT_DONE:
            return None
        outcome = call.outcome(value=_take_found(call, found), by="probe")
        yield RecordEffect(Riders((outcome,), sync=True))
        return outcome
    if call.policy == "fail":
        doubt = InDoubt(
            f"{why} between the call's intent and its outcome",
            target=call.target,
            hint="find out whether it took effect before calling it again",
        )
        outcome = call.outcome(error=error_record(doubt), by="crash")
        yield RecordEffect(Riders((outcome,), sync=True))
        return outcome
    raise NeedsAttention(
        f"nobody knows whether it took effect, as {why} meanwhile: {call.preview()}",
        target=call.target,
        hint=settle_hint(call),
    )


def _take_found(call: Call, found: Any) -> Any:
    try:
        return call.results.take(found)
    except of_code() as error:
        raise NeedsAttention(
            f"it is in doubt, and its probe returned neither NOT_DONE nor a result of the call: "
            f"{short(found)} ({error})",
            target=call.target,
            hint=settle_hint(call),
        ) from error


def outcome_of(call: Call, entry: Entry) -> Any:
    """Returns the result of a call that is recorded and settled; raises its error carried."""
    assert entry.outcome is not None
    call.place = entry.place
    return _outcome(call, entry.outcome)


def _outcome(call: Call, outcome: Outcome) -> Any:
    """Returns the result of a recorded call: its value, rebuilt; or raises its error again."""
    if outcome.error is not None:
        raise Carried(rebuild_error(outcome.error, call.target))
    try:
        return call.results.build(outcome.value)
    except PerdureError as error:
        raise NeedsAttention(
            f"its recorded result no longer fits its declared type: {error.problem}",
            target=call.target,
            hint="let the type read the old form too, then run it again",
        ) from error


def _error_of(call: Call, raised: Exception) -> Exception:
    """Returns the error that is a call's outcome: its function may catch it.

    Raises:
        NeedsAttention, NotLoadedError: it is not an outcome. An error that a person or time can fix
            must not recur on every replay; and the effects of a tool before it are in doubt.
    """
    error = uncarried(raised)
    kind = type(error)  # not what it says that its class is
    if issubclass(kind, UnknownZone):
        raise lacks(error, call.run, call.target) from error  # type: ignore[arg-type]
    if issubclass(kind, NeedsAttention | NotLoadedError):
        raise error
    return error


def _handed(call: Call, error: Exception, failure: Mapping[str, Any]) -> Carried:
    """Returns the error that the function gets for a call that left with this one: the same the
    first time as on replay."""
    return Carried(as_replayed(error, failure, call.target))
