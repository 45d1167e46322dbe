"""An event loop in which time passes while nothing else is to do, and not otherwise: a machine that
is busy does not let a timeout pass while it is being set. Or, where chance is given, also whenever
somebody looks at the clock: as if the machine was busy now and then."""

from __future__ import annotations

import asyncio
import random
import selectors
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

HELD_UP_S = 0.01
"""How long at most."""

NEWS_S = 0.0003
"""For how long threads may have news, by the real clock, before it is later."""


BUSY_MAX = 3000
"""How many rounds it may be busy, until some time passes all the same: whoever does something in
each of them waits for that."""


class _Selector(selectors.DefaultSelector):
    loop: Loop
    busy = 0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None or timeout <= 0:
            self.busy += 1
            if self.busy > BUSY_MAX:
                self.loop.now_s += NEWS_S
            return super().select(timeout)
        self.busy = 0
        events = super().select(min(timeout, NEWS_S))
        if not events:
            self.loop.now_s += timeout
        return events


class Loop(asyncio.SelectorEventLoop):
    """See the module.

    Args:
        chance: how often, and for how long, it is held up.
    """

    tasks: Any = None
    """The task factory of those that are made."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self.now_s = 0.0
        self._chance = chance
        self._often = 0.0 if chance is None else chance.choice((0.0, 0.01, 0.05, 0.2))
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)
        self.set_task_factory(self.tasks)
        alive.add(self)

    def time(self) -> float:
        if self._often and self._chance is not None and self._chance.random() < self._often:
            self.hold_up()
        return self.now_s

    def hold_up(self) -> None:
        """Let some time pass, in which it does nothing."""
        if self._chance is not None:
            self.now_s += HELD_UP_S * self._chance.random() ** 2


alive: weakref.WeakSet[Loop] = weakref.WeakSet()
"""Those that were made; for who looks why one hangs."""


class _Policy(asyncio.DefaultEventLoopPolicy):
    def __init__(self, chance: random.Random | None) -> None:
        super().__init__()
        self._chance = chance

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return Loop(self._chance)


@contextmanager
def own_time(chance: random.Random | None = None) -> Iterator[None]:
    """Loops that are made meanwhile have a time of their own."""
    before = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(_Policy(chance))
    try:
        yield
    finally:
        asyncio.set_event_loop_policy(before)
