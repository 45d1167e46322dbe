"""An agent and a run read at once: in one transaction, and so at one moment."""

from __future__ import annotations

from typing import Any

import apsw

from perdure.errors import Corrupt
from perdure.model import MAIN, AgentInfo
from perdure.storage.shortcuts import AgentAndRun
from perdure.storage.sqlite.faults import RESTORE, MisplacedError
from perdure.storage.sqlite.feed import PURGED
from perdure.storage.sqlite.inbox import messages
from perdure.storage.sqlite.rows import NO_MAX, SEQ_MAX, find_ref, run, span, to_run
from perdure.storage.wanted import InboxQuery

DELETED = (0, 1, PURGED)
"""The possible values of the column of that name."""


def look(db: apsw.Connection, agent: str, run_id: str) -> AgentAndRun:
    """See `Looks.look`."""
    db.execute("BEGIN")
    seen = _look(db, agent, run_id)
    db.execute("COMMIT")
    return seen


def _look(db: apsw.Connection, agent: str, run_id: str) -> AgentAndRun:
    info = find_agent(db, agent)
    runs = [to_run(row) for row in run(db, "list_unfinished_of_agent", (agent,))]
    ours = next((row for row in runs if row.id == run_id), None)
    if ours is None and (found := run(db, "find_run", (run_id,))):
        ours = to_run(found[0])
        runs.insert(0, ours)
    branch = ours.branch if ours is not None else MAIN
    ref = find_ref(db, info.no, branch) if info is not None else None
    return AgentAndRun(info, runs, messages(db, InboxQuery(run_id)), branch, ref, ())


def find_agent(db: apsw.Connection, name: str, incarnation: int | None = None) -> AgentInfo | None:
    """Returns an agent's latest incarnation, or a certain one."""
    rows = run(db, "find_agent", (name, incarnation))
    return info_of(db, rows[0]) if rows else None


def info_of(db: apsw.Connection, row: Any) -> AgentInfo:
    """Returns what a row of agents, and its log's end, say."""
    no, name, incarnation, deleted = row[:4]
    if not 0 < no <= NO_MAX:
        raise Corrupt(f"an agent has the number {no}", target=f"agent {name!r}", hint=RESTORE)
    if deleted not in DELETED or type(incarnation) is not int:
        raise MisplacedError
    last = run(db, "last_place", span(no))
    seq = last[0][0] & SEQ_MAX if last else 0
    return AgentInfo(name, no, incarnation, bool(deleted), seq, deleted == PURGED)
