"""Contestants that are under way: each with its place, its process, and what it could not do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from bench.peers.contestants import Contestant
from bench.peers.machine import cpu_s, resident_bytes, written_bytes
from bench.peers.places import Ground, Place
from bench.peers.process import NothingOfTheKindError, Peer, PeerError
from bench.peers.restate_server import NotSetUp
from bench.peers.results import Cell, Work

ANSWER_S = 120.0
"""Nothing that is asked takes nearly as long."""


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
        """Ask, and wait; whoever does not answer in time is ended, so that nobody waits for ever.

        Raises:
            PeerError: it failed, or was ended.
        """
        assert self.peer is not None
        late = threading.Timer(ANSWER_S, self.peer.end)
        late.start()
        try:
            return self.peer.ask(do, **arguments)
        except PeerError:
            if late.finished.is_set():
                raise PeerError(f"it did not answer within {ANSWER_S:g} s") from None
            raise
        finally:
            late.cancel()

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
        """Of its process, and of a server that is its own."""
        return resident_bytes(self.pid) + self.ground.server_resident_bytes(self.place)

    @property
    def written_bytes(self) -> int:
        """By its process, and by the server where it uses one."""
        return written_bytes([self.pid]) + self.ground.server_written_bytes(self.place)

    @property
    def cpu_s(self) -> float:
        """Of its process, and what a server has spent on it."""
        return cpu_s(self.pid) + self.ground.server_cpu_s(self.place)

    def attempt(self, cell: Cell, take: Callable[[Contender], float]) -> None:
        """Add one round's value to the cell, or why there is none."""
        if cell.missing or self.gone:
            cell.missing = cell.missing or self.gone
            return
        try:
            cell.values.append(take(self))
        except NothingOfTheKindError as nothing:
            cell.missing = str(nothing)
        except (PeerError, OSError) as error:  # OSError: the kernel knows it no more
            cell.missing = failed(error)
            if self.peer is None or not self.peer.runs:
                self.gone = cell.missing


def failed(error: Exception) -> str:
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
    with ExitStack() as places:
        found: list[Contender] = []
        for contestant in contestants:
            contender = Contender(contestant, Place(ground.root), ground)
            found.append(contender)
            try:
                contender.place = places.enter_context(ground.place(contestant.server))
                places.callback(contender.end)
                contender.start()
                contender.open()
            except (PeerError, NotSetUp) as error:
                contender.gone = failed(error)
        yield found
