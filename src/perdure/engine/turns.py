"""Whose turn it is, while a run goes over what is recorded: outcomes are released in log order.

Calls that ran side by side came back in some order, and what the function did next followed from
it. On replay each waits until those before it in the log were released; what is not recorded waits
for all. Calls of one scope come one after the other anyway, and may have changed their order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from perdure.engine.journal import Entry, Journal, changed, describe
from perdure.errors import NeedsAttention

STALL_S = 60.0
"""How long nothing may move, while a call waits for others that are recorded before it, until the
run is taken to do something else than it did. They may be doing something that is not recorded."""

PROVEN_S = 1.0
"""The same, where all that the run does provably waits."""


class Turns:
    """See the module. One per execution; safe between threads."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = threading.Lock()
        self._released: set[int] = set()
        self._next = 0
        self._waiters: list[tuple[Entry | None, str, Callable[[], None]]] = []
        self._watchers: list[Callable[[], None]] = []
        self.moves = 0
        """Grows with everything that is released."""

    def ready(self, entry: Entry | None, scope: str, wake: Callable[[], None]) -> bool:
        """Whether it is this one's turn (`entry` None: of something that is not recorded, or is
        open). If not, `wake` is called, on any thread, when that may have changed."""
        with self._lock:
            if self._is_ready(entry, scope):
                return True
            self._waiters.append((entry, scope, wake))
            return False

    @property
    def next_entry(self) -> Entry | None:
        """The first in the order of the log that was not released; None: all were."""
        order, place = self._journal.order, self._next
        return order[place] if place < len(order) else None

    def is_ready(self, entry: Entry | None, scope: str) -> bool:
        """Whether it is this one's turn."""
        if self._next >= len(self._journal.order):
            return True  # everything was released: that stays so, and needs no lock
        with self._lock:
            return self._is_ready(entry, scope)

    def _is_ready(self, entry: Entry | None, scope: str) -> bool:
        order = self._journal.order
        end = entry.order if entry is not None and entry.order >= 0 else len(order)
        if self._next >= end:
            return True
        return all(
            order[place].scope == scope or place in self._released
            for place in range(self._next, end)
        )

    def release(self, entry: Entry) -> None:
        """Its outcome is being handed over."""
        with self._lock:
            if entry.order == self._next:
                self._next += 1
            elif entry.order >= 0:
                self._released.add(entry.order)
            while self._next in self._released:
                self._released.discard(self._next)
                self._next += 1
            self.moves += 1
            woken = self._take_ready() + self._watchers
            self._watchers = []
        for wake in woken:
            wake()

    def _take_ready(self) -> list[Callable[[], None]]:
        if not self._waiters:
            return []
        ready = [waiter for waiter in self._waiters if self._is_ready(waiter[0], waiter[1])]
        self._waiters = [waiter for waiter in self._waiters if waiter not in ready]
        return [wake for _, _, wake in ready]

    def wake_all(self) -> None:
        """The run is interrupted: let everybody look."""
        with self._lock:
            waiters, self._waiters = self._waiters, []
            watchers, self._watchers = self._watchers, []
        for wake in [*(wake for _, _, wake in waiters), *watchers]:
            wake()

    def watch(self, wake: Callable[[], None]) -> None:
        """Call this, on any thread, when something is released next."""
        with self._lock:
            self._watchers.append(wake)

    def forget(self, wake: Callable[[], None]) -> None:
        """Somebody does not wait any more."""
        with self._lock:
            self._waiters = [waiter for waiter in self._waiters if waiter[2] != wake]

    def stalled(self, name: str) -> NeedsAttention:
        """What to say when nothing moved for `STALL_S`."""
        left = self._journal.next_left()
        what = describe(left) if left is not None else "something else"
        return changed(
            f"{name} waits for {what}, which is recorded before it and which nothing comes to",
            self._journal.run,
        )
