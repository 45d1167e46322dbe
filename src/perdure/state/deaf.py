"""Waiting on, where one is cancelled already and hears of that later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class Deaf(asyncio.Future[None]):
    """What a task waits for that was cancelled, and is so once this is done: cancelled once more,
    it is not woken. A scope of anyio's does that in each round of the loop until it has left.

    Args:
        goes_on: whether that is so still; else it is cancelled like any other.
    """

    def __init__(
        self, goes_on: Callable[[], bool] = lambda: True, *,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:  # fmt: skip
        super().__init__(loop=loop)
        self._goes_on = goes_on

    @property
    def is_deaf(self) -> bool:
        return not self.done() and self._goes_on()

    def cancel(self, msg: Any | None = None) -> bool:
        return True if self.is_deaf else super().cancel(msg)
