"""An agent and a run read at once: the rows of one statement, as what was seen."""

from __future__ import annotations

from typing import Any

import msgspec
from psycopg.pq.abc import PGresult

from perdure.model import MAIN, AgentInfo, Message, RunInfo
from perdure.storage.appending import Ref
from perdure.storage.port import StoredCommit
from perdure.storage.postgres.rows import from_text, to_message, to_ref, to_run
from perdure.storage.shortcuts import AgentAndRun

_fields = msgspec.json.Decoder(list[Any]).decode


def seen(result: PGresult, begin: int, run: str) -> AgentAndRun:
    """Returns what the rows of `look_1` hold: each row has its kind, its fields, and its bytes.

    Args:
        begin: the column of the first of these.
    """
    agent: AgentInfo | None = None
    ref: Ref | None = None
    runs: list[RunInfo] = []
    messages: list[Message] = []
    commits: list[StoredCommit] = []
    for row in range(result.ntuples):
        what, text, first, second = (result.get_value(row, begin + field) for field in range(4))
        if what is None:
            break  # nothing was looked at
        fields = _fields(text or b"")
        match what:
            case b"agent":
                no, name, incarnation, deleted, seq, purged = fields
                agent = AgentInfo(from_text(name), no, incarnation, deleted, seq, purged)
            case b"ref":
                ref = to_ref((*fields, first))
            case b"run":
                fields[10] = first
                runs.append(to_run(fields))
            case b"message":
                fields[5] = first
                messages.append(to_message(fields))
            case b"commit":
                commits.append(StoredCommit(fields[0], first or b"", second or b"", fields[1]))
    branch = next((row.branch for row in runs if row.id == run), MAIN)
    return AgentAndRun(agent, runs, messages, branch, ref, commits)
