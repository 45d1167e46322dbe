"""Data of another store, written in one transaction (`Backend.ship`)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence

from psycopg import errors

from perdure.core.values import codec
from perdure.missing import MISSING, Missing
from perdure.model import Message
from perdure.storage.answers import Standing
from perdure.storage.appending import Appended
from perdure.storage.capabilities import Shipment
from perdure.storage.postgres import purging
from perdure.storage.postgres.append import outcome_of, values_of
from perdure.storage.postgres.connection import Connection
from perdure.storage.postgres.rows import from_message, text
from perdure.storage.standing import check_after, check_stands, not_linked, number_taken

GIVES_WAY_S = 0.2
"""The mean time for which writers get through, before the next try to lock them out."""


def stand(
    db: Connection,
    sql: Mapping[str, str],
    standing: Standing | None,
    no: int,
    after: Standing | Missing | None,
    url: str,
) -> None:
    """See `Backend.stand`."""

    def work() -> None:
        db.execute(sql["wait_briefly"])
        if after is not MISSING:
            db.execute(sql["lock_standings"])
            found = db.execute(sql["find_standing"], (0,)).fetchone()
            check_stands(Standing(*found) if found else None, after, standing, no, url)
        values = (no, None, None) if standing is None else (no, standing.closed, standing.why)
        db.execute(sql["stand"], values)

    _giving_way(db, work)


def _giving_way(db: Connection, work: Callable[[], None]) -> None:
    """Runs a transaction that may lock out all writers. If it has to wait for one of them, they get
    through in between."""
    until = time.monotonic() + db.deadline_s
    while True:
        try:
            with db.transaction():
                return work()
        except errors.LockNotAvailable:
            if time.monotonic() > until:
                raise
        time.sleep(random.uniform(0, 2 * GIVES_WAY_S))


def ship(db: Connection, sql: Mapping[str, str], shipment: Shipment, now: int, url: str) -> None:
    """Ships in a transaction of its own, which is rolled back on an error."""
    _giving_way(db, lambda: _ship(db, sql, shipment, now, url))


def _ship(db: Connection, sql: Mapping[str, str], shipment: Shipment, now: int, url: str) -> None:
    db.execute(sql["begin_shipping"])
    if shipment.after is not None:
        found = db.execute(sql["lock_standing"]).fetchone()
        check_after(Standing(*found) if found else None, shipment.after, url)
    if shipment.standing is not None:
        # This comes first, because it may lock out all writers: none of them then waits for us
        # half-way.
        standing = shipment.standing
        db.execute(sql["wait_briefly"])
        db.execute(sql["stand"], (0, standing.closed, standing.why))
        db.execute(sql["wait_as_ever"])
    _take_in(db, sql, shipment.messages)
    numbers = [message.no for message in shipment.messages]
    db.execute(sql["raise_numbers"], (max([shipment.number_min, *numbers]),))
    for grave in shipment.graves:
        purging.bury(db, sql, grave)
    _append(db, sql, shipment, now, url)
    for agent, incarnation in shipment.to_purge:
        db.execute(sql["mark_to_purge"], (text(agent), incarnation))
    _take_in(db, sql, shipment.messages)  # what the end of a run took away is there again
    if shipment.taken:
        db.execute(sql["take_out"], (list(shipment.taken),))
    if shipment.forgotten:
        db.execute(sql["forget_taken"], (list(shipment.forgotten),))
    for agent, incarnation, branch, epoch in shipment.epochs:
        db.execute(sql["raise_epoch"], (epoch, text(branch), text(agent), incarnation))


def _append(db: Connection, sql: Mapping[str, str], shipment: Shipment, now: int, url: str) -> None:
    cursors = [db.cursor(binary=True) for _ in shipment.appends]
    with db.pipeline():
        for cursor, item in zip(cursors, shipment.appends, strict=True):
            cursor.execute(sql["ship"], values_of(item, True, now))
    for cursor, item in zip(cursors, shipment.appends, strict=True):
        outcome = outcome_of(cursor.fetchone(), item, url)
        if not isinstance(outcome, Appended):
            raise not_linked(item, outcome)


def _take_in(db: Connection, sql: Mapping[str, str], messages: Sequence[Message]) -> None:
    cursors = [db.cursor(binary=True) for _ in messages]
    with db.pipeline():
        for cursor, message in zip(cursors, messages, strict=True):
            value = None if message.value is MISSING else codec.encode(message.value)
            rest = value, text(message.who), message.at_micros, message.no
            cursor.execute(sql["take_in"], (*from_message(message), *rest))
    for cursor, message in zip(cursors, messages, strict=True):
        row = cursor.fetchone()
        if row is None or not row[0]:
            raise number_taken(message)
