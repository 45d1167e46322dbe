"""Waiting on, where one is cancelled already and hears of that later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class Told:
    """The latest cancellation that a task was told of, where it hears of several later, as of one.
    Whoever caused that knows it by its message, as scopes of anyio's do.

    Attributes:
        several: they did not all say the same.
    """

    __slots__ = ("error", "first", "several")

    def __init__(self, error: asyncio.CancelledError) -> None:
        self.error = self.first = error
        self.several = False

    def again(self, error: asyncio.CancelledError) -> None:
        """It was cancelled once more."""
        self.several = self.several or not _say_the_same(error.args, self.error.args)
        self.error = error


def _say_the_same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return len(one) == len(other) and all(
        first is second or (type(first) is type(second) is str and first == second)
        for first, second in zip(one, other, strict=True)
    )


class Deaf(asyncio.Future[None]):
    """What a task waits for that was cancelled, and is so once this is done: cancelled once more,
    it is not woken. A scope of anyio's does that in each round of the loop until it has left.

    Args:
        told: what it was told, and is meanwhile; None: it was no cancellation that made it so.
        goes_on: whether that is so still; else it is cancelled like any other.
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
