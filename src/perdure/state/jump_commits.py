"""Commits whose state is that of another commit: rollback, fork, adoption.

None of them needs the state of the branch's head: they are the way back from one that cannot be
read.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import Any

from msgspec.structs import replace

from perdure.core.arguments.names import check_cause
from perdure.errors import NotFound
from perdure.model import Cause, Commit
from perdure.state import not_found, refused_calls
from perdure.state.snapshot_age import SinceSnapshot
from perdure.state.snapshot_policy import WEIGHT_LONG
from perdure.state.stateless_commits import without_delta
from perdure.state.working_copy import Flow, WorkingCopy, drive
from perdure.storage.appending import NOTHING, Riders, StoredSnapshot
from perdure.storage.log.commits import UNREADABLE
from perdure.storage.log.proposals import Committed, Proposal
from perdure.storage.retention import MOVES, STORES_OWN


def find_head(working: WorkingCopy[Any]) -> int:
    """Returns the seq of the branch's head now.

    Raises:
        NotFound: the agent has no commit yet, or there is no such branch.
        Conflict: inside an open edit.
    """
    working.refuse_inside_edit()
    ref = working.reader.ref(working.branch)
    if ref.kind != "branch":
        raise not_found.no_branch(working.name, working.branch)
    return ref.seq


def commit_move(
    working: WorkingCopy[Any],
    head: int,
    target: int,
    cause: Cause,
    riders: Riders = NOTHING,
    *,
    branch: str | None = None,
) -> Committed:
    """Commits, without a delta, a state that is that of `target`.

    Args:
        head: the branch's, as `find_head` gave it.
        branch: another one, which begins with this commit.
    """
    moving = committing_move(working, head, target, cause, riders, branch=branch)
    return drive(working.context, moving)


def committing_move(
    working: WorkingCopy[Any],
    head: int,
    target: int,
    cause: Cause,
    riders: Riders = NOTHING,
    *,
    branch: str | None = None,
) -> Flow[Committed]:
    """The flow behind `commit_move`."""
    working.refuse_inside_edit()
    check_cause(cause)
    if working.branch in STORES_OWN:  # whoever reads it relies on what the store says there
        raise refused_calls.stores_own(working.name, working.branch)
    reader = working.reader
    parent: Commit = yield partial(reader.peek, target)
    riders = replace(riders, trims=(yield partial(reader.kept, target)))
    on, who, epoch = branch or working.branch, working.context.executor, working.epoch or 0
    draft = without_delta(reader, on, parent, cause, riders.records, who, epoch)
    proposal = Proposal(draft, reader.no, None if branch else head, riders, working.epoch)
    if parent.cause.kind in ("fork", *MOVES):
        proposal.snapshot = yield partial(_snapshot, working, target)
    if branch is None:
        return (yield from working.moving(proposal))
    committed: Committed = yield proposal
    return committed


def _snapshot(working: WorkingCopy[Any], target: int) -> StoredSnapshot | None:
    """Returns the snapshot that a move after a move is to carry; None if there is one near enough.

    I9: edits carry snapshots, but those that a move leaves behind are on no path. After many moves,
    each to the one before, a reader would have to read all of them. A target that cannot be read
    does not prevent the move.
    """
    reader, policy = working.reader, working.context.snapshots
    weight = max(policy.weight_min, WEIGHT_LONG) if policy.by_weight else inf
    try:
        if not reader.is_behind(target, weight, policy.every_commits or inf):
            return None
        folded = reader.fold(target)
    except (NotFound, *UNREADABLE):
        return None
    since = SinceSnapshot()
    since.begin(folded, migrated=False)
    snapshot, _ = since.write(folded.state, reader.name, reader.incarnation, target)
    return snapshot
