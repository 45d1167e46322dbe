"""The results of a drive, and the reasons that keep one from beginning."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perdure.core.format.records import Record, RunCancelled
from perdure.errors import Conflict
from perdure.model import RunInfo
from perdure.state.runs.run_rows import row_text
from perdure.state.working_copy import WorkingCopy
from perdure.storage.log.proposals import HERE
from perdure.storage.looks import Look
from perdure.visible import visible


class FinishedMeanwhileError(Exception):
    """Another executor finished the run, or did its work, before this one had the lease."""


class RunResult(Struct, frozen=True):
    """The run is done, with this result."""

    result: Any


class Unloaded(Struct, frozen=True):
    """The run waits, without a process."""


class NextTurn(Struct, frozen=True):
    """The function ended its turn, and must be called again."""


End = RunResult | Unloaded | NextTurn


class BranchTaken(Conflict):
    """Another run of the agent is not finished: `run`."""

    def __init__(self, problem: str, *, target: str, hint: str, run: RunInfo) -> None:
        super().__init__(problem, target=target, hint=hint)
        self.run = run


def branch_taken(run: RunInfo, agent: str) -> BranchTaken:
    """Returns the refusal to begin another run on the branch of this one."""
    waits = run.status == "waiting"
    stands = f"and waits for {visible(run.waits)}" if waits else "and no executor has it"
    return BranchTaken(
        f"run {visible(run.id)} has the branch: it is not finished ({run.status}), {stands}",
        target=f"agent {agent!r}",
        hint=run.problem or "run it again to finish it, or cancel it",
        run=run,
    )


def one_before(
    info: RunInfo | None, run: str, working: WorkingCopy[Any], look: Look
) -> RunInfo | None:
    """Returns the unfinished run that has the branch before this one, by its row; None if none
    has."""
    reader = working.reader_if_created()
    if reader is None:
        return None
    for one in look.unfinished():
        if one.id == run or one.branch != working.branch or one.agent_no != reader.no:
            continue
        if info is None or info.started > one.started:
            return one
    return None


def cancelled_end(row: RunInfo, why: str) -> tuple[str, Record, RunInfo]:
    """Returns the kind of commit, the record, and the row of a run that is cancelled."""
    problem = row_text(why) or "by request"
    ended = replace(row, status="cancelled", ended=HERE, problem=problem)
    return "run-cancelled", RunCancelled(run=row.id, why=why), ended
