"""Who takes part in the field, and how each is started."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.peers import restate_server
from bench.peers.places import Place, ServerKind
from bench.peers.process import ROOT, Peer

PERDURE = "Perdure"
ON_POSTGRES = "Perdure, PostgreSQL"
LIMITS = ("append + fdatasync", "a bare INSERT")

PROGRAMS = {
    "perdure_contestant": "Perdure",
    "langgraph_program": "LangGraph",
    "agents_program": "OpenAI Agents",
    "dbos_contestant": "DBOS",
    "restate_contestant": "Restate's SDK",
    "eventsourcing_program": "eventsourcing",
    "plain_program": "SQLite of the bare INSERT",
}
"""What each measures, for the list of versions."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way of one library.

    Attributes:
        environment: of `requirements/peers-….txt`; empty: ours.
        server: what it is given: a database on PostgreSQL, or a server of Restate of its own.
        ours: whether it is Perdure, under any face.
    """

    name: str
    program: str
    options: tuple[str, ...] = ()
    environment: str = ""
    server: ServerKind = ""
    ours: bool = False

    @property
    def python(self) -> Path:
        if not self.environment:
            return Path(sys.executable)
        return ROOT / f".venv-peers-{self.environment}" / "bin" / "python"

    @property
    def is_set_up(self) -> bool:
        if self.server == "restate":
            return not restate_server.missing()
        return not self.environment or (self.python.parents[1] / "stamp").exists()

    def start(self, place: Place, bytecode: Path, under: Sequence[str] = ()) -> Peer:
        """Its program in a new process; it is not waited for."""
        return Peer(
            self.python,
            f"bench.peers.{self.program}",
            place.folder,
            *self.options,
            *place.given,
            bytecode=bytecode,
            under=under,
        )


def _ours() -> list[Contestant]:
    program = "perdure_contestant"
    return [
        Contestant(PERDURE, program, ("edit",), ours=True),
        Contestant("Perdure, as a run", program, ("run",), ours=True),
        Contestant("PerdureSaver", "langgraph_program", ("perdure",), ours=True),
        Contestant(
            "PerdureSaver, DeltaChannel", "langgraph_program", ("perdure", "--delta"), ours=True
        ),
        Contestant("PerdureSession", "agents_program", ("perdure",), ours=True),
        Contestant(ON_POSTGRES, program, ("edit",), server="postgres", ours=True),
    ]


def _langgraph() -> list[Contestant]:
    savers = {"SqliteSaver": "sqlite", "AsyncSqliteSaver": "async", "PostgresSaver": "postgres"}
    found = []
    for name, kind in savers.items():
        for suffix, more in (("", ()), (", DeltaChannel", ("--delta",))):
            found.append(
                Contestant(
                    name + suffix,
                    "langgraph_program",
                    (kind, *more),
                    "langgraph",
                    server="postgres" if kind == "postgres" else "",
                )
            )
    return [*found, Contestant("LangGraph, no saver", "langgraph_program", ("none",), "langgraph")]


def everybody() -> list[Contestant]:
    """In the order of the table."""
    return [
        *_ours(),
        *_langgraph(),
        Contestant("DBOS", "dbos_contestant", environment="dbos"),
        Contestant("DBOS, WAL", "dbos_contestant", ("--wal",), "dbos"),
        Contestant("DBOS, PostgreSQL", "dbos_contestant", environment="dbos", server="postgres"),
        Contestant("Restate", "restate_contestant", environment="restate", server="restate"),
        Contestant("SQLiteSession", "agents_program", ("sqlite",), "agents"),
        Contestant("eventsourcing", "eventsourcing_program", environment="eventsourcing"),
        Contestant(LIMITS[0], "plain_program", ("append",)),
        Contestant(LIMITS[1], "plain_program", ("insert",)),
    ]


DELTAS = frozenset(one.name for one in everybody() if "--delta" in one.options)
SAVERS = frozenset(one.name for one in everybody() if one.environment == "langgraph")
OURS = frozenset(one.name for one in everybody() if one.ours)
_BESIDE = {one.name: ON_POSTGRES for one in everybody() if one.server == "postgres"}


def compared_with(name: str) -> str:
    """Whose figures a contestant's are divided by: ours on PostgreSQL, where it is there, too."""
    return PERDURE if name == ON_POSTGRES else _BESIDE.get(name, PERDURE)
