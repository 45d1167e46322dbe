"""Commits that add records and leave the state as it is: they read nothing of it."""

from __future__ import annotations

from perdure.core.arguments.names import check_cause
from perdure.core.format import chain
from perdure.model import Cause, Commit
from perdure.state.context import Context
from perdure.storage.appending import Riders
from perdure.storage.log.proposals import Committed, Proposal
from perdure.storage.log.reader import LogReader


def note(
    context: Context, reader: LogReader, branch: str, head: Commit, cause: Cause, riders: Riders
) -> Committed:
    """Commits records after the branch's head, under the schema of the head. Atomic.

    Args:
        head: the head on which the records are based.

    Raises:
        Conflict: the head has moved since, or a living executor holds the branch.
        NotFound: there is no such branch any more.
    """
    check_cause(cause)
    draft = chain.Draft(
        reader.name,
        reader.incarnation,
        branch,
        (head.seq,),
        head.schema_id,
        head.schema_version,
        context.executor,
        0,
        cause,
        chain.pack_payload([], riders.records),
    )
    return context.submit(Proposal(draft, reader.no, head.seq, riders))
