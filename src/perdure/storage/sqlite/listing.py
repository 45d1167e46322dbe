"""Rows of agents and of their names, restored from a log: for `perdure.repair`."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from perdure.model import AgentInfo
from perdure.storage.appending import Ref
from perdure.storage.sqlite.rows import do, from_checkpoint


def list_agent(db: apsw.Connection, info: AgentInfo) -> None:
    do(db, "list_again", (info.no, info.name, info.incarnation, int(info.deleted)))


def put_names(db: apsw.Connection, no: int, refs: Sequence[Ref]) -> None:
    for ref in refs:
        point = None if ref.checkpoint is None else from_checkpoint(ref.checkpoint)
        do(
            db,
            "put_ref",
            (no, ref.name, ref.kind, ref.seq, int(ref.deleted), ref.epoch, point),
        )
