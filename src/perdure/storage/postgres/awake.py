"""Threads that busy-wait for an answer, instead of sleeping until it is there.

An idle processor goes to sleep, and a thread that is woken on it comes back late, with cold caches:
with a near server, that is a sixth of a step's time. So a thread that makes one commit right behind
the other polls for the answer, and yields the processor after each look. That costs processor time,
so only those do it that gain by it: not threads that take turns or commit for an event loop, which
need Python's lock meanwhile, not commits with work between them, and not where answers take longer:
over a long distance, from a slow disk, on a busy machine (decision 0028).
"""

from __future__ import annotations

import os
import select
import threading
import time


class Haste:
    """Detects commits of one store, in this process, that follow each other at once.

    Args:
        awake_s: the longest busy wait. Longer pauses between two commits, or longer answers, are
            not "at once". 0: never.
    """

    def __init__(self, awake_s: float) -> None:
        self._awake_s = awake_s
        self._thread = 0
        self._began = 0.0
        self._soon_until = 0.0

    def began(self) -> float:
        """Notes that a commit goes out; returns the seconds to busy-wait for its answer at most."""
        before, self._thread = self._thread, threading.get_ident()
        self._began = time.monotonic()
        again = before == self._thread and self._began < self._soon_until
        return self._awake_s if again else 0.0

    def answered(self) -> None:
        """Notes that its answer is here."""
        now = time.monotonic()
        soon = now - self._began < self._awake_s
        self._soon_until = now + self._awake_s if soon else 0.0


def came_soon(incoming: select.poll, awake_s: float) -> bool:
    """Busy-waits until there is something to read, at most this long; returns False if there is
    not."""
    look, until = incoming.poll, time.monotonic() + awake_s
    while not look(0):
        os.sched_yield()
        if time.monotonic() > until:
            return False
    return True
