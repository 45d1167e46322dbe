"""Bounds of a wait for a run from outside: how long it lasts, and what ends it."""

from __future__ import annotations

import time
from datetime import timedelta

from perdure.core.arguments.checks import flag, seconds
from perdure.errors import TimedOut
from perdure.model import FINISHED, RunInfo


def has_result(info: RunInfo) -> bool:
    """Returns True if a run has ended, or needs a person: nobody waits for it."""
    return info.status in FINISHED or info.status == "needs_attention"


def wait_until(wait: bool, timeout: timedelta | float | None, name: str = "wait") -> float | None:
    """Returns the end of a wait, as `time.monotonic` counts; None for none. `name`: of the argument
    that says whether a call waits.

    Raises:
        ValueError: there is a timeout, and no wait. TypeError: one of them is of a wrong type.
    """
    waits = flag(wait, f"{name}=")
    if timeout is None:
        return None
    if not waits:
        raise ValueError(f"timeout= is for {name}=True: without, this does not wait")
    return time.monotonic() + seconds(timeout, "timeout=")


def unfinished(info: RunInfo) -> TimedOut:
    """Returns the error for who has waited long enough for a run."""
    return TimedOut(f"is {info.status} still", target=f"run {info.id}")
