"""One call of a run on its way through an event loop."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perdure.core.format.records import Placed
from perdure.engine.journal.effects import Arrive, RecordEffect


class Calling(Struct):
    """One call that is being driven.

    Attributes:
        task: the task that makes the call; None if none does.
        began: the record of its begin, if any is made before its end.
        place: the place where it is recorded; empty until known, and until the turn of the record
            there.
        since: the time when it got there, by the monotonic clock.
        noted: the cancellation of its task is in its outcome.
        settled: the record of its outcome; None until there is one.
        cancelled: its task was cancelled while a thread made the call; the outcome is recorded
            first.
        kept_on: its task was cancelled, and the called code caught that: the function hears the
            outcome.
        heard: the number of earlier cancellations that its task has heard of.
        intends: its begin is recorded, or is being recorded: it counts as under way.
    """

    task: asyncio.Task[Any] | None
    arrive: Arrive | None = None
    began: Placed | None = None
    place: str = ""
    since: float = 0.0
    noted: bool = False
    settled: RecordEffect | None = None
    cancelled: asyncio.CancelledError | None = None
    kept_on: bool = False
    heard: int = 0
    intends: bool = False

    @property
    def is_cancelled(self) -> bool:
        """True if its task was cancelled in this call; otherwise a `CancelledError` is of something
        awaited. A task that was cancelled before may make calls while it cleans up."""
        return cancels(self.task) > self.heard


def as_kept_on(effect: RecordEffect) -> RecordEffect:
    """Returns the record with the note that a cancellation was caught; it is caught on replay,
    too."""
    outcome = replace(effect.last, kept_on=True)
    records = (*effect.riders.records[:-1], outcome)
    return replace(effect, riders=replace(effect.riders, records=records))


def cancels(task: asyncio.Task[Any] | None, *, heard: bool = False) -> int:
    """Returns the number of cancellations of a task; `heard`: only those that its code has heard
    of."""
    if task is None:
        return -1 if heard else 0
    to_come = heard and getattr(task, "_must_cancel", False)
    return task.cancelling() - (1 if to_come else 0)
