"""Runs of an incoming log, and other runs with the same ids: refused, if one would be taken for the
other.

A run that waits for a child whose id a stranger has is taken in, and waits: `why` says so. But if
that stranger was started by a run of the same id, in another store, no row tells them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perdure.core.format.rows import order_of
from perdure.errors import Conflict
from perdure.model import RunInfo
from perdure.state.runs.parentage import Origin
from perdure.storage.capabilities import Backend
from perdure.transfer.retold_messages import RequestedRun, Ties, ties_of
from perdure.visible import visible

FindId = Callable[[int], bytes | None]


def refuse_strangers(
    backend: Backend, rows: Mapping[str, RunInfo], ties: Ties, find_id: FindId
) -> None:
    """Refuses a log that cannot be taken in because of such runs.

    Args:
        rows, ties: those of the log.
        find_id: returns the id of its commit with this seq; None if there is none.

    Raises:
        Conflict: two runs would be taken for each other; it names them.
    """
    for run in rows:
        _refuse_orders(backend, run, ties.origins[run])
    for run, start in ties.started.items():
        if run not in rows:
            _refuse_child(backend, run, start, find_id)
    known: dict[str, Ties] = {}
    for run, row in rows.items():
        if row.parent and row.parent not in rows and not ties.origins[run].is_of(backend):
            if row.parent not in known:
                known[row.parent] = ties_of(backend, row.parent)
            if run in known[row.parent].started:
                raise _another(run, row.parent)


def _refuse_orders(backend: Backend, run: str, origin: Origin) -> None:
    """Refuses a run that was requested here, unless the same caller's request began it in that
    log."""
    for message in backend.inbox(run, kind="start"):
        asked = Origin.begun(order_of(message.value))
        same = asked.parent == origin.parent and origin.is_of(backend)
        if asked.args != origin.args or not (same or not asked.parent):
            by = f"run {visible(asked.parent)}" if asked.parent else "somebody else"
            raise _refused(run, f"has begun in it, but was requested here by {by}")


def _refuse_child(backend: Backend, run: str, start: RequestedRun, find_id: FindId) -> None:
    origin = Origin.find(backend, run)
    if origin is None or origin.parent != start.by:
        return
    at = origin.at
    if origin.args != start.args or (at is not None and find_id(at[0]) != at[1]):
        raise _another(run, start.by)


def _another(run: str, parent: str) -> Conflict:
    return _refused(
        run, f"was started by run {visible(parent)}, and by another one of that id in another store"
    )


def _refused(run: str, problem: str) -> Conflict:
    return Conflict(
        problem,
        target=f"run {visible(run)}",
        hint="nothing was written; import into a store that has no run of that id",
    )
