"""Queries for rows of runs: the statement, and so the index, for each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import apsw

from perdure.model import UNFINISHED, RunInfo
from perdure.storage.capabilities import RunQuery
from perdure.storage.sqlite.rows import run, to_run

PLACE_MAX = 2**63 - 1


def list_runs(db: apsw.Connection, query: RunQuery) -> list[RunInfo]:
    """See `RunRows.runs`."""
    low, high, status = 0, PLACE_MAX, query.status
    if query.after is not None:
        found = run(db, "find_run_place", (query.after,))
        if not found:
            return []
        low, high = (0, found[0][0]) if query.newest_first else (found[0][0], PLACE_MAX)
    if query.unfinished:
        status = [one for one in UNFINISHED if status is None or one in status]
    if query.run_id is not None:
        low, high = _narrowed(db, query.run_id, low, high)
    few = status is not None and set(status) <= set(UNFINISHED)
    values: dict[str, Any] = {
        "agent": query.agent,
        "function": query.function,
        "parent": query.parent,
        "low": low,
        "high": high,
        "status": json.dumps(list(status)) if status is not None else None,
        "limit": -1 if query.limit is None else query.limit,
        "direction": -1 if query.newest_first else 1,
        **{one: status is not None and one in status for one in UNFINISHED},
    }
    direction = "down" if query.newest_first else "up"
    whose = "" if query.agent is None else "agents_"
    if not few:
        name = f"list_{whose}runs_{direction}"
    else:
        name = "list_agents_unfinished" if whose else f"list_unfinished_{direction}"
    return [to_run(row) for row in run(db, name, values)]


def _narrowed(db: apsw.Connection, run_id: str, low: int, high: int) -> tuple[int, int]:
    """Returns the bounds of one run's place if it lies between these; else empty bounds."""
    for (place,) in run(db, "find_run_place", (run_id,)):
        if low < place < high:
            return place - 1, place + 1
    return 0, 0


def list_ready(db: apsw.Connection, now: int, limit: int, holders: Iterable[str]) -> list[RunInfo]:
    """See `Backend.ready`; `holders` are living executors: their runs need nobody."""
    first = [to_run(row) for row in run(db, "list_ready", {"now": now, "limit": limit})]
    there = {row.id for row in first}
    values = {"holders": json.dumps(list(holders)), "limit": limit}
    running = [to_run(row) for row in run(db, "list_running", values)]
    return [*first, *(row for row in running if row.id not in there)]
