"""Who takes part in the field, and how each is started."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.peers.process import ROOT, Peer

PERDURE = "Perdure"
LIMITS = ("append + fdatasync", "a bare INSERT")


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way of one library.

    Attributes:
        environment: of `requirements/peers-….txt`; empty: ours.
        server: whether it is given a database on PostgreSQL.
        ours: whether it is Perdure, under any face.
    """

    name: str
    program: str
    options: tuple[str, ...] = ()
    environment: str = ""
    server: bool = False
    ours: bool = False

    @property
    def python(self) -> Path:
        if not self.environment:
            return Path(sys.executable)
        return ROOT / f".venv-peers-{self.environment}" / "bin" / "python"

    @property
    def is_set_up(self) -> bool:
        return not self.environment or (self.python.parents[1] / "stamp").exists()

    def start(self, place: Place, bytecode: Path, under: Sequence[str] = ()) -> Peer:
        """Its program in a new process; it is not waited for."""
        url = (place.url,) if self.server else ()
        return Peer(self.python, f"bench.peers.{self.program}", place.folder, *self.options, *url,
                    bytecode=bytecode, under=under)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """Where one contestant keeps its conversation: a folder, or a database."""

    folder: Path
    url: str = ""
    database: str = ""

    @property
    def files_bytes(self) -> int:
        return sum(
            os.path.getsize(Path(folder) / name)
            for folder, _, names in os.walk(self.folder)
            for name in names
        )


def _ours() -> list[Contestant]:
    program = "perdure_contestant"
    return [
        Contestant(PERDURE, program, ("edit",), ours=True),
        Contestant("Perdure, as a run", program, ("run",), ours=True),
        Contestant("PerdureSaver", "langgraph_program", ("perdure",), ours=True),
        Contestant("PerdureSaver, DeltaChannel", "langgraph_program", ("perdure", "--delta"),
                   ours=True),
        Contestant("PerdureSession", "agents_program", ("perdure",), ours=True),
        Contestant("Perdure, PostgreSQL", program, ("edit",), server=True, ours=True),
    ]  # fmt: skip


def _langgraph() -> list[Contestant]:
    savers = {"SqliteSaver": "sqlite", "AsyncSqliteSaver": "async", "PostgresSaver": "postgres"}
    found = []
    for name, kind in savers.items():
        for suffix, more in (("", ()), (", DeltaChannel", ("--delta",))):
            found.append(Contestant(
                name + suffix, "langgraph_program", (kind, *more), "langgraph",
                server=kind == "postgres",
            ))  # fmt: skip
    return [*found, Contestant("LangGraph, no saver", "langgraph_program", ("none",), "langgraph")]


def everybody() -> list[Contestant]:
    """In the order of the table."""
    return [
        *_ours(),
        *_langgraph(),
        Contestant("DBOS", "dbos_contestant", environment="dbos"),
        Contestant("DBOS, WAL", "dbos_contestant", ("--wal",), "dbos"),
        Contestant("DBOS, PostgreSQL", "dbos_contestant", environment="dbos", server=True),
        Contestant("SQLiteSession", "agents_program", ("sqlite",), "agents"),
        Contestant("eventsourcing", "eventsourcing_program", environment="eventsourcing"),
        Contestant(LIMITS[0], "plain_program", ("append",)),
        Contestant(LIMITS[1], "plain_program", ("insert",)),
    ]
