"""The time that a run still has, by its deadline and by its time limit, as its log tells."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from perdure.engine.control.times_in_words import clock, length
from perdure.engine.functions.compensations import undoing_in
from perdure.engine.functions.orders import Order, read_turn
from perdure.engine.functions.time_taken import TimeTaken
from perdure.engine.journal.left_history import Origins, path_of
from perdure.errors import PerdureError
from perdure.model import FINISHED, Message, RunInfo, from_micros
from perdure.state.runs.family_messages import begin_of
from perdure.storage.log.reader import LogReader


class TimeLeft(Struct, frozen=True):
    """Moments are in microseconds since 1970, durations in microseconds; 0: there is none.

    Attributes:
        deadline: the moment by which it must have ended; of a run that has not begun, only with
            the run that started it.
        limit: its time limit; `left`: what it has not taken of that.
        up: the moment at which the limit is taken, if nothing stops its time before.
    """

    deadline: int = 0
    limit: int = 0
    left: int = 0
    up: int = 0

    def in_words(self, now: datetime) -> str:
        """Returns what follows on another sentence; empty if it may take any time."""
        said = ""
        if self.deadline:
            at = from_micros(self.deadline)
            passed = f"is {clock(at)}, in {length(at - now)}" if at > now else "has passed"
            said += f"; its deadline {passed}"
        if self.limit:
            limit = length(timedelta(microseconds=self.limit))
            left = length(timedelta(microseconds=self.left))
            said += f"; it has {left if self.left else 'nothing'} left of its time limit of {limit}"
        return said


NO_LIMIT = TimeLeft()


def time_left(
    reader: LogReader | None, info: RunInfo, inbox: Sequence[Message], now: int, *, executed: bool
) -> TimeLeft:
    """Returns the time that a run has left; of one that cannot be read, that it has no limit.

    Args:
        reader: that of its log; None: it has not begun.
        inbox: the messages that it has not taken out.
        executed: a living executor has it.
    """
    if info.status in FINISHED:
        return NO_LIMIT
    try:
        if reader is None or not info.started:
            asked = [Order.asked(one) for one in inbox if one.kind == "start"]
            return _of_order(asked[0]) if asked else NO_LIMIT
        return _of_begun(reader, info, inbox, now, executed=executed)
    except PerdureError:
        return NO_LIMIT  # its reader says why it cannot be read


def _of_order(order: Order) -> TimeLeft:
    return TimeLeft(order.until_us, order.limit_us, order.limit_us)


def _of_begun(
    reader: LogReader, info: RunInfo, inbox: Sequence[Message], now: int, *, executed: bool
) -> TimeLeft:
    first, turn = reader.commit(info.started), reader.commit(info.turn_at)
    if undoing_in(turn, info.id):  # that takes the time that it needs
        return NO_LIMIT
    path = path_of(reader, reader.last_of(info.branch), info.turn_at)
    _, deadline, _ = read_turn(first, turn, Origins.of(info, path), 0)
    began = begin_of(first, info.id)
    if began is None or not began.limit:
        return TimeLeft(deadline)
    taken = TimeTaken(info.id)
    for commit in [turn, *reversed(path)]:
        taken.note(commit)
    spent = taken.until(now) if executed else taken.when_resumed(now, inbox, info.seen)
    up = taken.at + began.limit - taken.spent if taken.mode != "stands" else 0
    return TimeLeft(deadline, began.limit, max(began.limit - spent, 0), up)
