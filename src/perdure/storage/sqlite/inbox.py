"""Messages for runs: put in once, each in a transaction of its own, and read in order."""

from __future__ import annotations

import apsw
from msgspec.structs import asdict, astuple, replace

from perdure.core.arguments.names import incarnation_of
from perdure.core.values import codec
from perdure.missing import MISSING
from perdure.model import FINISHED, Message
from perdure.storage.answers import Mail
from perdure.storage.appending import Refused
from perdure.storage.capabilities import Sent
from perdure.storage.cursors import (
    Mark,
    foreign_cursor,
    is_marked,
    mark_of,
    number_of,
    read_mark,
)
from perdure.storage.sqlite.closing import check_takes, unless_closed
from perdure.storage.sqlite.rows import ids_json, run, to_message, to_run
from perdure.storage.wanted import InboxQuery


class Put:
    """Puts one message in. May be called again after a failed COMMIT: it recognises its own
    message.

    Raises:
        TypeError: the value is not plain data.
    """

    def __init__(self, message: Message, now: int) -> None:
        self._message = replace(message, at_micros=now, no=0)
        self._value = codec.encode(message.value)
        self._tried: int | None = None

    def __call__(self, db: apsw.Connection) -> Sent | Refused:
        message = self._message
        before = find(db, message)
        if before is not None:
            return Sent(
                before, fresh=(before.no, before.at_micros) == (self._tried, message.at_micros)
            )
        rows = run(db, "find_run", (message.run,))
        row = to_run(rows[0]) if rows else None
        if message.kind == "start":
            if row is not None:
                return Sent(
                    replace(message, value=MISSING, at_micros=row.started_at_micros), fresh=False
                )
            if _is_over(db, message.agent, incarnation_of(message.run)):
                return Refused("gone")
        elif row is not None:
            if row.status in FINISHED:
                return Refused("gone")
        elif not run(db, "find_start", (message.run,)):
            check_takes(db, message.agent)  # the run may be yet to come
            return Refused("gone")
        fields = (*astuple(message)[:5], self._value, message.who, message.at_micros)
        with unless_closed(db):
            self._tried = int(run(db, "add_message", fields)[0][0])
        return Sent(replace(message, value=codec.decode(self._value), no=self._tried), fresh=True)

    def find(self, db: apsw.Connection) -> Message | None:
        """Returns the message that is there, put in by this call or by another one; None if there
        is none."""
        return find(db, self._message)


def find(db: apsw.Connection, message: Message) -> Message | None:
    """Returns the message of the same run, kind, name and key, taken out or not."""
    place = message.run, message.kind, message.name, message.key
    rows = run(db, "find_message", place)
    return to_message(rows[0]) if rows else None


def know(db: apsw.Connection, message: Message) -> None:
    """Puts in a message that was taken out elsewhere; one that is there is taken out."""
    there = find(db, message)
    if there is not None:
        run(db, "consume_messages", (ids_json([there.no]),))
        return
    place = message.run, message.agent, message.kind, message.name, message.key
    run(db, "add_known_message", (*place, message.who, message.at_micros))


def mail(db: apsw.Connection, cursor: str, limit: int, url: str) -> Mail:
    """See `Backend.mail`. Numbers grow in the order of commits: one transaction writes at a
    time."""
    number, _, mark = cursor.partition(".")
    after = number_of(number)
    rows = run(db, "last_message")
    last = rows[0][0] if rows else 0
    if (after < 0 and cursor) or after > last:
        raise foreign_cursor(url)
    # The message that the cursor names comes along: by it the cursor is known.
    found = [to_message(row) for row in run(db, "list_mail", (after - 1, limit + 1))]
    named = found.pop(0) if found and found[0].no == after else None
    if mark:
        _check_named(db, read_mark(mark, url), named, url)
    found = found[:limit]
    return Mail(found, f"{found[-1].no}.{mark_of(found[-1])}" if found else cursor, last)


def _check_named(db: apsw.Connection, mark: Mark, named: Message | None, url: str) -> None:
    """Raises NotFound if the message that a cursor names is another one, or is not there although
    its agent was not deleted."""
    known = is_marked(named, mark) if named else _is_over(db, mark.agent, mark.incarnation)
    if not known:
        raise foreign_cursor(url)


def _is_over(db: apsw.Connection, agent: str, incarnation: int) -> bool:
    """True if an incarnation of an agent was deleted."""
    rows = run(db, "find_agent", (agent, None))
    return bool(rows) and rows[0][2] + bool(rows[0][3]) > incarnation


def messages(db: apsw.Connection, wanted: InboxQuery) -> list[Message]:
    """See `Backend.inbox`."""
    values = asdict(wanted) | {"limit": -1 if wanted.limit is None else wanted.limit}
    direction = "down" if wanted.newest_first else "up"
    return [to_message(row) for row in run(db, f"{wanted.statement}_{direction}", values)]
