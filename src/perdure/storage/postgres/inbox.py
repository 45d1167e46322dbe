"""Messages for runs: put in once, each in a transaction of its own, and read in order."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import asdict, replace

from perdure.core.values import codec
from perdure.missing import MISSING
from perdure.model import Message
from perdure.storage.answers import Standing
from perdure.storage.appending import Refused
from perdure.storage.capabilities import Sent
from perdure.storage.postgres.append import new_token
from perdure.storage.postgres.connection import Connection
from perdure.storage.postgres.rows import from_message, from_text, text, to_message
from perdure.storage.standing import closed_error
from perdure.storage.wanted import InboxQuery


class Put:
    """Puts one message in. May be called again after a lost answer: it recognises its own message.

    Raises:
        TypeError: the value is not plain data.
    """

    def __init__(self, sql: Mapping[str, str], message: Message, now: int, url: str) -> None:
        self._sql = sql
        self._url = url
        self._message = message
        self._token = new_token()
        self._values = (
            True,
            *from_message(message),
            codec.encode(message.value),
            text(message.who),
            now,
            self._token,
        )

    def __call__(self, db: Connection) -> Sent | Refused:
        row = db.cursor(binary=True).execute(self._sql["send"], self._values).fetchone()
        assert row is not None
        answer, no, value, who, at, token = row
        if answer == "gone":
            return Refused("gone")
        if answer == "closed":
            said = db.execute(self._sql["find_standing"], (0,)).fetchone()
            standing = Standing(True, said[1]) if said else None
            raise closed_error(standing, f"store {self._url}")
        if answer == "begun":
            return Sent(replace(self._message, value=MISSING, at_micros=at, no=0), fresh=False)
        kept = MISSING if value is None else codec.decode(value)
        message = replace(self._message, value=kept, who=from_text(who), at_micros=at, no=no)
        return Sent(message, fresh=token == self._token)


def messages(db: Connection, sql: Mapping[str, str], wanted: InboxQuery) -> list[Message]:
    """See `Backend.inbox`."""
    said = asdict(wanted).items()
    values = {name: text(one) if type(one) is str else one for name, one in said}
    order: str = "DESC" if wanted.newest_first else "ASC"
    statement = sql[wanted.statement].replace("{order}", order)
    rows = db.cursor(binary=True).execute(statement, values).fetchall()
    return [to_message(row) for row in rows]
