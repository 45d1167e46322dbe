"""Waiting that continues after a cancellation, which the task hears of later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class Told:
    """The latest of several cancellations that a task hears of later, as one. Their causes
    recognise them by their messages, as scopes of anyio do.

    Attributes:
        several: True if their messages differ.
    """

    __slots__ = ("error", "first", "several")

    def __init__(self, error: asyncio.CancelledError) -> None:
        self.error = self.first = error
        self.several = False

    def again(self, error: asyncio.CancelledError) -> None:
        """Notes another cancellation."""
        self.several = self.several or not _say_the_same(error.args, self.error.args)
        self.error = error


def _say_the_same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return len(one) == len(other) and all(
        first is second or (type(first) is type(second) is str and first == second)
        for first, second in zip(one, other, strict=True)
    )


class Deaf(asyncio.Future[None]):
    """A future for a task that was cancelled and hears of it once this is done: another
    cancellation does not wake the task. A scope of anyio cancels in each round of the loop until it
    has left.

    Args:
        told: the cancellations that it hears of; None if the cause was another exception.
        goes_on: returns True while that is so; otherwise the task is cancelled like any other.
    """

    def __init__(
        self,
        told: Told | None,
        goes_on: Callable[[], bool] = lambda: True,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(loop=loop)
        self._told, self._goes_on = told, goes_on

    @property
    def is_deaf(self) -> bool:
        return not self.done() and self._goes_on()

    def cancel(self, msg: Any | None = None) -> bool:
        if not self.is_deaf:
            return super().cancel(msg)
        if self._told is not None:
            self._told.again(asyncio.CancelledError(*(() if msg is None else (msg,))))
        return True
