"""The reasons why an undo or redo is refused, and what to do instead."""

from __future__ import annotations

from typing import Any

from perdure.core.undo.undo_plan import Plan
from perdure.errors import Conflict, NotFound, PerdureError
from perdure.model import MAIN, Commit
from perdure.state.branch_state import BranchState
from perdure.system import shell


def hindrance(working: BranchState[Any], kind: str, plan: Plan) -> PerdureError | None:
    """Returns the error for a plan that cannot be carried out; None if it can."""
    target = f"agent {working.name!r}, branch {working.branch!r}"
    latest = plan.seqs[-1]
    if plan.elder is not None:
        which = "it" if plan.elder.seq == latest else f"commit {plan.elder.seq}, of the same group,"
        return Conflict(
            f"cannot {kind} commit {latest}: {which} {_of_another_version(working, plan.elder)}",
            target=target,
            hint=_way_back(working, plan.elder),
        )
    if plan.lacks:
        return NotFound(
            f"cannot {kind} commit {latest}: {_lacking(plan)}",
            target=target,
            hint=working.reader.trimmed(plan.lacks).hint,
        )
    if plan.blocked_by:
        where = ", ".join(f"{path} (commit {seq})" for seq, path in plan.blocked_by[:5])
        return Conflict(
            f"cannot {kind} commit {plan.seqs[0]}: later commits touched {where}",
            target=target,
            hint="roll back to before them, or make the change by hand in an edit",
        )
    return None


def _of_another_version(working: BranchState[Any], elder: Commit) -> str:
    name, (major, _) = working.schema_to_write
    return (
        f"is of version {elder.schema_version[0]} of the schema {name!r}, and the state is of "
        f"version {major}: what would come back was never migrated"
    )


def _way_back(working: BranchState[Any], elder: Commit) -> str:
    """Returns the hint for going back to the state before that commit, which is migrated as a whole
    when it is read."""
    by_hand = "make the change by hand in an edit"
    before = elder.parent
    if working.reader.can_fold(before):
        return by_hand
    place = {} if working.branch == MAIN else {"branch": working.branch}
    ending = {"cancel_run": True} if working.reader.waited_on(working.branch) else {}
    back = shell.perdure("rollback", working.name, str(before), **place, **ending)
    fork = shell.perdure("fork", working.name, f"before-{elder.seq}", at=before, **place)
    return (
        f"{by_hand}; or go back to the state before it, which is migrated as a whole: `{back}`, or "
        f"`{fork}` beside what came since"
    )


def _lacking(plan: Plan) -> str:
    if plan.lacks == plan.seqs[-1]:
        return "what it changed was removed by retention"
    if plan.lacks in plan.seqs:
        return f"commit {plan.lacks}, of the same group, was removed by retention"
    return f"commit {plan.lacks}, which came later, was removed by retention"
