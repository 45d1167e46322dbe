"""Requests of code inside a step or tool to the run that records it."""

from __future__ import annotations

import time
from typing import Any

from perdure.core.format.records import Placed
from perdure.core.types.nodes import isolate
from perdure.core.values.plain_values import take
from perdure.engine.execution.commit_items import Item
from perdure.engine.execution.current_run import current
from perdure.engine.execution.driven_run import DrivenRun
from perdure.engine.journal.leaving import Drained, is_drained
from perdure.errors import Fenced, OutsideRun, TimedOut
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

    The next attempt, also one after a crash, gets the progress from `saved`. It becomes durable
    soon after, at the store's durability. Outside a run this does nothing.

    Args:
        progress: plain data.

    Raises:
        Unstorable: the progress is not plain data.
        TimedOut: this attempt took too long, and was given up: its result does not count.
        RunInterrupted: this run continues elsewhere. In a step also: it was cancelled, or its
            deadline has passed. A worker that is ending waits for the call's end; and a tool is
            never interrupted for a reason that can wait until then, as that would leave it in
            doubt.
    """
    frame = current()
    if frame is None or frame.attempt is None or frame.run is None:
        return
    attempt, run = frame.attempt, frame.run
    if attempt.over:
        raise TimedOut("this attempt was given up", target=f"run {run.id}")
    attempt.beat = time.monotonic()
    _check_attempt(run, attempt.call.kind)
    if progress is not MISSING:
        attempt.saved = take(progress, root="progress")
        record = attempt.call.first(Placed, t="progress", value=attempt.saved)
        cause = Cause("progress", run=run.id, step=record.place)
        item = Item(cause, Riders((record,)))
        run.writer.post(item, attempt.posted)
        attempt.posted = item


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
    """Inside a step or tool: what the attempt before saved by `heartbeat`, or `default`."""
    frame = current()
    attempt = frame.attempt if frame is not None else None
    return default if attempt is None or attempt.saved is MISSING else isolate(attempt.saved)
