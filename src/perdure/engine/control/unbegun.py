"""Runs that were requested and have not begun: cancelled, or set aside for a person, at once and
from any process, whether or not somebody serves their functions.

The log says of such a run that it began, and in the same commit how that came out: so it has a row
like every run. The commit takes the request out of the inbox, as a worker's begin does. Only one of
the two gets it (I2), so what is cancelled here never executes, and what executes is cancelled like
any run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from perdure.core.format.records import Record, RunCancelled, Stopped
from perdure.core.schema.schema import Schema
from perdure.engine.control.agent_deletion import any_branch
from perdure.engine.execution.wakeups import Wakeups
from perdure.engine.functions.orders import Order, begun_row
from perdure.errors import Conflict, NotFound, PerdureError
from perdure.model import MAIN, AgentInfo, Cause, Message, RunInfo
from perdure.state.context import Context
from perdure.state.creation import create_along
from perdure.state.initial_state import FirstState
from perdure.state.runs.family_messages import to_parents
from perdure.state.runs.run_rows import row_text
from perdure.state.runs.unused_signals import Unused
from perdure.state.stateless_commits import note, note_on_new_branch
from perdure.state.working_copy import WorkingCopy
from perdure.storage.appending import Riders
from perdure.storage.capabilities import RunQuery
from perdure.storage.log.proposals import HERE
from perdure.storage.log.reader import LogReader
from perdure.storage.log.refusals import HeldError
from perdure.storage.retention import REQUESTS
from perdure.system.backoff import chances

Noted = Callable[[Order, Unused], tuple[Cause, Riders]]
"""Returns the commit for the request of a run, and what is in the run's inbox."""


def end_unbegun(context: Context, wakeups: Wakeups, run: str, why: str) -> bool:
    """Cancels a run that has not begun; those that wait for its end are told in the same commit.

    Args:
        why: the reason, unless one was given before.

    Returns:
        False if nothing is changed: it has begun; or an older version requested it, on an agent
        that is not there, and did not say what to create that with.

    Raises:
        Conflict: others keep writing to it.
        ClosedError: the store, or the agent, takes no writes.
    """

    def cancelled(order: Order, mail: Unused) -> tuple[Cause, Riders]:
        riders = ended_at_once(order.begin(run), begun_row(order, run, order.branch), mail, why)
        said = str(mail.cancels[0].value or "") if mail.cancels else why
        return Cause("run-cancelled", said, run=run, trace=order.trace), riders

    return _note(context, wakeups, run, cancelled, anywhere=True)


def ended_at_once(began: Record, row: RunInfo, mail: Unused, why: str) -> Riders:
    """Returns the additions to the commit with which a run begins and is cancelled.

    Args:
        row: that of the run when it has begun.
        mail: what is in its inbox: nothing else may come meanwhile.
        why: the reason, unless one was given before.
    """
    said = str(mail.cancels[0].value or "") if mail.cancels else why
    row = replace(row, status="cancelled", ended=HERE, problem=row_text(said) or "by request")
    return Riders(
        records=[began, *mail.records(RunCancelled(run=row.id, why=said))],
        runs=[row],
        sends=to_parents(row, mail.asked[1:]),
        consumed=mail.consumed,
        read_to=mail.read_to,
        fresh=[row.id],
        sync=True,
    )


def stop_unbegun(context: Context, wakeups: Wakeups, run: str, problem: str) -> bool:
    """Notes that a run that has not begun needs a person (I8). Resumed, it begins. One whose branch
    was deleted is cancelled: it could begin nowhere.

    Returns:
        False if nothing is changed; see `end_unbegun`.

    Raises:
        Conflict: an executor has the branch, the run was asked to end, or others keep writing.
        ClosedError: the store, or the agent, takes no writes.
    """

    def stopped(order: Order, mail: Unused) -> tuple[Cause, Riders]:
        if mail.cancels:
            raise AskedToEndError("was asked to end", target=f"run {run}")
        row = begun_row(order, run, order.branch)
        row = replace(row, status="needs_attention", problem=row_text(problem))
        riders = Riders(
            records=[order.begin(run), Stopped(run=run, problem=problem)],
            runs=[row],
            consumed=[one.no for one in mail.asked],
            read_to=mail.read_to,  # a request to end that comes meanwhile is not passed over
            fresh=[run],
            sync=True,
        )
        return Cause("run-stopped", run=run, trace=order.trace), riders

    try:
        return _note(context, wakeups, run, stopped, anywhere=False)
    except BranchGoneError as gone:
        return end_unbegun(context, wakeups, run, str(gone.problem))


def end_told(context: Context, wakeups: Wakeups, sent: Iterable[Message]) -> None:
    """Ends those runs that were just asked to end and have not begun: nobody else may do it. What
    is refused now is left to who begins them."""
    for message in sent:
        if message.kind == "cancel":
            with suppress(PerdureError):
                end_unbegun(context, wakeups, message.run, str(message.value or ""))


def tell_others(context: Context, wakeups: Wakeups, run: str, sent: Iterable[Message]) -> None:
    """Wakes those that the end of a run concerns, and ends those of them that have not begun."""
    sent = [*sent]
    wakeups.tell(run, *(message.run for message in sent))
    end_told(context, wakeups, sent)


class BranchGoneError(NotFound):
    """The branch was deleted that the run was to begin on."""


class AskedToEndError(Conflict):
    """The run was asked to end: it is not to be kept for a person."""


def _note(context: Context, wakeups: Wakeups, run: str, noted: Noted, *, anywhere: bool) -> bool:
    """Commits what is noted of a request.

    Args:
        anywhere: on another branch if an executor has the agent's.
    """
    backend, lost = context.backend, None
    for _ in chances():
        mail = Unused.read(backend, run)
        if not mail.asked or backend.runs(RunQuery(run_id=run)):
            return False
        order = Order.asked(mail.asked[0])
        info = backend.agent(order.agent)
        if order.run_id_beside(info) != run:
            return False  # of an incarnation that is deleted, or yet to come
        cause, riders = noted(order, mail)
        try:
            if info is not None and not info.deleted:
                _commit(context, info, order.branch, cause, riders, anywhere=anywhere)
            elif order.first is None:
                return False
            else:
                _create_with(context, order, cause, riders)
        except (HeldError, AskedToEndError):
            raise
        except Conflict as error:  # a worker began it, a message came, the agent was made
            lost = error
            continue
        tell_others(context, wakeups, run, riders.sends)
        return True
    assert lost is not None
    raise lost


def _commit(
    context: Context,
    info: AgentInfo,
    branch: str,
    cause: Cause,
    riders: Riders,
    *,
    anywhere: bool,
) -> None:
    reader = LogReader(context.backend, info)
    refs = context.backend.refs(info.no)
    if not any(ref.name == branch and not ref.deleted for ref in refs):
        if not anywhere and branch != MAIN:  # resumed, it would go on on another one
            raise BranchGoneError(f"its branch {branch!r} was deleted", target=f"agent {info.name}")
        branch = any_branch(refs)
    head = reader.peek(reader.ref(branch).seq)
    try:
        note(context, reader, branch, head, cause, _on(branch, riders))
    except HeldError:
        if not anywhere:
            raise
        there, riders = context.backend.ref(info.no, REQUESTS), _on(REQUESTS, riders)
        if there is None:
            note_on_new_branch(context, reader, REQUESTS, head, cause, riders)
        else:
            note(context, reader, REQUESTS, reader.peek(there.seq), cause, riders)


def _create_with(context: Context, order: Order, cause: Cause, riders: Riders) -> None:
    """Creates the agent as the request says, under the schema of who made it: that is not here."""
    assert order.first is not None
    schema: Schema[Any] = Schema(Any)
    schema.id, schema.version = order.first.schema, order.first.version
    initial = FirstState(order.first.state)
    create_along(WorkingCopy(context, order.agent, schema, MAIN, initial), cause, riders, None)


def _on(branch: str, riders: Riders) -> Riders:
    rows: list[RunInfo] = [replace(row, branch=branch) for row in riders.runs]
    return replace(riders, runs=rows)
