"""Which runs a worker does not try again yet, and how long each waits."""

from __future__ import annotations

import time
from collections.abc import Iterator

from msgspec import Struct

AGAIN_S, AGAIN_MAX_S = 0.5, 60.0
UNAVAILABLE_MAX_S = 5.0
"""The longest pause where it was the store's fault: it may be back at any moment."""


class _Trouble(Struct):
    """Not to be tried before `until`, `pause_s` after it was last tried; `count` times in a row it
    ended without an outcome."""

    count: int = 0
    until: float = 0.0
    pause_s: float = 0.0


class Troubles:
    """See the module. For one thread."""

    def __init__(self) -> None:
        self._of: dict[str, _Trouble] = {}

    def __contains__(self, run: str) -> bool:
        return run in self._of

    def hold_off(self, run: str, seconds: float) -> None:
        """Do not pick it again at once: whatever it is, it must not become a tight loop."""
        self._of.setdefault(run, _Trouble()).until = time.monotonic() + seconds

    def holds_off(self, run: str) -> bool:
        """Whether it is not to be tried yet."""
        return run in self._of and time.monotonic() < self._of[run].until

    def count(self, run: str) -> int:
        """It ended without an outcome once more: the how manieth time in a row."""
        trouble = self._of.setdefault(run, _Trouble())
        trouble.count += 1
        return trouble.count

    def try_later(self, run: str) -> float:
        """After a pause of so many seconds, longer each time."""
        trouble = self._of[run]
        return self._pause(run, min(AGAIN_S * 2 ** (trouble.count - 1), AGAIN_MAX_S))

    def blame_the_store(self, run: str) -> float:
        """As `try_later`, where the run itself has no part in it."""
        trouble = self._of.setdefault(run, _Trouble())
        trouble.count = 0
        return self._pause(run, min(trouble.pause_s * 2 or AGAIN_S, UNAVAILABLE_MAX_S))

    def _pause(self, run: str, seconds: float) -> float:
        trouble = self._of[run]
        trouble.until, trouble.pause_s = time.monotonic() + seconds, seconds
        return seconds

    def end(self, run: str) -> None:
        """It came to something."""
        self._of.pop(run, None)

    def waits_s(self) -> Iterator[float]:
        """How long each of them waits from now."""
        now = time.monotonic()
        return (one.until - now for one in self._of.values() if one.until > now)

    def forget_old(self) -> None:
        """Those of runs that went on elsewhere; nothing may grow with the runs that there were."""
        old = time.monotonic() - 2 * AGAIN_MAX_S
        for run in [run for run, trouble in self._of.items() if trouble.until < old]:
            del self._of[run]
