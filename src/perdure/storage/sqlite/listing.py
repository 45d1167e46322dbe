"""Rows of agents and of their names, put back as a log has them: for `perdure.repair`."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from perdure.model import AgentInfo
from perdure.storage.port import Ref
from perdure.storage.sqlite.rows import from_checkpoint


def list_agent(db: apsw.Connection, info: AgentInfo) -> None:
    db.execute(
        "INSERT INTO agents (no, name, incarnation, deleted) VALUES (?, ?, ?, ?)",
        (info.no, info.name, info.incarnation, int(info.deleted)),
    )


def put_names(db: apsw.Connection, no: int, refs: Sequence[Ref]) -> None:
    """Nobody holds a lease then: of what was lost nobody knows who did."""
    for ref in refs:
        point = None if ref.checkpoint is None else from_checkpoint(ref.checkpoint)
        db.execute(
            "INSERT OR REPLACE INTO refs (agent_no, name, kind, seq, deleted, epoch, checkpoint) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (no, ref.name, ref.kind, ref.seq, int(ref.deleted), ref.epoch, point),
        )
