"""The time that a run's function sees when it asks its event loop.

It advances with the events of the function, and is the same on replay: to the time of a timer when
that goes off; and to the loop's own time if that is far ahead when the function asks, which is
recorded. Otherwise no time passes. So decisions that the function bases on it, such as on a
deadline, are the same on replay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from perdure.engine.execution.event_pacing import Pace
    from perdure.engine.journal.journal import Journal
    from perdure.errors import RunInterrupted

UNITS = 1 << 20
"""In a second. A power of two: the differences of such times are exact, and the same whenever the
loop's own clock began."""

BEHIND = UNITS // 100
"""The largest lag behind the loop's own clock, when somebody asks, without a record in the log."""

ASKED_MAX = 10_000
"""The number of questions during a replay, without any progress, after which the loop's own time is
told: an older version, which recorded none, would have waited for that."""

_NONE: Mapping[int, int] = {}


class ClockedRun(Protocol):
    """A run, as its clock knows it; see `DrivenRun`."""

    journal: Journal

    @property
    def tells_time(self) -> bool: ...

    @property
    def interrupted(self) -> RunInterrupted | None: ...

    def now(self) -> int: ...


class RunClock:
    """The clock of one execution, for its event loop; used on that loop's thread.

    Args:
        loop_time: the loop's own clock.
        note: records a time: the number of times that the function had asked since it heard of the
            last outcome, and the time after the turn's begin that it was given.
    """

    def __init__(
        self,
        execution: ClockedRun,
        pace: Pace,
        loop_time: Callable[[], float],
        note: Callable[[tuple[int, int]], None],
    ) -> None:
        self._execution, self._pace = execution, pace
        self._loop_time, self._note = loop_time, note
        self._began: int | None = None
        """By the loop's own clock, if that had gone on ever since."""
        self._told = 0
        self._after, self._asked = "", 0

    def _units(self) -> int:
        return int(self._loop_time() * UNITS)

    def _begin(self) -> int:
        """Starts the clock, when the function first asks, or sets a timer."""
        execution, since = self._execution, 0
        if began_at := execution.journal.began_at:
            since = max(execution.now() - began_at, 0) * UNITS // 1_000_000
        self._told = self._began = self._units() - since
        return self._began

    @property
    def told(self) -> float:
        """The time that was given last."""
        if self._began is None:
            self._begin()
        return self._told / UNITS

    def ask(self) -> float:
        """Returns the current time."""
        began = self._begin() if self._began is None else self._began
        if self._execution.interrupted is not None:  # nobody goes over what it does from here on
            return max(self._told, self._units()) / UNITS
        after = self._pace.handed
        if after != self._after:
            self._after, self._asked = after, 0
        self._asked += 1
        recorded = self._execution.journal.clock.get(after, _NONE)
        if self._asked in recorded:
            self._told = max(self._told, began + recorded[self._asked])
        elif self._asked > max(recorded, default=0):
            live = self._execution.tells_time
            if live or self._asked > ASKED_MAX:
                self._goes_on(began, note=live)
        return self._told / UNITS

    def note_asked(self) -> None:
        """Records the last time given: the function is left where it waits, and must not see
        another time when it gets there again."""
        began, recorded = self._began, self._execution.journal.clock.get(self._after, _NONE)
        current = self._asked and self._after == self._pace.handed
        if began is not None and current and self._asked > max(recorded, default=0):
            self._note((self._asked, max(self._told - began, 0)))

    def _goes_on(self, began: int, *, note: bool) -> None:
        now = self._units()
        if now - self._told > BEHIND:
            self._told = now
            if note:
                self._note((self._asked, now - began))

    def goes_to(self, when: float) -> None:
        """A timer of that time goes off."""
        if math.isfinite(when):
            self._told = max(self._told, math.ceil(when * UNITS))

    def by_loop(self, when: float) -> float:
        """Returns the time by the loop's own clock that is as far from now as `when` is from the
        last time given. If that was long ago, the timer is not put off for all of that."""
        behind = self._loop_time() - self.told
        return when + (min(behind, BEHIND / UNITS) if self._execution.tells_time else behind)
