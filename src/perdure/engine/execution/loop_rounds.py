"""One round of an event loop, for a call that must let others run first."""

from __future__ import annotations

import asyncio


async def take_cancellation() -> None:
    """Takes the cancellation that a call had caught: if it was requested before the call was made,
    it would strike behind it on replay, where nothing is awaited that would hear of it."""
    if getattr(asyncio.current_task(), "_must_cancel", False):
        await tick()


async def tick() -> asyncio.CancelledError | None:
    """Lets the event loop go round once; returns the cancellation of this task in the meantime, if
    any."""
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError as cancelled:
        return cancelled
    return None
