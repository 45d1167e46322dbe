"""Naming commits from beside the branch: checkpoints of an agent whose run executes.

The run's branch is leased, and only the run appends to it. A name needs no part of it: the naming
commit is on a branch of the store's own, with the named commit as its parent, so that its state is
that one's. See docs/decisions/0049-names-beside-the-branch.md.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from perdure.core.values.state_hash import state_hash
from perdure.errors import Conflict
from perdure.model import Cause, Checkpoint, Commit, RunInfo
from perdure.state import checkpoints
from perdure.state.context import Context
from perdure.state.stateless_commits import without_delta
from perdure.storage.appending import Riders
from perdure.storage.capabilities import RunQuery
from perdure.storage.log.proposals import HERE, Proposal
from perdure.storage.log.reader import LogReader
from perdure.storage.log.refusals import is_race
from perdure.storage.retention import POINTS
from perdure.system.backoff import CHANCES_MAX, chances

FIRST_LOOK = 16
"""The number of commits that are looked through for the place of a run."""


def name_commit(
    context: Context,
    reader: LogReader,
    name: str,
    seq: int,
    config: str | None = None,
    dependencies: Iterable[str] = (),
    log_end: int | None = None,
) -> Checkpoint:
    """Names a commit as a recovery point, whoever holds its branch; returns the checkpoint.

    Args:
        config: the hash of a configuration.
        log_end: the log's last commit, if nothing may come between that and the naming one.

    Raises:
        Conflict: the name is taken; or something came between. NotFound: the state was removed, or
            a distribution is missing.
        Corrupt: a commit that the state is made of cannot be read.
    """
    named = reader.commit(seq)
    folded = reader.fold(seq)
    run = _run_at(context, reader, named)
    point = Checkpoint(
        name,
        HERE,
        state_hash(folded.state),
        folded.schema_id,
        folded.schema_version,
        config,
        checkpoints.versions(dependencies),
        run.id if run is not None else None,
        last_place(reader, seq, run) if run is not None else None,
    )
    cause = Cause("checkpoint", name, refers=(seq,))
    records = [checkpoints.record_of(point)]
    for tried in chances():
        ref = context.backend.ref(reader.no, POINTS)
        draft = without_delta(reader, POINTS, named, cause, records, context.executor)
        riders = Riders(records, checkpoint=point, trims=reader.kept(seq), log_end=log_end)
        proposal = Proposal(draft, reader.no, None if ref is None else ref.seq, riders)
        try:
            made = context.committer.submit(proposal)
        except Conflict as error:
            lost = is_race(error) or context.backend.ref(reader.no, POINTS) != ref
            if log_end is not None or not lost or reader.is_taken(name) or tried == CHANCES_MAX - 1:
                raise
        else:
            return replace(point, seq=made.seq)
    raise AssertionError("unreachable")


def _run_at(context: Context, reader: LogReader, named: Commit) -> RunInfo | None:
    """Returns the unfinished run of the commit's branch, if there is one."""
    runs = context.backend.runs(RunQuery(agent=reader.name, unfinished=True))
    ours = [run for run in runs if run.branch == named.branch and run.agent_no == reader.no]
    return next((run for run in ours if 0 < run.started <= named.seq), None)


def last_place(reader: LogReader, seq: int, run: RunInfo) -> str | None:
    """Returns the last place of a run as of a commit, if that is near."""
    for number, commit in enumerate(reader.ancestors(seq, damaged="all")):
        if number == FIRST_LOOK or commit.seq < run.started:
            return None
        if commit.cause.run == run.id and commit.cause.step:
            return commit.cause.step
    return None
