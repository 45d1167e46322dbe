"""Listing runs: those that began, and those that are requested and have not."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.core.arguments.checks import count, flags
from perdure.core.arguments.names import check_name, check_words
from perdure.engine.functions.run_lookup import asked_for, statuses_of
from perdure.model import RunInfo, RunStatus
from perdure.storage.capabilities import Backend, RunQuery


def wanted_runs(
    agent: str | None,
    *,
    unfinished: bool,
    status: Sequence[RunStatus] | None,
    function: str | None,
    parent: str | None,
    limit: int | None,
    newest_first: bool,
) -> RunQuery:
    """Returns the query of `Store.runs`.

    Raises:
        TypeError, ValueError: an argument is invalid.
    """
    agent = None if agent is None else check_name(agent, "an agent")
    flags(unfinished=unfinished, newest_first=newest_first)
    function = None if function is None else check_words(function, "function=")
    parent = None if parent is None else check_words(parent, "parent=")
    status = None if status is None else statuses_of(status)
    limit = None if limit is None else count(limit, "limit=")
    return RunQuery(
        agent=agent,
        unfinished=unfinished,
        status=status,
        function=function,
        parent=parent,
        limit=limit,
        newest_first=newest_first,
    )


def list_runs(backend: Backend, query: RunQuery) -> list[RunInfo]:
    """Returns the runs that a query means, oldest first, or newest first; requested ones that have
    not begun are the newest."""
    # First what has not begun: a run that begins between the two looks is in the second.
    asked: list[RunInfo] = []
    if query.status is None or "pending" in query.status:
        messages = backend.inbox(
            agent=query.agent,
            kind="start",
            name=query.function,
            limit=query.limit if query.parent is None else None,
            newest_first=query.newest_first,
        )
        asked = [one for one in map(asked_for, messages) if query.parent in (None, one.parent)]
    found = backend.runs(query)
    begun = {run.id for run in found}
    new = [run for run in asked if run.id not in begun]
    return ([*new, *found] if query.newest_first else [*found, *new])[: query.limit]
