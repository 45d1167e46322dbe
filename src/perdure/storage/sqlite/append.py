"""One commit inside a transaction: checked, inserted, with everything that goes along with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import apsw
from msgspec.structs import replace

from perdure.core.format import chain
from perdure.model import FINISHED
from perdure.storage.appending import (
    NOTHING,
    Append,
    Appended,
    Outcome,
    Refused,
    StoredSnapshot,
    beside,
    misplaced,
    undroppable,
)
from perdure.storage.clocks import Clock
from perdure.storage.retention import RETENTION
from perdure.storage.sqlite.closing import closed
from perdure.storage.sqlite.forest import RUNS
from perdure.storage.sqlite.guards import check_missing
from perdure.storage.sqlite.inbox import Put, know
from perdure.storage.sqlite.purging import mark
from perdure.storage.sqlite.rows import (
    do,
    find_key,
    find_ref,
    from_checkpoint,
    from_run,
    ids_json,
    pack_ids,
    place,
    run,
)
from perdure.storage.sqlite.statements import statements
from perdure.storage.standing import ClosedError

Heads = Mapping[int, tuple[int, bytes]]
"""By agent number, seq and header of the last commit that the connection itself brought in: the log
has it, and nobody can put another one there (I3). A step or tool call takes 0.96 of the CPU that it
takes with a read of the header before its own."""

NO_HEADS: Heads = {}

_sql = statements()


def append(
    db: apsw.Connection,
    item: Append,
    clock: Clock,
    heads: Heads = NO_HEADS,
    cursor: apsw.Cursor | None = None,
    *,
    key_taken: bool = False,
    whole: bool = False,
) -> Outcome:
    """Writes one commit with everything that goes along with it, or nothing (I2). Later ones of the
    transaction see it.

    Args:
        cursor: one of the connection; to make one takes longer than a statement.
        whole: the caller takes back what it wrote if it raises.
    """
    try:
        no, plain, execute = item.no, _is_plain(item), (cursor or db).execute
        if not plain:
            if item.then or (item.riders.sends and not whole):
                return _append_whole(db, item, clock, heads)
            if item.riders.key is not None and no is not None and not key_taken:
                return _append_once(db, item, no, clock, heads)
            if refused := _refusal(db, item):
                return refused
        if no is None:
            no = int(run(db, "add_agent", (item.agent, item.incarnation))[0][0])
        at = place(no, item.seq)
        if item.expected is not None:
            wanted = (no, item.branch, item.seq, item.expected, item.epoch, at - 1)
            if item.riders.holder is None:
                execute(_sql["claim_head"], wanted)
            else:
                execute(_sql["claim_free_head"], (*wanted, item.riders.holder))
            if not db.changes():
                ref = find_ref(db, no, item.branch)
                return misplaced(item, ref) or Refused("stale", ref)
        # I3: it links to the commit before its place, and the place is free.
        before = item.seq - 1
        known = heads.get(no) == (before, item.behind.header)
        links = known or not before or _is_id(db, at - 1, item.behind.id)
        if links:
            execute(_sql["add_commit"], (at, item.header, item.payload))
        if not links or not db.changes():
            if item.expected is not None:
                taken = item.riders.holder is not None
                do(db, "put_back_head", (no, item.branch, item.expected, taken))
            return Refused("stale")
        if item.expected is None:
            do(db, "add_branch", (no, item.branch, item.seq))
        if not plain:
            _append_extras(db, item, no, at, clock)
        return Appended(no)
    except apsw.ConstraintError as error:  # the first statement's: nothing is written yet
        return closed(db, item, error)


def _is_plain(item: Append) -> bool:
    """True as of most commits: its branch is there, and there is nothing beside it to do."""
    riders = item.riders
    if riders is not NOTHING and (riders.trims is not None or any(beside(riders))):
        return False
    if item.no is None or item.expected is None:
        return False
    return not (item.then or item.epoch_min) and item.snapshot is None


def _append_whole(db: apsw.Connection, item: Append, clock: Clock, heads: Heads) -> Outcome:
    """One with followers, or with messages, which a closed store may refuse in the end."""
    db.execute("SAVEPOINT whole")
    try:
        outcome = append(db, replace(item, then=()), clock, heads, whole=True)
        before = item
        for follower in item.then:
            if isinstance(outcome, Appended):
                heads = {outcome.no: (before.seq, before.header)}
                outcome = append(db, replace(follower, no=outcome.no), clock, heads, whole=True)
                before = follower
    except ClosedError as error:
        outcome = error
    except apsw.ConstraintError:
        db.execute("ROLLBACK TO whole")
        db.execute("RELEASE whole")
        raise
    if not isinstance(outcome, Appended):
        db.execute("ROLLBACK TO whole")
    db.execute("RELEASE whole")
    return outcome


def _append_once(db: apsw.Connection, item: Append, no: int, clock: Clock, heads: Heads) -> Outcome:
    """One with an idempotency key: in if that was not used before."""
    assert item.riders.key is not None
    key = item.riders.key[0]
    # The key is taken before anything else: this also tells whether it was used before.
    do(db, "take_key", (no, key, item.seq, item.riders.key[1]))
    if not db.changes():
        seq, asked = find_key(db, no, key) or (0, b"")
        return Refused("key", seq=seq, asked=asked)
    check_missing(db, "keys", no, key)
    outcome = append(db, item, clock, heads, key_taken=True, whole=True)
    if not isinstance(outcome, Appended):
        do(db, "put_back_key", (no, key))
    return outcome


def _is_id(db: apsw.Connection, at: int, commit: bytes) -> bool:
    """Returns True if a commit's id is that of the commit at a place."""
    found = run(db, "find_header", (at,))
    return chain.commit_id(found[0][0] if found else b"") == commit


def landed(db: apsw.Connection, item: Append) -> int | None:
    """Returns the agent's number if exactly this commit is in the log; else None."""
    no = item.no
    if no is None:
        found = run(db, "find_agent", (item.agent, item.incarnation))
        if not found:
            return None
        no = int(found[0][0])
    header = run(db, "find_header", (place(no, item.seq),))
    return no if header and header[0][0] == item.header else None


def _refusal(db: apsw.Connection, item: Append) -> Refused | None:
    """Returns a refusal that can be decided before anything is written; the insert itself refuses
    the rest."""
    if item.riders.consumed and not _are_there(db, item.riders.consumed):
        return Refused("consumed")
    if (item.riders.read_to or item.riders.holder is not None) and _is_unread(db, item):
        return Refused("unread")
    taken_out = ids_json(item.riders.consumed)
    if any(run(db, "find_begun", (one, taken_out)) for one in item.riders.fresh):
        return Refused("begun")
    if not all(run(db, "find_going", (one,)) for one in item.riders.going):
        return Refused("ended")
    if item.riders.starts_read and run(db, "find_unread_start", (item.agent, taken_out)):
        return Refused("unread")
    if item.no is None:
        found = run(db, "find_agent", (item.agent, None))
        if found and not (found[0][3] and found[0][2] < item.incarnation):
            return Refused("exists")
        return None if item.seq == 1 else Refused("stale")  # behind one that did not get in
    taken = item.riders.checkpoint.name if item.riders.checkpoint else None
    if item.expected is None:
        taken = item.branch
    if taken is not None and (ref := find_ref(db, item.no, taken)):
        return Refused("exists", ref)
    dropped = item.riders.drop_branch
    if dropped is not None:
        refused = undroppable(find_ref(db, item.no, dropped), item.riders.drop_head)
        if refused:
            return refused
    if item.expected is None:
        found = run(db, "find_agent", (item.agent, item.incarnation))
        if not found or found[0][3]:
            return Refused("gone")
    if item.riders.trims is not None:
        ref = find_ref(db, item.no, RETENTION)
        if item.riders.trims != (ref.seq if ref is not None else 0):
            return Refused("trimmed", ref)
    if item.snapshot is not None and not _are_leaves_there(db, item.snapshot):
        return Refused("leaves")
    return None


def _are_leaves_there(db: apsw.Connection, snapshot: StoredSnapshot) -> bool:
    shared = [leaf for leaf in snapshot.leaf_ids if leaf not in snapshot.leaves]
    found: int = run(db, "count_there", (ids_json(shared),))[0][0] if shared else 0
    return found == len(set(shared))


def _is_unread(db: apsw.Connection, item: Append) -> bool:
    """True if a message is unread in the sense of `Riders.read_to` and `Riders.holder`."""
    taken = ids_json(item.riders.consumed)
    looks: list[tuple[Any, ...]] = [
        (run_id, last, taken) for run_id, last in item.riders.read_to.items()
    ]
    if item.riders.holder is not None:
        looks += [(row.id, None, taken) for row in item.riders.runs]
    return any(run(db, "find_unread", look) for look in looks)


def _are_there(db: apsw.Connection, messages: Sequence[int]) -> bool:
    found: int = run(db, "count_messages", (ids_json(messages),))[0][0]
    return found == len(messages)


def _append_extras(db: apsw.Connection, item: Append, no: int, at: int, clock: Clock) -> None:
    if item.riders.key is not None and item.no is None:
        do(db, "take_key", (no, item.riders.key[0], item.seq, item.riders.key[1]))
    if item.snapshot is not None:
        for leaf in item.snapshot.leaves.items():
            do(db, "add_leaf", leaf)
        ids = pack_ids(item.snapshot.leaf_ids)
        do(db, "add_snapshot", (at, item.snapshot.manifest, ids))
    if item.riders.checkpoint is not None:
        point = item.riders.checkpoint
        do(db, "add_checkpoint", (no, point.name, point.seq, from_checkpoint(point)))
    if item.riders.drop_branch is not None:
        do(db, "drop_branch", (no, item.riders.drop_branch))
    if item.riders.consumed:
        do(db, "consume_messages", (ids_json(item.riders.consumed),))
    for row in item.riders.runs:
        check_missing(db, RUNS, row.id)  # or it would be there twice
        do(db, "put_run", from_run(row, no))
        if row.status in FINISHED:
            do(db, "close_inbox", (row.id,))
    for message in item.riders.sends:
        Put(message, clock())(db)
    for message in item.riders.known:
        know(db, message)
    if item.epoch_min:
        do(db, "raise_epoch", (no, item.branch, item.epoch_min))
    if item.riders.release:
        do(db, "release", (no, item.branch))
    if item.riders.delete_agent:
        do(db, "end_agent", (no,))
        do(db, "end_refs", (no,))
        do(db, "end_inbox", (item.agent,))
        if item.riders.purge:
            mark(db, no)
