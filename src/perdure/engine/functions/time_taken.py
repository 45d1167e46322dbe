"""The time that a run has taken of its time limit: while somebody executed it, and while it waited.

Not counted is what is nobody's work: before it begins; between what it waited for and the moment at
which somebody resumes it; after a crash, from its last commit to the next executor; and while it
needs a person. All of this follows from the times of the log's commits, but for the arrival of what
it waited for: that is noted, as a sum, by the commit that resumes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Literal

from msgspec import UNSET, Struct

from perdure.core.format.records import (
    Record,
    Resumed,
    SetBack,
    Started,
    Stopped,
    Turn,
    Waiting,
)
from perdure.model import Commit, Message


class TimeTaken(Struct):
    """The time that one run has taken, computed from the commits of its turn, which are fed in
    order. Moments and durations are in microseconds.

    Attributes:
        spent: what it had taken at the moment `at`.
        mode: since then it is executed, or it waits, or its time stands still.
    """

    run: str
    spent: int = 0
    at: int = 0
    mode: Literal["executed", "waits", "stands"] = "stands"
    _last: int = 0
    _due: int = 0

    def note(self, commit: Commit) -> None:
        """Takes in the next commit."""
        if commit.epoch and commit.cause.run == self.run:  # of an executor that had the run
            self._last = whole_ms(commit.at_micros)
        for record in commit.typed:
            if record.run == self.run:
                self._note(commit, record)

    def _note(self, commit: Commit, record: Record) -> None:
        at = whole_ms(commit.at_micros)
        match record:
            case Started():
                self._goes_on(at, 0, stands=bool(record.pending))
            case SetBack():
                self._goes_on(at, 0, stands=True)
            case Turn():
                self._goes_on(at, record.spent)
            case Resumed() if record.spent is not UNSET:
                self._goes_on(at, record.spent)
            case Waiting():
                self.spent, self.at, self.mode = self.until(at), at, "waits"
                self._due = record.wake_at or 0
            case Stopped() if self.mode == "waits" and not commit.epoch:
                # Who noted it had no lease. What it waits for may have come before that.
                self._due = earlier(self._due, at)
            case Stopped():
                # Without the lease, it may be long after a crash.
                self.spent = self.until(at if commit.epoch else self._last)
                self.at, self.mode = at, "stands"

    def _goes_on(self, at: int, spent: int, *, stands: bool = False) -> None:
        self.spent, self.at, self.mode = spent, at, "stands" if stands else "executed"

    def until(self, now: int) -> int:
        """Returns what it has taken by now, if nothing stopped it since its last commit."""
        return self.spent if self.mode == "stands" else self.spent + max(now - self.at, 0)

    def when_resumed(self, now: int, inbox: Iterable[Message], seen: int = 0) -> int:
        """Returns what it has taken where an executor finds it.

        Args:
            inbox: what it has not taken out; `seen`: the last that it had looked at.
        """
        if self.mode == "executed":  # its executor died; when, only its last commit tells
            return self.until(self._last)
        came = [one.at_micros for one in inbox if one.no > seen or one.kind == "cancel"]
        return self.until(earlier(whole_ms(min([now, *came])), self._due))


def whole_ms(at: int) -> int:
    """Returns a moment without its microseconds: the log's time runs ahead of a clock that stands,
    by one for each commit."""
    return at // 1000 * 1000


def earlier(one: int, other: int) -> int:
    """Returns the earlier of two moments, of which 0 is never."""
    return min(filter(None, (one, other)), default=0)


def in_words(limit: int) -> str:
    """Returns why a run ends that has taken its time limit, in microseconds."""
    return f"it has taken its time limit of {timedelta(microseconds=limit)}"
