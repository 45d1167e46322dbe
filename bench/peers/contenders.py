"""Contestants that are under way: each with its place, its process, and what it could not do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peers.contestants import Contestant, Place
from bench.peers.machine import family, resident_bytes, written_bytes
from bench.peers.process import NothingOfTheKindError, Peer, PeerError
from bench.peers.results import Cell, Work
from tests.postgres.server import Server

SERVER = {"fsync": "on", "full_page_writes": "on"}


class Ground:
    """Where a comparison takes place: a folder, and a PostgreSQL server that syncs, with its own
    settings else. `bytecode` is where compiled modules are kept, from one run to the next."""

    def __init__(self, root: Path, bytecode: Path) -> None:
        self.root = root
        self.bytecode = bytecode
        self.server: Server | None = None
        self._places = 0

    def begin(self) -> None:
        self.server = Server(SERVER).start()

    def end(self) -> None:
        if self.server is not None:
            self.server.remove()

    def place(self, contestant: Contestant) -> Place:
        """A new one, with nothing in it."""
        self._places += 1
        folder = self.root / f"place-{self._places}"
        folder.mkdir()
        if not contestant.server:
            return Place(folder)
        assert self.server is not None
        database = f"place_{self._places}"
        self.server.sql(f"CREATE DATABASE {database}")
        return Place(folder, self.server.url(database=database), database)

    def stored_bytes(self, place: Place) -> int:
        """Of the files, closed; or of the database, which does not count the server's own log."""
        if not place.database or self.server is None:
            return place.files_bytes
        return int(self.server.sql("SELECT pg_database_size(%s)", place.database)[0][0])

    @property
    def server_pid(self) -> int | None:
        if self.server is None:
            return None
        return int((self.server.data / "postmaster.pid").read_text().split()[0])


@dataclass(slots=True)
class Contender:
    contestant: Contestant
    place: Place
    ground: Ground
    peer: Peer | None = None
    messages: int = 0
    """How many its conversation has."""

    gone: str = ""
    """Why it takes part no more."""

    @property
    def name(self) -> str:
        return self.contestant.name

    def start(self, under: Sequence[str] = ()) -> float:
        """Its process, up to where it can open its store: interpreter and imports, in seconds."""
        began = time.perf_counter()
        self.peer = self.contestant.start(self.place, self.ground.bytecode, under)
        _ = self.peer.hello
        return time.perf_counter() - began

    def open(self) -> dict[str, Any]:
        opened = self.ask("open")
        self.messages = int(opened["messages"])
        return opened

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        assert self.peer is not None
        return self.peer.ask(do, **arguments)

    def say(self, count: int) -> dict[str, Any]:
        """Have it add messages."""
        self.messages += count
        return self.ask("say", count=count)

    def ask_quietly(self, do: str, **arguments: Any) -> None:
        """Where what it takes is of no interest; nor whether it can."""
        if not self.gone:
            with suppress(NothingOfTheKindError, PeerError):
                self.ask(do, **arguments)

    @property
    def pid(self) -> int:
        assert self.peer is not None
        return self.peer.pid

    def kill(self) -> float:
        """As `kill -9`; when."""
        assert self.peer is not None
        peer, self.peer = self.peer, None
        return peer.kill()

    def end(self) -> None:
        """Close the store orderly, and end the process."""
        if self.peer is not None:
            with suppress(PeerError):
                self.ask("close")
            self.kill()

    @property
    def resident_bytes(self) -> int:
        return resident_bytes(self.pid)

    @property
    def written_bytes(self) -> int:
        """By its process, and by the server where it uses one: nobody else does meanwhile."""
        pids = [self.pid]
        if self.contestant.server:
            pids += family(self.ground.server_pid or 0)
        return written_bytes(pids)

    def attempt(self, cell: Cell, take: Callable[[Contender], float]) -> None:
        """Add one round's value to the cell, or why there is none."""
        if cell.missing or self.gone:
            cell.missing = cell.missing or self.gone
            return
        try:
            cell.values.append(take(self))
        except NothingOfTheKindError as nothing:
            cell.missing = str(nothing)
        except PeerError as error:
            cell.missing = failed(error)
            if self.peer is None or not self.peer.runs:
                self.gone = cell.missing


def failed(error: PeerError) -> str:
    return f"failed: {str(error).strip().splitlines()[-1]}"


def attempting(work: Work, take: Callable[[Contender], float]) -> Callable[[Contender], None]:
    """A contender's turn at that work."""

    def turn(contender: Contender) -> None:
        contender.attempt(work.cell(contender.name), take)

    return turn


def rounds(contenders: Sequence[Contender], count: int, turn: Callable[[Contender], None]) -> None:
    """Everybody once a round, in an order that changes, so that what else the machine does hits
    all alike."""
    order = list(contenders)
    for _ in range(count):
        for contender in order:
            turn(contender)
        order = order[1:] + order[:1]


@contextmanager
def contending(contestants: Sequence[Contestant], ground: Ground) -> Iterator[list[Contender]]:
    """All of them started and opened, each in a new place; ended at last."""
    found: list[Contender] = []
    try:
        for contestant in contestants:
            contender = Contender(contestant, ground.place(contestant), ground)
            found.append(contender)
            try:
                contender.start()
                contender.open()
            except PeerError as error:
                contender.gone = failed(error)
        yield found
    finally:
        for contender in found:
            contender.end()
