"""Who waits awake for an answer, instead of sleeping until it is there.

A processor that has nothing to do goes to sleep itself, and who is woken on it comes back late,
with cold caches: beside a server that is near, that is a sixth of a step's time. So a thread that
makes one commit right behind the other looks for the answer again and again, and after each look
gives the processor to whoever else wants it. That takes more of the processor, and so is for those
alone who gain by it: not for threads that take turns or bring commits for an event loop, which need
Python's lock meanwhile, not for commits with work between them, and not where answers take longer:
over a long way, from a slow disk, on a busy machine (decision 0028).
"""

from __future__ import annotations

import os
import select
import threading
import time


class Haste:
    """Whether the commits of one store, in this process, follow each other at once.

    Args:
        awake_s: how long at most to wait awake. What takes longer, between two commits or for an
            answer, is not at once. 0: never.
    """

    def __init__(self, awake_s: float) -> None:
        self._awake_s = awake_s
        self._thread = 0
        self._began = 0.0
        self._soon_until = 0.0

    def began(self) -> float:
        """A commit is going out: for how many seconds at most to wait awake for its answer."""
        before, self._thread = self._thread, threading.get_ident()
        self._began = time.monotonic()
        again = before == self._thread and self._began < self._soon_until
        return self._awake_s if again else 0.0

    def answered(self) -> None:
        """Its answer is here."""
        now = time.monotonic()
        soon = now - self._began < self._awake_s
        self._soon_until = now + self._awake_s if soon else 0.0


def came_soon(incoming: select.poll, awake_s: float) -> bool:
    """Wait awake, for so long at most, until there is something to read; False: there is not."""
    look, until = incoming.poll, time.monotonic() + awake_s
    while not look(0):
        os.sched_yield()
        if time.monotonic() > until:
            return False
    return True
