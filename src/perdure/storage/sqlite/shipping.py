"""Data of another store, written in one transaction (`Backend.ship`)."""

from __future__ import annotations

from collections.abc import Sequence

import apsw
from msgspec.structs import astuple, replace

from perdure.core.values import codec
from perdure.missing import MISSING
from perdure.model import Message
from perdure.storage.appending import Append, Appended
from perdure.storage.capabilities import Shipment
from perdure.storage.clocks import Clock
from perdure.storage.sqlite import closing
from perdure.storage.sqlite.append import append
from perdure.storage.sqlite.purging import bury, mark_one
from perdure.storage.sqlite.rows import do, ids_json, run
from perdure.storage.standing import check_after, no_such_agent, not_linked, number_taken


def ship(db: apsw.Connection, shipment: Shipment, clock: Clock) -> None:
    """Ships in the open transaction; after an error that must be rolled back."""
    check_after(closing.find(db, 0), shipment.after, f"sqlite:///{db.filename}")
    with closing.shipping(db):
        _take_in(db, shipment.messages)
        _raise_numbers(db, shipment.number_min)
        for grave in shipment.graves:
            bury(db, grave)
        numbers: dict[tuple[str, int], int] = {}
        for item in shipment.appends:
            no = None if item.seq == 1 else _number(db, numbers, item.agent, item.incarnation)
            outcome = append(db, _addressed(db, item, no), clock)
            if not isinstance(outcome, Appended):
                raise not_linked(item, outcome)
            numbers[item.agent, item.incarnation] = outcome.no
        for agent, incarnation in shipment.to_purge:
            mark_one(db, agent, incarnation)
        _take_in(db, shipment.messages)  # what the end of a run took away is there again
        if shipment.taken:
            do(db, "consume_messages", (ids_json(shipment.taken),))
        if shipment.forgotten:
            do(db, "forget_taken", (ids_json(shipment.forgotten),))
        for agent, incarnation, branch, epoch in shipment.epochs:
            no = _number(db, numbers, agent, incarnation)
            do(db, "raise_epoch", (no, branch, epoch))
    if shipment.standing is not None:
        closing.put(db, shipment.standing, 0)


def _number(
    db: apsw.Connection, known: dict[tuple[str, int], int], agent: str, incarnation: int
) -> int:
    if (agent, incarnation) not in known:
        found = run(db, "find_agent", (agent, incarnation))
        if not found:
            raise no_such_agent(agent, incarnation)
        known[agent, incarnation] = int(found[0][0])
    return known[agent, incarnation]


def _addressed(db: apsw.Connection, item: Append, no: int | None) -> Append:
    """Returns it with the number of its agent and only new leaves, and removes any lease that would
    block it."""
    if no is not None:
        for branch in (item.branch, item.riders.drop_branch):
            if branch is not None:
                do(db, "let_go", (no, branch))
    snapshot = item.snapshot
    if snapshot is not None and snapshot.leaves:
        there = {row[0] for row in run(db, "find_leaves", (ids_json(snapshot.leaves),))}
        new = {at: leaf for at, leaf in snapshot.leaves.items() if at not in there}
        snapshot = replace(snapshot, leaves=new)
    return replace(item, no=no, epoch=None, snapshot=snapshot)


def _take_in(db: apsw.Connection, messages: Sequence[Message]) -> None:
    """Puts messages in with their numbers; those that are there stay as they are."""
    for message in messages:
        place = (message.run, message.kind, message.name, message.key)
        alive = message.value is not MISSING
        there = run(db, "find_message_by_number", (message.no,))
        if there:
            if tuple(there[0][:4]) != place:
                raise number_taken(message)
            if not there[0][4] or not alive:
                continue
        do(db, "forget_message", place)
        value = codec.encode(message.value) if alive else None
        do(db, "take_message_in", (*astuple(replace(message, value=value)), not alive))


def _raise_numbers(db: apsw.Connection, least: int) -> None:
    if not least:
        return
    if run(db, "last_message"):
        do(db, "raise_last_message", (least,))
    else:
        do(db, "begin_messages", (least,))
