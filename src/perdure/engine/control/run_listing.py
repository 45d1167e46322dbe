"""Listing runs: those that began, and those that are requested and have not."""

from __future__ import annotations

from perdure.engine.functions.run_lookup import asked_for
from perdure.model import RunInfo
from perdure.storage.capabilities import Backend, RunQuery


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
            limit=query.limit,
            newest_first=query.newest_first,
        )
        asked = [asked_for(one) for one in messages]
    found = backend.runs(query)
    begun = {run.id for run in found}
    new = [run for run in asked if run.id not in begun]
    return ([*new, *found] if query.newest_first else [*found, *new])[: query.limit]
