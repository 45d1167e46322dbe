"""Queries for rows of runs: the conditions, and so the index, for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from perdure.model import UNFINISHED, RunInfo
from perdure.storage.capabilities import RunQuery
from perdure.storage.postgres.connection import Connection
from perdure.storage.postgres.rows import text, to_run

_CONDITIONS: dict[str, str] = {
    "agent": "r.agent = %(agent)s",
    "run_id": "r.id = %(run_id)s",
    "function": "r.function = %(function)s",
    "parent": "r.parent = %(parent)s",
    "status": "r.status = ANY (%(status)s::text[])",
    "behind": "r.place > %(behind)s",
    "before": "r.place < %(before)s",
}
"""The conditions of a list, by the name of their values."""


def list_runs(db: Connection, sql: Mapping[str, str], query: RunQuery) -> list[RunInfo]:
    """See `RunRows.runs`."""
    status = query.status
    if status is not None and query.unfinished:
        status = [one for one in status if one in UNFINISHED]
    values: dict[str, Any] = {
        "agent": None if query.agent is None else text(query.agent),
        "run_id": None if query.run_id is None else text(query.run_id),
        "function": None if query.function is None else text(query.function),
        "parent": None if query.parent is None else text(query.parent),
        "status": None if status is None else list(status),
        "limit": query.limit,
    }
    if query.after is not None:
        found = db.execute(sql["find_run_place"], (text(query.after),)).fetchone()
        if found is None:
            return []
        values["before" if query.newest_first else "behind"] = found[0]
    chosen: list[str] = [
        condition for name, condition in _CONDITIONS.items() if values.get(name) is not None
    ]
    if query.unfinished or (values["status"] and set(values["status"]) <= set(UNFINISHED)):
        chosen.append(sql["unfinished"])  # as the indexes have it, so that they serve
    where: str = " AND ".join(chosen) or "true"
    order: str = "DESC" if query.newest_first else "ASC"
    statement = sql["list_runs"].replace("{conditions}", where).replace("{order}", order)
    rows = db.cursor(binary=True).execute(statement, values).fetchall()
    return [to_run(row) for row in rows]


def list_ready(
    db: Connection,
    sql: Mapping[str, str],
    at: int,
    limit: int,
    now: int | None,
    ours: Iterable[str],
) -> list[RunInfo]:
    """See `Backend.ready`.

    Args:
        at: the moment of the query.
        now: the moment that decides whether others live; None: the database's own time.
        ours: executors of this process.
    """
    values = {"at": at, "limit": limit, "now": now, "ours": [text(one) for one in ours]}
    rows = db.cursor(binary=True).execute(sql["list_ready"], values).fetchall()
    by_id: dict[str, RunInfo] = {}
    for _, _, _, *fields in rows:
        row = to_run(fields)
        by_id.setdefault(row.id, row)
    return list(by_id.values())
