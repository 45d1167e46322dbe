"""One call of a run, on its way through an event loop."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Struct

from perdure.core.format.records import Placed
from perdure.engine.journal.effects import Arrive, Record


class Calling(Struct):
    """One call that is being driven.

    Attributes:
        task: that makes it; None: none does.
        began: what is recorded of its begin, if anything is before it has come to its end.
        place: where it is recorded; empty until that is known, and while what is recorded there
            has not had its turn.
        since: by the monotonic clock, when it got there.
        noted: that its task was cancelled is in its outcome.
        settled: what its outcome is recorded by; None: it is not yet.
        cancelled: its task was, while a thread made the call; what that came to is recorded first.
        kept_on: its task was, and what was called caught that: the function hears the outcome.
        heard: how often its task was cancelled before, and has heard of it.
        intends: that it is made is recorded, or is just being: it counts as one that is under way.
    """

    task: asyncio.Task[Any] | None
    arrive: Arrive | None = None
    began: Placed | None = None
    place: str = ""
    since: float = 0.0
    noted: bool = False
    settled: Record | None = None
    cancelled: asyncio.CancelledError | None = None
    kept_on: bool = False
    heard: int = 0
    intends: bool = False

    @property
    def is_cancelled(self) -> bool:
        """Whether its task was, in this call; else a `CancelledError` is of something awaited. A
        task that was cancelled before may make calls, where it tidies up."""
        return cancels(self.task) > self.heard


def cancels(task: asyncio.Task[Any] | None, *, heard: bool = False) -> int:
    """How often a task was cancelled; `heard`: as far as its code has heard of it."""
    if task is None:
        return -1 if heard else 0
    to_come = heard and getattr(task, "_must_cancel", False)
    return task.cancelling() - (1 if to_come else 0)
