"""The deletion of agents, along with their runs, on whatever branch they are, and with what was
requested of them and has not begun."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from perdure.core.format import chain
from perdure.core.format.records import Deleted, RunCancelled
from perdure.core.schema.schema import Schema
from perdure.core.values import ops
from perdure.engine.functions.run_lookup import never_begun
from perdure.errors import Conflict, Corrupt, Hint, NotFound, PerdureError, UnsupportedFormat
from perdure.model import MAIN, AgentInfo, Cause, Commit, Message
from perdure.state.context import Context
from perdure.state.runs.family_messages import to_family, to_parents
from perdure.state.runs.run_rows import DELETED
from perdure.state.stateless_commits import without_delta
from perdure.storage.appending import NOTHING, Ref, Riders
from perdure.storage.capabilities import Backend, RunQuery
from perdure.storage.log.proposals import HERE, Committed, Proposal
from perdure.storage.log.reader import LogReader
from perdure.storage.log.refusals import HeldError, held_error
from perdure.system.backoff import chances

BATCH = 128
"""The number of agents that are deleted in one transaction: others wait for that long."""

SETTLE_S = 5.0
"""The time in which a branch becomes free that is held although no run of it is executed: a worker
looks whether there is something to do."""

AGAIN_S = 0.01


def delete_agents(
    context: Context, names: Sequence[str], *, purge: bool
) -> tuple[list[Message], dict[str, PerdureError]]:
    """Deletes agents, each in whole or not at all. What is committed, or asked of one, beside the
    look at its runs is looked at, too (I8).

    Returns:
        The messages that tell other runs of the ends of theirs; and by name the errors of those
        that are not deleted, as of `delete_agent`.
    """
    told: list[Message] = []
    refused: dict[str, PerdureError] = {}
    for first in range(0, len(names), BATCH):
        part = names[first : first + BATCH]
        planned: dict[str, Proposal] = {}
        for name in part:
            with suppress(PerdureError):  # alone, it is tried again, and says what is wrong
                planned[name] = _deletion(context, name, purge=purge)
        made = context.committer.submit_all([*planned.values()]) if planned else []
        done = {
            name: proposal
            for (name, proposal), outcome in zip(planned.items(), made, strict=True)
            if isinstance(outcome, Committed)
        }
        for name in part:
            try:
                told += _sent(done[name]) if name in done else delete_agent(context, name, purge)
            except PerdureError as error:
                refused[name] = error
    return told, refused


def delete_agent(context: Context, name: str, purge: bool) -> Sequence[Message]:
    """Deletes an agent; returns the messages that tell other runs of the ends of its own.

    Raises:
        NotFound: there is no such agent, and no run of one is requested.
        Conflict: a living executor is running it; or others keep committing to it.
    """
    lost: Conflict | None = None
    until = time.monotonic() + SETTLE_S
    for _ in chances():
        try:
            proposal = _deletion(context, name, purge=purge)
            context.committer.submit(proposal)
            return _sent(proposal)
        except HeldError as held:
            if time.monotonic() > until or _is_executed(context.backend, name):
                raise HeldError(
                    held.problem,
                    target=held.target,
                    hint=Hint.RUN_EXECUTED,
                    branch=held.branch,
                    holder=held.holder,
                    held=held.held,
                ) from None
            lost = held
            time.sleep(AGAIN_S)
        except Conflict as error:
            lost = error
    assert lost is not None
    raise lost


def _is_executed(backend: Backend, name: str) -> bool:
    rows = backend.runs(RunQuery(agent=name, unfinished=True))
    return any(row.status == "running" for row in rows)


def _sent(proposal: Proposal) -> Sequence[Message]:
    return (proposal.then or proposal).riders.sends


def _deletion(context: Context, name: str, *, purge: bool) -> Proposal:
    """Returns the commit that deletes an agent.

    Raises:
        NotFound, HeldError: see `delete_agent`.
    """
    info = context.backend.agent(name)
    if info is not None and not info.deleted:
        return _of_agent(context, info, purge=purge)
    asked = context.backend.inbox(agent=name, kind="start")
    if not asked:
        raise NotFound("there is no such agent", target=f"agent {name!r}")
    return _of_requests(context, name, info, asked, purge=purge)


def _of_requests(
    context: Context, name: str, before: AgentInfo | None, asked: Sequence[Message], *, purge: bool
) -> Proposal:
    """Returns the commits that make and delete an agent of which runs are requested, and nothing
    else is there. So it is deleted like any other: in the log, and in copies; who is late with it,
    or begins a run at this moment, comes too late; and its name's next agent is another one."""
    schema = Schema.of(None)
    number = 1 if before is None else before.incarnation + 1

    def draft(parents: tuple[int, ...], kind: str, payload: chain.Payload) -> chain.Draft:
        under = schema.id, schema.version, context.executor, 0
        return chain.Draft(name, number, MAIN, parents, *under, Cause(kind), payload)

    riders = _riders([], asked, Deleted(purge=purge, began=context.backend.now()))
    deleted = draft((1,), "delete", chain.pack_payload((), riders.records))
    made = draft((), "create", chain.pack_payload([ops.Set((), {})], ()))
    return Proposal(made, None, None, NOTHING, then=Proposal(deleted, None, 1, riders))


def any_branch(refs: Sequence[Ref]) -> str:
    """Returns main, or another branch if main was deleted."""
    names = [ref.name for ref in refs if ref.kind == "branch" and not ref.deleted]
    return MAIN if MAIN in names or not names else names[0]


def _of_agent(context: Context, info: AgentInfo, *, purge: bool) -> Proposal:
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
    told = [one for run in cancelled for one in to_family(backend, run, reader, beside=cancelled)]
    riders = _riders(told, asked, Deleted(purge=purge, began=_began(reader)))

    def proposal(on: Commit, kind: str, riders: Riders) -> Proposal:
        draft = without_delta(reader, branch, on, Cause(kind), riders.records, context.executor)
        return Proposal(draft, reader.no, on.seq, riders)

    if not cancelled:
        return proposal(head, "delete", replace(riders, log_end=end))
    ends = Riders([RunCancelled(run=run.id, why=DELETED) for run in cancelled], runs=cancelled)
    if not purge:
        records = [*ends.records, *riders.records]
        return proposal(
            head, "delete", replace(riders, records=records, runs=cancelled, log_end=end)
        )
    # The ids of runs have users' words in them, their keys: not in the commit that a purge keeps.
    first = proposal(head, "run-cancelled", replace(ends, log_end=end))
    first.then = proposal(replace(head, seq=end + 1, id=b""), "delete", riders)
    return first


def _riders(told: Sequence[Message], asked: Sequence[Message], deleted: Deleted) -> Riders:
    """Returns what happens along with a deletion. `told`: the messages of runs that it ends;
    `asked`: the requests that it takes along."""
    return Riders(
        [deleted],
        delete_agent=True,
        purge=bool(deleted.purge),
        consumed=[message.no for message in asked],
        starts_read=True,
        sends=[*told, *(one for start in asked for one in to_parents(never_begun(start)))],
    )


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
