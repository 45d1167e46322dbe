"""Where contestants keep what they store: folders, databases, and servers of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench.peers.machine import cpu_s, resident_bytes, written_bytes
from bench.peers.restate_server import RestateServer, free_port
from tests.postgres.server import Server

ServerKind = Literal["", "postgres", "restate"]
SYNCING = {"fsync": "on", "full_page_writes": "on"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where one contestant keeps its conversation.

    Attributes:
        given: what its program is told of its server, after the folder.
        database: its own, on the PostgreSQL server that several share.
        restate: its server, which nobody else uses.
    """

    folder: Path
    given: tuple[str, ...] = ()
    database: str = ""
    restate: RestateServer | None = None

    @property
    def files_bytes(self) -> int:
        return sum(
            os.path.getsize(Path(folder) / name)
            for folder, _, names in os.walk(self.folder)
            for name in names
        )


class Ground:
    """Where a comparison takes place: a folder, and a PostgreSQL server that syncs, with its own
    settings else. `bytecode` is where compiled modules are kept, from one run to the next."""

    def __init__(self, root: Path, bytecode: Path) -> None:
        self.root = root
        self.bytecode = bytecode
        self.server: Server | None = None
        self._places = 0

    def begin(self) -> None:
        """Start the server that contestants share."""
        self.server = Server(SYNCING).start()

    def end(self) -> None:
        if self.server is not None:
            self.server.remove()

    @contextmanager
    def place(self, kind: ServerKind) -> Iterator[Place]:
        """A new one, with nothing in it; its own server ends with it."""
        self._places += 1
        folder = self.root / f"place-{self._places}"
        folder.mkdir()
        match kind:
            case "postgres":
                assert self.server is not None
                database = f"place_{self._places}"
                self.server.sql(f"CREATE DATABASE {database}")
                yield Place(folder, (self.server.url(database=database),), database)
            case "restate":
                with RestateServer(folder) as server:
                    given = (server.ingress, server.admin, str(free_port()))
                    yield Place(folder, given, restate=server)
            case _:
                yield Place(folder)

    def stored_bytes(self, place: Place) -> int:
        """Of the files; or of the database, which does not count the server's own log."""
        if not place.database or self.server is None:
            return place.files_bytes
        return int(self.server.sql("SELECT pg_database_size(%s)", place.database)[0][0])

    def server_written_bytes(self, place: Place) -> int:
        """What the server has sent to the disk for the place, or for others, who do nothing
        meanwhile. PostgreSQL says by how much its log grew: the kernel would count the file's large
        folios whole, 256 kB for a commit."""
        if place.restate is not None:
            return written_bytes([place.restate.pid])
        if not place.database or self.server is None:
            return 0
        return int(self.server.sql("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")[0][0])

    def server_to_trace(self, place: Place) -> int | None:
        if place.restate is not None:
            return place.restate.pid
        return self.server_pid if place.database else None

    def server_cpu_s(self, place: Place) -> float:
        """What the server has spent so far on who is connected to the place."""
        if place.restate is not None:
            return cpu_s(place.restate.pid)
        if not place.database or self.server is None:
            return 0.0
        found = self.server.sql(
            "SELECT pid FROM pg_stat_activity WHERE datname = %s", place.database
        )
        return sum(cpu_s(pid) for (pid,) in found)

    def server_resident_bytes(self, place: Place) -> int:
        """Of the server, where nobody else uses it."""
        return 0 if place.restate is None else resident_bytes(place.restate.pid)

    @property
    def server_pid(self) -> int:
        assert self.server is not None
        return int((self.server.data / "postmaster.pid").read_text().split()[0])
