"""The histories that a run left in its earlier turns, as the records that begin its turns say it.

An earlier turn is never read again, so a run may have any number of them. The record that begins a
turn names the calls of left histories that no call stands for yet; and where it would name the same
as an earlier one, that one's commit. Retention keeps such records.
"""

from __future__ import annotations

from perdure.core.format.left_behind import LeftBehind
from perdure.core.format.records import Completed, Outcome, Turn
from perdure.errors import Corrupt, NotFound, UnsupportedFormat
from perdure.model import Commit
from perdure.storage.log.reader import LogReader

_OUTCOMES = ("outcome", "step", "cancelled", "wait-ended")


def left_of(reader: LogReader, began: Commit) -> tuple[LeftBehind, int] | None:
    """Returns what a run left before a turn, by the commit that began this; and the seq of the
    commit that says so. None if it left nothing.

    Raises:
        Corrupt: the commit of an earlier turn that is to say it does not.
    """
    for record in began.typed:
        if not isinstance(record, Turn):
            continue
        if record.left is not None:
            return record.left, began.seq
        if record.left_at:
            return _said(reader, record.left_at, record.run), record.left_at
    return None


def _said(reader: LogReader, seq: int, run: str) -> LeftBehind:
    try:
        said = reader.commit(seq).typed
    except NotFound:
        said = ()
    for record in said:
        if isinstance(record, Turn) and record.left is not None:
            return record.left
    raise Corrupt(
        f"commit {seq} does not say what the run left in its earlier turns, as later ones do",
        target=f"run {run}",
        hint="the log was not written by this library; cancel the run, and start it again under "
        "another key",
    )


def outcome_at(reader: LogReader, seq: int, place: str) -> Outcome | None:
    """Returns the outcome that a commit recorded at a place, or what a type filled in; None if that
    is gone, or cannot be read."""
    try:
        said = reader.commit(seq).typed
    except (NotFound, Corrupt, UnsupportedFormat):
        return None
    for record in reversed(said):
        if record.place != place:
            continue
        if isinstance(record, Completed):
            return Outcome(t="outcome", run=record.run, place=place, value=record.value)
        if isinstance(record, Outcome) and record.t in _OUTCOMES:
            return record
    return None
