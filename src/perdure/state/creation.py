"""Creation of an agent together with its first commit: both are in the log, or neither."""

from __future__ import annotations

from typing import Any

from perdure.core.arguments.names import check_cause
from perdure.core.format import chain
from perdure.errors import Conflict
from perdure.model import Cause
from perdure.state.working_copy import WorkingCopy, drive
from perdure.storage.appending import Riders
from perdure.storage.log.proposals import Committed, Proposal


def create_along(
    working: WorkingCopy[Any], cause: Cause, riders: Riders, epoch: int | None
) -> tuple[Committed, Committed]:
    """Creates the agent and commits its first change, in one transaction: under an epoch, or, with
    None, without a lease.

    Returns:
        Both commits.

    Raises:
        Conflict: the agent is in the log already.
        as `Committer.submit`: neither commit is in the log.
    """
    cause = working.traced(cause)
    check_cause(cause)
    draft = chain.Draft(
        working.name,
        working.incarnation,
        working.branch,
        (1,),
        *working.schema_to_write,
        working.context.executor,
        epoch or 0,
        cause,
        chain.pack_payload((), riders.records),
    )
    along = Proposal(draft, None, 1, riders, epoch)
    created = drive(working.context, working.creating(along=along))
    if created is None or along.committed is None:
        raise Conflict(
            "the agent was created in the meantime",
            target=f"agent {working.name!r}",
            hint="open it again",
        )
    return created, along.committed
