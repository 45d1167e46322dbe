"""The commit of a log that a caller means: by its seq, a name, or a moment."""

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
    """Returns the seq of the commit that a caller means.

    Args:
        branch: the branch for which a moment counts.

    Raises:
        NotFound: there is no such commit; the error names those that exist.
        ValueError: a naive datetime. TypeError: not something that names a commit.
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
    """Returns the value as a plain int, str or datetime; the value itself if it is none of them."""
    given: Any = where
    if is_a(given, str):
        return exact_types.text(given)
    if is_a(given, int) and not is_a(given, bool):
        return exact_types.whole(given)
    return exact_types.moment(given) if is_a(given, datetime) else where


def horizon(reader: LogReader, before: Where | timedelta, now: int) -> int:
    """Returns the earliest commit that stays when everything before a place or a moment is removed:
    the one whose state was current then.

    Args:
        before: a commit, a moment, or an age.
        now: the store's clock, in microseconds since 1970.

    Raises:
        As `resolve`. ValueError: a negative age.
    """
    given: Any = before
    if is_a(given, timedelta):
        age = exact_types.span(given)
        if age < timedelta(0):
            raise ValueError(f"{reader.target()}: an age cannot be negative: {age}")
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
    """Returns the message for a value that names no commit."""
    problem = f"agent {agent!r}: {shown(where)} names no commit; "
    if is_a(where, date):
        return problem + "a day has many moments: datetime(…, tzinfo=UTC) is one"
    return problem + "say its seq (an int), a checkpoint's or branch's name, or a datetime"
