"""The pace of events in a run's function: one after the other, each after the function has dealt
with the one before.

An event is an outcome that is handed over, or a timer of the function's that goes off. What a task
does next often takes a few rounds of the loop: it ends, its group hears of that, code that waits
for the first of several continues. If a second outcome, or a timeout, came in between, then which
of them the function heard of first would depend on how many rounds each takes, and be different
live and on replay. So each waits until nothing of the function is left for the loop to do. Outcomes
come in the order of the log, from the moment when they are in it.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from time import monotonic

from perdure.state.event_loop.polling import LOST_S, Ticker

ROUNDS = 12
"""The number of rounds waited in a loop that does not show its next callbacks, like uvloop."""

ROUNDS_MAX = 1000
"""The most rounds in other loops: a function may be busy for ever."""


class PacedEvent:
    """One event of a function.

    Attributes:
        place: the place of the outcome, after which a timer that goes off next is placed; empty if
            it is not an outcome.
        call: hands it over; returns False if there is no taker any more. None: its taker has not
            come for it yet.
        shows: seq of the commit whose state the function sees from then on; 0 for no change.
        came: it has its place among the events.
        heard: it is an outcome that a thread hears of by itself; it is not taken here.
    """

    __slots__ = ("call", "came", "heard", "over", "place", "scope", "shows")

    def __init__(
        self, scope: str, place: str, call: Callable[[], bool] | None = None, shows: int = 0
    ) -> None:
        self.scope = scope
        self.place = place
        self.call = call
        self.shows = shows
        self.came = self.over = self.heard = False


class Pace:
    """The order of events of one execution, for its event loop.

    Args:
        due: returns True if the loop is about to continue the function; None if the loop does not
            show that.
        show: called with what an event shows, before its taker hears of it.
    """

    def __init__(
        self, due: Callable[[], bool | None], show: Callable[[int], None] = lambda seq: None
    ) -> None:
        self.handed = ""
        """The place of the outcome that was handed over last."""
        self._due, self._show = due, show
        self._events: deque[PacedEvent] = deque()
        self._last = ""
        self._left = ROUNDS_MAX
        self._rounds = self._seen = 0
        self._stuck: PacedEvent | None = None
        self._stuck_at = 0.0
        self._next: asyncio.Handle | None = None
        self._ticker = Ticker(self._look)

    def comes(self, event: PacedEvent) -> None:
        """Adds an event after those that have come, from any thread. Its taker must call `turn`, or
        `drop` it."""
        self._events.append(event)
        event.came = True

    async def turn(self, event: PacedEvent, turn: asyncio.Future[None] | None = None) -> None:
        """Waits until it is the turn of an event, and takes it.

        Args:
            turn: the future to wait for; default: a new one.
        """
        loop = asyncio.get_running_loop()
        event.call = None  # who waited for it before was cancelled
        if not event.came:  # an exception came in where its commit was told of
            self.comes(event)
        first = self._events[0]
        if (first is event or self._first() is event) and self._is_quiet(event.scope):
            self._hand(event)
            return
        comes = loop.create_future() if turn is None else turn
        event.call = lambda: _wake(comes)
        self._go_round(loop)
        await comes

    def offer(self, event: PacedEvent, *, here: bool = False) -> None:
        """Adds an event, whose `call` takes it. Called in the loop.

        Args:
            here: `call` may run before this returns.
        """
        self.comes(event)
        if here and self._first() is event and self._is_quiet():
            self._hand(event)
        else:
            self._go_round(asyncio.get_running_loop())

    def passes(self, place: str) -> None:
        """Adds an outcome that a thread hears of by itself, from any thread. A timer behind the
        latest outcome must not be placed before an earlier one."""
        events = self._events
        if not events or (len(events) == 1 and events[0].over):
            self.handed = place
            return
        event = PacedEvent("", place)
        event.heard = True
        events.append(event)

    def drop(self, event: PacedEvent) -> None:
        """Drops an event: it has no taker any more."""
        event.over = True

    @property
    def has_waiting(self) -> bool:
        """True if there are events that the function has not heard of."""
        return self._first() is not None

    def is_idle(self) -> bool:
        """Returns True if nothing is on its way to the function, and it has dealt with all that
        came."""
        return self._first() is None and self._is_quiet()

    def _first(self) -> PacedEvent | None:
        while self._events:
            event = self._events[0]
            if event.heard:
                self.handed = event.place
            elif not event.over:
                return event
            self._events.popleft()
        return None

    def _is_quiet(self, scope: str | None = None) -> bool:
        """Returns True if the function has dealt with the last event. `scope`: one task's actions
        are sequential anyway."""
        due = self._due()
        if due is None:
            self._left = min(self._left, ROUNDS)
            return self._left <= 0 or scope == self._last
        return not due or self._left <= 0

    def _hand(self, event: PacedEvent) -> bool:
        before = self.handed
        if event.place:
            self.handed = event.place
        if event.shows:
            self._show(event.shows)
        taken = event.call is None or event.call()
        event.over = True  # behind it: it is taken once, however often it is called
        if self._events[0] is event:
            self._events.popleft()
        if not taken:
            self.handed = before
            return False
        self._last, self._left = event.scope, ROUNDS_MAX
        return True

    def _go_round(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._next is None:
            nowhere = contextvars.Context()  # it is nothing that the function does
            self._next = loop.call_soon(self._round, loop, context=nowhere)
            self._ticker.begin(loop)

    def _round(self, loop: asyncio.AbstractEventLoop) -> None:
        self._next = None
        self._rounds += 1
        event = self._first()
        self._left -= 1
        try:
            while event is not None and event.call is not None and self._is_quiet():
                taken = self._hand(event)
                event = self._first()
                if taken:  # the function has something to do now
                    break
        finally:
            if event is not None:
                self._go_round(loop)

    def _look(self) -> bool:
        """Returns True if any event waits. Makes up for a lost round; and passes over an event
        whose taker does not come, because its task was thrown away."""
        first, now = self._first(), monotonic()
        if first is None or first.call is not None or first is not self._stuck:
            self._stuck, self._stuck_at = first, now
        elif now - self._stuck_at > LOST_S and not self._due():
            self.drop(first)
        if first is not None and self._rounds == self._seen:
            if self._next is not None:
                self._next.cancel()
                self._next = None
            self._go_round(asyncio.get_running_loop())
        self._seen = self._rounds
        return first is not None


def _wake(turn: asyncio.Future[None]) -> bool:
    if turn.done():  # its task was cancelled
        return False
    turn.set_result(None)
    return True
