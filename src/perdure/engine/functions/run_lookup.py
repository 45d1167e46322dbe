"""Looking runs up, those included that were asked for and have not begun."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from perdure.core.arguments.checks import one_of
from perdure.core.arguments.names import words_of
from perdure.engine.functions.orders import Order
from perdure.errors import Conflict, NotFound
from perdure.model import FINISHED, UNFINISHED, Message, RunInfo, RunStatus
from perdure.state.runs.run_rows import DELETED
from perdure.storage.capabilities import SHIPPING, Backend, RunQuery
from perdure.storage.standing import ClosedError, closed_error, read_why


def find_run(backend: Backend, run: str) -> RunInfo:
    """Returns a run by its id.

    Raises:
        NotFound: there is no such run.
    """
    found = backend.runs(RunQuery(run_id=run))
    if found:
        return found[0]
    asked = backend.inbox(run, kind="start")
    if asked:
        return asked_for(asked[0])
    found = backend.runs(RunQuery(run_id=run))  # it may have begun between the two looks
    if not found:
        raise NotFound("there is no such run", target=f"run {run}")
    return found[0]


def is_known(backend: Backend, run: str) -> bool:
    """True if a run has begun, or was asked for."""
    return bool(backend.inbox(run, kind="start") or backend.runs(RunQuery(run_id=run)))


def asked_for(message: Message) -> RunInfo:
    """The row of a run that was asked for and has not begun: ``pending``, with `started` 0."""
    order = Order.asked(message)
    return RunInfo(
        message.run,
        message.agent,
        0,
        order.branch,
        order.function,
        order.key,
        "pending",
        0,
        args=order.args,
        version=order.version,
        queue=order.queue,
        parent=order.parent,
        started_at_micros=message.at_micros,
        changed_at_micros=message.at_micros,
    )


def refuse_moved(backend: Backend, info: RunInfo) -> None:
    """Refuses to wait for a run that goes on in another store.

    Raises:
        ClosedError: its agent, or the whole store, was moved; it says where to.
    """
    elsewhere = find_moved(backend, info)
    if elsewhere is not None:
        raise elsewhere


def find_moved(backend: Backend, info: RunInfo) -> ClosedError | None:
    """Returns the error that says where a run's agent, or the whole store, was moved to; None if
    the run ended here, or goes on here."""
    if SHIPPING not in backend.capabilities or info.status in FINISHED:
        return None
    own = backend.standing(info.agent_no) if info.agent_no else None
    standing = own or backend.standing()
    why = read_why(standing)
    if why is None or not why.closed or why.kind != "moved":
        return None
    return closed_error(standing, f"agent {info.agent!r}" if own else f"store {backend.url}")


def refuse_not_begun(info: RunInfo) -> None:
    """Refuses a run that has not begun, for operations on its steps and log.

    Raises:
        Conflict: it was requested, and has neither yet.
    """
    if not info.started:
        raise Conflict(
            f"is {info.status}: it has not begun",
            target=f"run {info.id}",
            hint="let a worker, or its program, begin it; or cancel it",
        )


def never_begun(message: Message) -> RunInfo:
    """The row of a run that was asked for, and cannot begin: its agent was deleted."""
    return replace(asked_for(message), status="cancelled", problem=DELETED)


def statuses_of(given: Sequence[RunStatus]) -> list[RunStatus]:
    """Returns the given statuses. Raises TypeError, ValueError if one is not a status of a run."""
    words: Any = words_of(given, "status")
    every: tuple[RunStatus, ...] = (*UNFINISHED, *FINISHED)
    return [one_of(word, "status=", every) for word in words]
