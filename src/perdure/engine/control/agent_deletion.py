"""The deletion of an agent, along with its runs, on whatever branch they are."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from perdure.core.format.records import Deleted, RunCancelled
from perdure.engine.functions.run_lookup import never_begun
from perdure.errors import Conflict, Corrupt, UnsupportedFormat
from perdure.model import MAIN, AgentInfo, Cause, Message
from perdure.state.context import Context
from perdure.state.runs.family_messages import to_family, to_parents
from perdure.state.runs.run_rows import DELETED
from perdure.state.stateless_commits import note
from perdure.storage.appending import Ref, Riders
from perdure.storage.capabilities import Backend, RunQuery
from perdure.storage.log.proposals import HERE
from perdure.storage.log.reader import LogReader
from perdure.storage.log.refusals import HeldError, held_error
from perdure.system.backoff import chances


def delete_agent(context: Context, info: AgentInfo, *, purge: bool) -> Sequence[Message]:
    """Deletes an agent; returns the messages that tell other runs of the ends of its own. What is
    committed, or asked of it, beside the look at its runs is looked at, too (I8).

    Raises:
        NotFound: it was deleted meanwhile.
        Conflict: a living executor is running it; or others keep committing to it.
    """
    lost: Conflict | None = None
    for _ in chances():
        try:
            return _delete(context, info, purge=purge)
        except HeldError:
            raise
        except Conflict as error:
            lost = error
    assert lost is not None
    raise lost


def any_branch(refs: Sequence[Ref]) -> str:
    """Returns main, or another branch if main was deleted."""
    names = [ref.name for ref in refs if ref.kind == "branch" and not ref.deleted]
    return MAIN if MAIN in names or not names else names[0]


def _delete(context: Context, info: AgentInfo, *, purge: bool) -> Sequence[Message]:
    backend = context.backend
    reader = LogReader(backend, info)
    end = reader.last_seq()  # read first: what comes behind it is noticed
    refs = backend.refs(info.no)
    branch = any_branch(refs)
    _take_from_the_dead(backend, info, [ref for ref in refs if ref.name != branch])
    head = reader.peek(reader.ref(branch).seq)
    cancelled = [
        replace(run, status="cancelled", ended=HERE, problem=DELETED, wake_at_micros=0, waits="")
        for run in backend.runs(RunQuery(agent=info.name, unfinished=True))
        if run.agent_no == info.no
    ]
    asked = backend.inbox(agent=info.name, kind="start")
    riders = Riders(
        [
            *(RunCancelled(run=run.id) for run in cancelled),
            Deleted(purge=purge, began=_began(reader)),
        ],
        runs=cancelled,
        delete_agent=True,
        purge=purge,
        consumed=[message.no for message in asked],
        starts_read=True,
        log_end=end,
        sends=[
            *(
                one
                for run in cancelled
                for one in to_family(backend, run, reader, beside=cancelled)
            ),
            *(message for start in asked for message in to_parents(never_begun(start))),
        ],
    )
    note(context, reader, branch, head, Cause("delete"), riders)
    return riders.sends


def _began(reader: LogReader) -> int:
    """Returns the time of a log's first commit; 0 if it cannot be read."""
    with suppress(Corrupt, UnsupportedFormat):
        return reader.commit(1).at_micros
    return 0


def _take_from_the_dead(backend: Backend, info: AgentInfo, refs: Sequence[Ref]) -> None:
    """Takes the leases of branches whose owners are dead: they are fenced from then on (I4).

    Raises:
        HeldError: an owner is alive.
    """
    for ref in refs:
        if ref.held is not None:
            if backend.alive(ref.holder or ""):
                raise held_error(info.name, ref)
            backend.lease(info.no, ref.name, None, over=ref.held)
