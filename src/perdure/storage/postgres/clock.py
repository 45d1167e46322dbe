"""The database's clock, without asking it each time.

What the server said is kept with the moment, on this machine's steady clock, at which it said it:
half a round trip after the question. The best of the latest measures counts, the one with the
shortest round trip. So `now` is off by at most half of that round trip, plus what the two clocks
drift apart until the next measure: some milliseconds a minute on the worst of machines. Every new
connection and every heartbeat measures.

Nothing but the times in headers and messages goes by it. What decides, as an executor's time, is
compared by the server, with its own clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from perdure.system.locks import Lock

OLD_S = 60.0
"""A measure that is older gives way to any newer one."""


class StoreClock:
    """See the module."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._offset_us = 0
        self._trip_s = float("inf")
        self._at_s = 0.0

    def renew(self) -> None:
        """In a forked child: somebody may have held the lock."""
        self._lock = Lock()

    def measure(self, ask: Callable[[], int]) -> None:
        """Take a measure. `ask` makes a round trip and gives the server's time in microseconds."""
        begun = time.monotonic()
        server_us = ask()
        ended = time.monotonic()
        trip = ended - begun
        with self._lock:
            if trip <= self._trip_s or ended - self._at_s > OLD_S:
                self._offset_us = server_us - round((begun + ended) * 500_000)
                self._trip_s, self._at_s = trip, ended

    def forget(self) -> None:
        """Another server may answer from now on: the next measure counts, however long it took."""
        with self._lock:
            self._trip_s = float("inf")

    def now(self) -> int:
        """Microseconds since 1970."""
        return round(time.monotonic() * 1_000_000) + self._offset_us
