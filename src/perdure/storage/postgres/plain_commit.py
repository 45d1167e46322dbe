"""The short way for the most common commit: one on an existing branch, with nothing beside it,
alone.

It is one plain statement, the shortest way for server and driver: half the work of the function for
all others (`append_1`). It writes only if nothing is in the way: the log's last commit is the one
that this one names, the branch's head and epoch are as expected, and nothing is closed. Otherwise
it writes nothing, and the function is called, which says why. The last commit is compared by its
header: computing its id would take the server longer.

It does not lock the agent's row: the branch's row, which it changes, and the place in the log,
which is unique, are enough. Of two that write to one branch, the second finds the head moved; of
two on two branches, the second finds its place taken, and its whole transaction ends with that.
"""

from __future__ import annotations

from psycopg import errors

from perdure.storage.appending import NOTHING, Append, beside
from perdure.storage.postgres.awake import Haste
from perdure.storage.postgres.connection import Connection
from perdure.storage.postgres.rows import text
from perdure.storage.postgres.wire import BIGINT, BOOL, BYTEA, FALSE, TEXT, TRUE, bigint

TYPES = (BOOL, BIGINT, BIGINT, BIGINT, BIGINT, TEXT, BYTEA, BYTEA, BYTEA)


def is_plain(item: Append) -> bool:
    """True if the statement can write it: its branch is there, the commit before it is known, and
    nothing is to be done beside it."""
    riders = item.riders
    if riders is not NOTHING and (riders.trims is not None or any(beside(riders))):
        return False
    if item.no is None or item.expected is None or item.snapshot is not None:
        return False
    return bool(item.behind.header) and not (item.then or item.epoch_min)


def write(
    connection: Connection, statement: str, item: Append, durable: bool, haste: Haste
) -> int | None:
    """Returns the agent's number if it was written; None if nothing was."""
    assert item.no is not None and item.expected is not None
    epoch = item.epoch
    awake_s = haste.began() if item.awaited else 0.0
    try:
        written = connection.call(
            statement,
            TYPES,
            (
                TRUE if durable else FALSE,
                bigint(item.no),
                bigint(item.seq),
                bigint(item.expected),
                None if epoch is None else bigint(epoch),
                text(item.branch).encode(),
                item.behind.header,
                item.header,
                item.payload,
            ),
            awake_s=awake_s,
        )
    except errors.UniqueViolation:
        return None  # another branch's commit took the place in the log
    if item.awaited:
        haste.answered()
    return item.no if written.ntuples else None
