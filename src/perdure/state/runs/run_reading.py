"""The records of runs, read one after the other: which call each is of, by what a wait ended, and
which signals a run used.

A record names its place, and what stands there may have begun many commits before. Whoever reads a
log for more than one run's turn reads it by this; the journal of a turn has its own entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct

from perdure.core.format.records import (
    Cancelled,
    Finished,
    Intent,
    Record,
    RunCancelled,
    WaitBegan,
    WaitBranch,
    WaitEnded,
)
from perdure.core.values.plain_values import Plain

BEGINS_ANEW = ("run-turn", "run-retried")
"""The kinds of records with which a run counts its calls from the start: its next turn began, or it
was set back."""


class RecordedCalls:
    """The calls of runs whose keys are permanent, tool calls and starts of runs, by their places.
    A place may have several, one after the other: it was set back to, and made again."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], str] = {}

    def key_of(self, record: Record) -> str:
        """Returns the key of the call that a record is of: an idempotency key, or the id of the
        started run. Empty: it is of none. To be asked about each record, in the log's order."""
        place = record.run, record.place
        if key := begun_key(record):
            self._last[place] = key
        elif record.t == "outcome" and record.key is not None:
            return str(record.key)  # it may have been made in a history that was left
        return key or self._last.get(place, "")


def begun_key(record: Record) -> str:
    """Returns the key of a call that this record begins; empty for other records."""
    if isinstance(record, Intent):
        return record.key
    return record.child.run if record.child is not None else ""


class RecordedWaits:
    """The waits of runs, by their runs and places.

    Attributes:
        open: those that have not ended.
    """

    def __init__(self) -> None:
        self._began: dict[tuple[str, str], WaitBegan] = {}
        self.open: dict[tuple[str, str], WaitBegan] = {}

    def note(self, record: Record) -> None:
        """Notes a record; each has to be, in the log's order."""
        if isinstance(record, WaitBegan):
            place = record.run, record.place
            self._began[place] = self.open[place] = record
        elif record.t == "wait-ended":
            self.open.pop((record.run, record.place), None)

    def branch_of(self, ended: WaitEnded) -> WaitBranch | None:
        """Returns the event that a wait ended with, or that was refused there; None if it is not
        known."""
        return branch_of(self._began.get((ended.run, ended.place)), ended)

    def signals(self, record: Record) -> Iterator[SignalUse]:
        """Yields the uses of signals that a record tells of."""
        match record:
            case WaitEnded():
                branch = self.branch_of(record)
                if branch is not None and branch.kind == "signal":
                    said = record.key, record.value, record.who, record.at
                    yield SignalUse("taken", branch.name, *said)
            case Cancelled():
                match record.gave_back:
                    case [str(name), str(key)]:
                        yield SignalUse("given back", name, key)
            case Finished() | RunCancelled():
                yield from left_over(record)


class SignalUse(Struct, frozen=True):
    """The use of a signal by a run.

    Attributes:
        how: it was taken by a wait; given back, because the function did not hear of it; or left
            over when the run ended.
        key: as recorded, of whatever type that is in a log of others.
    """

    how: Literal["taken", "given back", "left over"]
    name: str
    key: Any
    value: Plain = None
    who: Any = ""
    at: Any = None


def left_over(record: Record) -> Iterator[SignalUse]:
    """Yields the signals that a run had not used when this record ended it."""
    if isinstance(record, Finished | RunCancelled):
        for one in record.left:
            who, at = one.get("who", ""), one.get("at")
            value = one.get("value")
            yield SignalUse("left over", str(one.get("name", "")), one.get("key"), value, who, at)


def branch_of(began: Record | None, ended: Record) -> WaitBranch | None:
    """Returns the event that a wait ended with, by the records of its begin and its end."""
    if not isinstance(began, WaitBegan) or not isinstance(ended, WaitEnded):
        return None
    return next((one for one in began.branches if one.label == ended.label), None)
