"""The order of turns while a run is replayed: outcomes are released in the order of the log.

Concurrent calls returned in some order, and the function's next actions depended on it. On replay
each waits until those before it in the log were released; calls that are not recorded wait for all.
Calls of one scope are sequential anyway, and may have changed their order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count

from perdure.engine.journal.entry import TIMER, Entry
from perdure.engine.journal.journal import Journal, changed, describe
from perdure.errors import NeedsAttention
from perdure.system.locks import ReentrantLock

STALL_S = 60.0
"""The time without any progress, while a call waits for others recorded before it, after which the
run counts as doing something else than before. They may be doing something that is not recorded."""

PROVEN_S = 1.0
"""The same, where all that the run does provably waits."""


class Waiter:
    """A waiter for a turn, or for a scope to reach everything that it had recorded."""

    __slots__ = ("waits", "wake")

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake = wake
        """Called once, on any thread."""
        self.waits = True


Heap = list[tuple[int, int, Waiter]]
"""By the place in the log's order up to which others come first."""


class ReleaseOrder:
    """The turns of one execution; safe between threads.

    The cost of releasing an entry does not depend on the number of waiters: a group of tasks would
    make a replay quadratic.

    Args:
        lock: the execution's lock, which a caller that takes an entry holds anyway.
    """

    def __init__(self, journal: Journal, lock: ReentrantLock) -> None:
        self._journal = journal
        self._lock = lock
        self._released = bytearray(len(journal.order))
        self._next = 0
        self._others = 0
        """All from `_next` up to here were released, or are of the scope of `_next`; see
        `_first_of_others`."""
        self._numbers = count()
        self._waiting: Heap = []
        self._waiting_in: dict[str | None, Heap] = {}
        """The same waiters, by their scope: what is recorded there does not come before them."""
        self.watching: dict[str, list[Waiter]] = {}
        """Who is to hear of `came_to_all`, by the scope."""
        self.moves = 0
        """Grows with everything that is released."""

    def ready(
        self, entry: Entry | None, scope: str | None, wake: Callable[[], None]
    ) -> Waiter | None:
        """Returns None if it is the turn of this entry (None: of a call that is not recorded, or is
        open). If not, returns a waiter whose `wake` is called, on any thread, when it is. `scope`
        None: it waits for those of its own scope, too."""
        with self._lock:
            end = self._end(entry)
            if self._is_ready(end, scope):
                return None
            waiter = Waiter(wake)
            place = end, next(self._numbers), waiter
            heappush(self._waiting, place)
            heappush(self._waiting_in.setdefault(scope, []), place)
            return waiter

    def next_entry(self) -> Entry | None:
        """The first in the order of the log that was not released; None: all were."""
        order, place = self._journal.order, self._next
        return order[place] if place < len(order) else None

    def is_ready(self, entry: Entry | None, scope: str | None) -> bool:
        """Returns True if it is the entry's turn; see `ready`."""
        if self._next >= len(self._journal.order):
            return True  # everything was released: that stays so, and needs no lock
        with self._lock:
            return self._is_ready(self._end(entry), scope)

    def _end(self, entry: Entry | None) -> int:
        return entry.order if entry is not None and entry.order >= 0 else len(self._journal.order)

    def _is_ready(self, end: int, scope: str | None) -> bool:
        if self._next >= end:
            return True
        return self._journal.order[self._next].scope == scope and self._first_of_others() >= end

    def _first_of_others(self) -> int:
        """Returns the index of the first unreleased entry that is of another scope than the very
        first."""
        order, place = self._journal.order, max(self._others, self._next)
        if self._next < len(order):
            scope = order[self._next].scope
            # While `_next` stays before `_others` its scope does, so that each is passed once.
            # No timer is passed: it went off before what its own scope came to behind it.
            while place < len(order) and (
                self._released[place]
                or (order[place].scope == scope and order[place].kind != TIMER)
            ):
                place += 1
        self._others = place
        return place

    def begins(self, timer: Entry) -> bool:
        """Returns True if a timer that the function has set must go off as it did; it is
        consumed."""
        with self._lock:
            if timer.consumed or self._released[timer.order]:
                return False
            timer.consumed = True
            return True

    def next_unset(self) -> Entry | None:
        """Returns the next entry, if that is a timer that the function has not set."""
        first = self.next_entry()
        return first if first is not None and first.kind == TIMER and not first.consumed else None

    def pass_over_timers(self) -> bool:
        """Passes over the next timers that are not set any more, so that others continue; returns
        True if there were any."""
        passed = False
        while (first := self.next_unset()) is not None:
            first.consumed = passed = True
            self.release(first)
        return passed

    def release(self, entry: Entry) -> None:
        """Releases an entry: its outcome is being handed over."""
        with self._lock:
            woken = self.pass_on(entry)
        for waiter in woken:
            waiter.wake()

    def pass_on(self, entry: Entry) -> Sequence[Waiter]:
        """Releases an entry with the lock held, as `release` does; the caller must wake the
        returned waiters."""
        if entry.order >= 0:
            self._released[entry.order] = True
        place = self._released.find(0, self._next)
        self._next = place if place >= 0 else len(self._released)
        self.moves += 1
        return self._take_ready() if self._waiting else ()

    def _take_ready(self) -> list[Waiter]:
        woken = _take(self._waiting, self._next)
        order = self._journal.order
        if self._next < len(order):
            scope = order[self._next].scope
            of_scope = self._waiting_in.get(scope)
            if of_scope:
                woken += _take(of_scope, self._first_of_others())
            if not of_scope:
                self._waiting_in.pop(scope, None)
        return woken

    def wake_all(self) -> None:
        """The run is interrupted: let everybody look."""
        with self._lock:
            waiters = [waiter for _, _, waiter in self._waiting]
            waiters += [waiter for watching in self.watching.values() for waiter in watching]
            self._waiting, self._waiting_in, self.watching = [], {}, {}
        for waiter in waiters:
            if waiter.waits:
                waiter.waits = False
                waiter.wake()

    def watch(self, scope: str, wake: Callable[[], None]) -> Waiter:
        """Returns a waiter whose `wake` is called, on any thread, when a scope has reached all that
        it had recorded; see `came_to_all`."""
        waiter = Waiter(wake)
        with self._lock:
            self.watching.setdefault(scope, []).append(waiter)
        return waiter

    def came_to_all(self, scope: str) -> None:
        """A scope has come to all that it had recorded: who had to let that pass goes on."""
        with self._lock:
            watching = self.watching.pop(scope, ())
        for waiter in watching:
            if waiter.waits:
                waiter.waits = False
                waiter.wake()

    def forget(self, waiter: Waiter) -> None:
        """Forgets a waiter that does not wait any more."""
        waiter.waits = False  # it is dropped when its turn has come

    def stalled(self, name: str) -> NeedsAttention:
        """Returns the error for when nothing moved for `STALL_S`."""
        left = self._journal.left.first()
        what = describe(left) if left is not None else "something else"
        return changed(
            f"{name} waits for {what}, which is recorded before it and which nothing comes to",
            self._journal.run,
        )


def _take(heap: Heap, place: int) -> list[Waiter]:
    """Returns the waiters whose turn it is once everything before a place was released."""
    woken = []
    while heap and heap[0][0] <= place:
        waiter = heappop(heap)[2]
        if waiter.waits:
            waiter.waits = False
            woken.append(waiter)
    return woken
