"""The timers that a run's code set in its event loop: while there are any, it does not only wait.

asyncio's own loops show theirs. Those of others, as uvloop, do not: there the loop's `call_later`
is taken in hand, as is its task factory.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, cast

from perdure.engine.current import Frame, current, current_in


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


def note_timers(loop: asyncio.AbstractEventLoop) -> None:
    """See the module; as often as anybody likes. A loop that shows its timers is left as it is."""
    if scheduled_in(loop) is not None or hasattr(loop.call_later, "noted"):
        return
    noted = _Noted()
    call_later, call_at = (_noting(make, noted) for make in (loop.call_later, loop.call_at))
    call_later.noted = noted
    with suppress(AttributeError):  # else nothing is known of its timers
        cast(Any, loop).call_at = call_at
        cast(Any, loop).call_later = call_later


def _noting(make: Callable[..., asyncio.TimerHandle], noted: _Noted) -> Any:
    def noting(
        when: float, callback: Callable[..., Any], *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:  # fmt: skip
        run = _run_in(context) if context is not None else _run_of(current())
        if run is None:
            return make(when, callback, *args, context=context)

        def call() -> None:
            noted.remove(timer)
            callback(*args)

        timer = make(when, call, context=context)
        noted.add(timer, run)
        return timer

    return noting


def scheduled_in(loop: asyncio.AbstractEventLoop) -> Iterable[asyncio.TimerHandle] | None:
    """The timers of a loop; None: it does not show them."""
    return getattr(loop, "_scheduled", None)


def _run_in(context: contextvars.Context | None) -> Any:
    return _run_of(current_in(context)) if context is not None else None


def _run_of(frame: Frame | None) -> Any:
    return frame.run if frame is not None else None
