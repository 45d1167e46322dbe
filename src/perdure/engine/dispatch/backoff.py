"""The runs that a worker does not try again yet, with their waiting times."""

from __future__ import annotations

import time
from collections.abc import Iterator

from msgspec import Struct

AGAIN_S, AGAIN_MAX_S = 0.5, 60.0
UNAVAILABLE_MAX_S = 5.0
"""The longest pause where it was the store's fault: it may be back at any moment."""


class _Trouble(Struct):
    """A run that is not tried before `until`, `pause_s` after its last attempt; it ended `count`
    times in a row without an outcome. `said`: what of it was said last."""

    count: int = 0
    until: float = 0.0
    pause_s: float = 0.0
    said: str = ""


class Troubles:
    """See the module. For one thread."""

    def __init__(self) -> None:
        self._of: dict[str, _Trouble] = {}

    def __contains__(self, run: str) -> bool:
        return run in self._of

    def hold_off(self, run: str, seconds: float) -> None:
        """Keeps a run from being picked again at once: whatever its trouble, it must not become a
        tight loop."""
        self._of.setdefault(run, _Trouble()).until = time.monotonic() + seconds

    def holds_off(self, run: str) -> bool:
        """Returns True if a run must not be tried yet."""
        return run in self._of and time.monotonic() < self._of[run].until

    def count(self, run: str) -> int:
        """Counts one more end without an outcome; returns how many times in a row."""
        trouble = self._of.setdefault(run, _Trouble())
        trouble.count += 1
        return trouble.count

    def try_later(self, run: str) -> float:
        """Lets a run be tried after a pause, longer each time; returns the seconds."""
        trouble = self._of[run]
        return self._pause(run, min(AGAIN_S * 2 ** (trouble.count - 1), AGAIN_MAX_S))

    def blame_the_store(self, run: str) -> float:
        """Lets a run be tried later, as `try_later` does, if the trouble is not the run's own."""
        trouble = self._of.setdefault(run, _Trouble())
        trouble.count = 0
        return self._pause(run, min(trouble.pause_s * 2 or AGAIN_S, UNAVAILABLE_MAX_S))

    def is_news(self, run: str, problem: str) -> bool:
        """Notes what the trouble is; returns True if it was another one before, or none."""
        trouble = self._of[run]
        was, trouble.said = trouble.said, problem
        return was != problem

    def _pause(self, run: str, seconds: float) -> float:
        trouble = self._of[run]
        trouble.until, trouble.pause_s = time.monotonic() + seconds, seconds
        return seconds

    def end(self, run: str) -> None:
        """Notes that a run had an outcome."""
        self._of.pop(run, None)

    def waits_s(self) -> Iterator[float]:
        """Yields the remaining waiting time of each of them."""
        now = time.monotonic()
        return (one.until - now for one in self._of.values() if one.until > now)

    def forget_old(self) -> None:
        """Forgets the runs that continued elsewhere; nothing may grow with the number of past
        runs."""
        old = time.monotonic() - 2 * AGAIN_MAX_S
        for run in [run for run, trouble in self._of.items() if trouble.until < old]:
            del self._of[run]
