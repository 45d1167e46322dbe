"""Requests of code inside a step or tool to the run that records it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from perdure.core.format.records import Placed
from perdure.core.types.nodes import isolate
from perdure.core.values.plain_values import take
from perdure.engine.execution.commit_items import Item
from perdure.engine.execution.current_run import current
from perdure.engine.execution.driven_run import DrivenRun
from perdure.engine.journal.effects import Attempt
from perdure.engine.journal.leaving import Drained, is_drained
from perdure.errors import Fenced, OutsideRun, PerdureError, TimedOut
from perdure.missing import MISSING
from perdure.model import Cause
from perdure.storage.appending import Riders


def idempotency_key() -> str:
    """The stable name of the tool call that is being made; the same after a crash. Pass it to
    receivers that ignore a second request with the same key.

    Raises:
        OutsideRun: no tool call is being made.
    """
    frame = current()
    if frame is None or frame.key is None:
        raise OutsideRun("idempotency_key() has a value only inside a tool call of a run")
    return frame.key


def fencing_token() -> int:
    """The epoch of the run's lease, growing by one per owner: for receivers that refuse writers
    with an older token. The log refuses them by itself; the outside world cannot.

    Raises:
        OutsideRun: not inside a run.
    """
    frame = current()
    if frame is None or frame.run is None:
        raise OutsideRun("fencing_token() has a value only inside a run")
    return frame.run.epoch


def heartbeat(progress: Any = MISSING) -> None:
    """Reports, inside a step or tool, that it is alive, and saves its progress.

    The next attempt, also one after a crash, gets the progress from `saved_progress`. It becomes
    durable soon after, at the store's durability. Outside a run this does nothing.

    Args:
        progress: plain data.

    Raises:
        Unstorable: the progress is not plain data.
        TimedOut: this attempt took too long, and was given up: its result does not count.
        RunInterrupted: this run continues elsewhere. In a step also: it was cancelled, or its
            deadline has passed. A worker that is ending waits for the call's end; and a tool is
            never interrupted for a reason that can wait until then, as that would leave it in
            doubt.
        PerdureError: a probe has progress to save.
    """
    frame = current()
    if frame is None or frame.attempt is None or frame.run is None:
        return
    attempt, run = frame.attempt, frame.run
    _note_life(run, attempt)
    if progress is not MISSING:
        item = _saving(run, attempt, progress, sync=False)
        run.writer.post(item, attempt.posted)
        attempt.posted = item


def save_progress(progress: Any) -> None:
    """Saves, inside a step or tool, what its next attempt and its probe must know: it is durable
    when this returns. A tool that is to be found again saves the number of its transaction before
    it sends that: `saved_progress` gives it to the probe.

    It costs a commit; `heartbeat` costs none that is waited for. In a coroutine,
    `save_progress_async` does not hold up the event loop meanwhile. Outside a run this does
    nothing.

    Args:
        progress: plain data. It takes the place of what was saved before.

    Raises:
        Unstorable, TimedOut, RunInterrupted: as `heartbeat`.
        PerdureError: called by the agent function itself, in an edit, or by a probe.
    """
    if (saving := _to_save(progress)) is not None:
        run, item = saving
        run.writer.write(item)


async def save_progress_async(progress: Any) -> None:
    """As `save_progress`, for coroutines: ``await perdure.save_progress_async(number)``."""
    if (saving := _to_save(progress)) is not None:
        run, item = saving
        await run.writer.write_async(item, run.async_performer.new_wait)


def _to_save(progress: Any) -> tuple[DrivenRun[Any], Item] | None:
    """Returns the run and what it must write; None outside of runs."""
    frame = current()
    if frame is None or frame.run is None:
        return None
    run, attempt = frame.run, frame.attempt
    if attempt is None:
        raise PerdureError(
            "there is no call whose progress could be saved",
            target=f"run {run.id}",
            hint="save it inside the step or tool; what the agent function must keep goes into "
            'its state, `with run.edit("why") as draft: …`',
        )
    _note_life(run, attempt)
    return run, _saving(run, attempt, progress, sync=True)


def _note_life(run: DrivenRun[Any], attempt: Attempt) -> None:
    if attempt.over:
        raise TimedOut("this attempt was given up", target=f"run {run.id}")
    attempt.beat = time.monotonic()
    _check_attempt(run, attempt.call.kind)


def _saving(run: DrivenRun[Any], attempt: Attempt, progress: Any, *, sync: bool) -> Item:
    """Returns what saves it; from now on it is the attempt's."""
    if attempt.probes:
        raise PerdureError(
            "a probe has no progress of its own: it finds out what the call before did",
            target=attempt.call.target,
            hint="return the call's result, or NOT_DONE",
        )
    attempt.saved = take(progress, root="progress")
    record = attempt.call.first(Placed, t="progress", value=attempt.saved)
    riders = Riders((record,), sync=True) if sync else attempt.call.riders(record)
    return Item(Cause("progress", run=run.id, step=record.place), riders)


def _check_attempt(run: DrivenRun[Any], kind: str) -> None:
    """Leaves a call that is under way, if there is a reason that outweighs its progress."""
    run.check_process()
    if kind == "step":
        if not is_drained(run.interrupted):
            run.check()
        if not isinstance(run.asked_to_stop, Drained):
            run.check_stop(for_steps=False)
    elif run.interrupted is not None and isinstance(run.interrupted.reason, Fenced):
        raise run.interrupted  # I4: another executor goes on with it, and may call it, too


def saved_progress(default: Any = None) -> Any:
    """Inside a step or tool: what the attempt before saved by `heartbeat` or `save_progress`, or
    `default`. Inside a probe: what the call saved that it finds out about."""
    frame = current()
    attempt = frame.attempt if frame is not None else None
    return default if attempt is None or attempt.saved is MISSING else isolate(attempt.saved)


_lifespan: ContextVar[Any] = ContextVar("perdure_lifespan", default=MISSING)
set_lifespan: Callable[[Any], object] = _lifespan.set
"""Sets the value of a worker's lifespan, for the code that is called from here on."""


def lifespan(default: Any = MISSING) -> Any:
    """Returns the value of ``lifespan=`` of the worker that executes this code's run: in agent
    functions, steps, tools, and openers of resources.

    Args:
        default: returned where there is none.

    Raises:
        OutsideRun: there is none, and no `default`.
    """
    value = _lifespan.get()
    if value is not MISSING:
        return value
    if default is not MISSING:
        return default
    raise OutsideRun(
        "no worker with a lifespan executes this code",
        hint="perdure.Worker(…, lifespan=…) makes one; lifespan(None) returns None where there is "
        "none",
    )
