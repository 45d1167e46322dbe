"""Commits that add records and leave the state as it is: they read nothing of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.core.arguments.names import check_cause
from perdure.core.format import chain
from perdure.core.format.records import Record
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
    draft = without_delta(reader, branch, head, cause, riders.records, context.executor)
    return context.committer.submit(Proposal(draft, reader.no, head.seq, riders))


def note_on_new_branch(
    context: Context, reader: LogReader, branch: str, origin: Commit, cause: Cause, riders: Riders
) -> Committed:
    """Commits records as the first commit of a new branch, whose state is that of `origin`. Atomic.

    Raises:
        Conflict: the name is taken.
    """
    check_cause(cause)
    draft = without_delta(reader, branch, origin, cause, riders.records, context.executor)
    return context.committer.submit(Proposal(draft, reader.no, None, riders))


def without_delta(
    reader: LogReader,
    branch: str,
    parent: Commit,
    cause: Cause,
    records: Sequence[Record | Mapping[str, Any]],
    executor: str,
    epoch: int = 0,
) -> chain.Draft:
    """Returns the draft of a commit with the state of `parent`, under its schema."""
    return chain.Draft(
        reader.name,
        reader.incarnation,
        branch,
        (parent.seq,),
        parent.schema_id,
        parent.schema_version,
        executor,
        epoch,
        cause,
        chain.pack_payload((), records),
        parent.id,
    )
