"""An event loop in which time passes while nothing else is to do, and not otherwise: a machine that
is busy does not let a timeout pass while it is being set."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

NEWS_S = 0.0003
"""For how long threads may have news, by the real clock, before it is later."""


class _Selector(selectors.DefaultSelector):
    loop: Loop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        events = super().select(min(timeout, NEWS_S))
        if not events:
            self.loop.now_s += timeout
        return events


class Loop(asyncio.SelectorEventLoop):
    """See the module."""

    def __init__(self) -> None:
        self.now_s = 0.0
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now_s


class _Policy(asyncio.DefaultEventLoopPolicy):
    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return Loop()


@contextmanager
def own_time() -> Iterator[None]:
    """Loops that are made meanwhile have a time of their own."""
    before = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(_Policy())
    try:
        yield
    finally:
        asyncio.set_event_loop_policy(before)
