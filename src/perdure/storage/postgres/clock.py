"""The database's clock, without asking it each time.

The server's time is kept with the moment, on this machine's steady clock, at which it was read:
half a round trip after the question. The best recent measure counts, the one with the shortest
round trip. So `now` is off by at most half of that round trip, plus what the two clocks drift apart
until the next measure: some milliseconds a minute on the worst of machines. Every new connection
and every heartbeat measures, and a read when the last measure is old, as in a program that only
edits. A machine that slept, or whose time was set, shows that by its two clocks: the steady one may
have stood still meanwhile.

Only the times in headers and messages come from it. Times that decide, like an executor's, are
compared by the server, with its own clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from perdure.system.locks import Lock

OLD_S = 60.0
"""A measure that is older gives way to any newer one."""

SLEPT_S = 0.5
"""A difference between this machine's clocks, since the last measure, that shows that it is old."""


class StoreClock:
    """See the module."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._offset_us = 0
        self._trip_s = float("inf")
        self._at_s = 0.0
        self._ahead_s = 0.0
        """This machine's time less its steady clock, at the last measure."""

    def renew(self) -> None:
        """Resets itself in a forked child: somebody may have held the lock."""
        self._lock = Lock()

    @property
    def is_old(self) -> bool:
        """True if a measure is due."""
        now = time.monotonic()
        return now - self._at_s > OLD_S or abs(time.time() - now - self._ahead_s) > SLEPT_S

    def measure(self, ask: Callable[[], int]) -> None:
        """Takes a measure. `ask` makes a round trip and returns the server's time in
        microseconds."""
        begun = time.monotonic()
        server_us = ask()
        ended = time.monotonic()
        trip = ended - begun
        with self._lock:
            if trip <= self._trip_s or self.is_old:
                self._offset_us = server_us - round((begun + ended) * 500_000)
                self._trip_s, self._at_s, self._ahead_s = trip, ended, time.time() - ended

    def forget(self) -> None:
        """Forgets the measures, because another server may answer from now on."""
        with self._lock:
            self._trip_s = float("inf")

    def now(self) -> int:
        """Returns microseconds since 1970."""
        return round(time.monotonic() * 1_000_000) + self._offset_us
