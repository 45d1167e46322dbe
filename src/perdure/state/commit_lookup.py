"""Which commit of a log a caller means: by its seq, a name, or a moment."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

from perdure.core.arguments import exact_types
from perdure.core.arguments.exact_types import is_a
from perdure.core.arguments.names import check_name, shown
from perdure.model import from_micros
from perdure.storage.log.reader import LogReader
from perdure.storage.retention import RETENTION

Where = int | str | datetime
"""A commit: its seq, the name of a checkpoint or of a branch (its head), or a moment."""


def resolve(reader: LogReader, branch: str, where: Where) -> int:
    """Its seq.

    Args:
        branch: of which a moment is meant.

    Raises:
        NotFound: there is none such; naming those that there are.
        ValueError: a naive datetime. TypeError: nothing that names a commit.
    """
    where = place_of(where)
    if type(where) is str:
        return reader.ref(check_name(where, "a branch or checkpoint")).seq
    if type(where) is datetime:
        return reader.at_time(branch, where)
    if type(where) is not int:
        raise TypeError(_no_place(reader.name, where))
    if not 1 <= where <= reader.last_seq():
        raise reader.absent(where)
    return where


def place_of(where: Where) -> Where:
    """The same as a plain int, str or datetime; itself where it is none of them."""
    given: Any = where
    if is_a(given, str):
        return exact_types.text(given)
    if is_a(given, int) and not is_a(given, bool):
        return exact_types.whole(given)
    return exact_types.moment(given) if is_a(given, datetime) else where


def horizon(reader: LogReader, before: Where | timedelta, now: int) -> int:
    """The earliest commit that stays where what is before a place or a moment is to go: that whose
    state was the last one then.

    Args:
        before: an age, too.
        now: the store's clock, in microseconds since 1970.

    Raises:
        As `resolve`. ValueError: a negative age.
    """
    given: Any = before
    if is_a(given, timedelta):
        age = exact_types.span(given)
        if age < timedelta(0):
            raise ValueError(f"{reader.target()}: nothing is {age} old, that is to come")
        try:
            moment = from_micros(now) - age
        except OverflowError:
            return 1  # nothing is as old as that
    else:
        place = place_of(given)
        if type(place) is not datetime:
            return resolve(reader, "", place)
        moment = place
    seq = reader.last_at(moment)
    while seq > 1 and reader.peek(seq).branch == RETENTION:
        seq -= 1  # a word on what is gone is nothing that happened to the agent
    return max(1, seq)


def _no_place(agent: str, where: object) -> str:
    """What to say where something is given as a commit that names none."""
    problem = f"agent {agent!r}: {shown(where)} names no commit; "
    if is_a(where, date):
        return problem + "a day has many moments: datetime(…, tzinfo=UTC) is one"
    return problem + "say its seq (an int), a checkpoint's or branch's name, or a datetime"
