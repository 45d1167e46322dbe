"""The least that a commit of the format can cost in Python: its necessary work in a straight line.

No draft, no general plan, no committer, no errors told apart: one known change, written as a commit
that `verify` accepts. What our own commit costs beyond this is what generality costs; what this
costs, no implementation in Python over this format and SQLite can go below. The same for reading.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import msgspec
import zstandard

import perdure
from bench.peers.serving import result
from bench.workplace import Message, Ticket, open_ticket
from perdure.core.format.envelope import open_envelope
from perdure.model import Commit
from perdure.storage.sqlite.connection import connect
from perdure.storage.sqlite.files import Files
from perdure.storage.sqlite.wal import FRAME_SIZE, ROOM_BEHIND, make_room

STRAIGHT = "straight line"

CLAIM = """UPDATE refs SET seq = ? WHERE agent_no = 1 AND name = 'main' AND kind = 'branch'
           AND deleted = 0 AND seq = ? AND held IS NULL"""
INSERT = "INSERT INTO commits (id, header, payload) VALUES (?, ?, ?)"
READ = "SELECT header, payload FROM commits WHERE id BETWEEN ? AND ? ORDER BY id"
FIRST = 1 << 36

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode

Append = Callable[[list[Any], list[Any], list[Any]], None]
"""Of a delta, records and a cause, as they are encoded."""


@contextmanager
def in_a_straight_line(path: Path) -> Iterator[Callable[[Message], None]]:
    """Append messages to the state of a new store, each durably, and prove the log at the end."""
    with perdure.open(path) as store:
        live = open_ticket(store, "a").state
    validate = Message.__pydantic_validator__.validate_python
    with _log(path) as append:

        def commit(message: Message) -> None:
            plain = {"role": message.role, "content": message.content}
            typed = validate(plain)
            append([[2, ["messages"], [plain]]], [], ["edit", {"w": "user message added"}])
            live.messages.append(typed)

        yield commit
    with perdure.open(path) as store:
        if store.agent("a", Ticket).state != live:
            raise AssertionError("the straight line writes something else than commits")


@contextmanager
def steps_in_a_straight_line(path: Path) -> Iterator[Callable[[int], str]]:
    """Call steps and record what they give, each durably, and prove the log at the end."""
    with perdure.open(path) as store:
        open_ticket(store, "a")
    with _log(path) as append:
        yield step_by(append)


def step_by(append: Append) -> Callable[[int], str]:
    """A step that is recorded so."""
    made = 0

    def step(number: int) -> str:
        nonlocal made
        made += 1
        place = f"answer#{made}"
        digest = sha256(_encode(number)).digest()[:8].hex()
        given = result(number)
        record = {
            "t": "step",
            "run": "a/answering/main",
            "place": place,
            "args": {"number": digest},
            "preview": f"number={number!r}",
            "value": given,
        }
        append([], [record], ["step", {"r": "a/answering/main", "s": place}])
        return given

    return step


@contextmanager
def writing(path: Path) -> Iterator[Callable[..., None]]:
    """What writes commits behind the last one of a store's first agent: each is durable when it
    returns, in files that are still those, with room made for the next ones."""
    database = connect(str(path), synchronous="FULL", create=False)
    files = Files.of(str(path))
    needed = 0

    def committed(_: apsw.Connection, __: str, pages: int) -> int:
        nonlocal needed
        needed = pages * FRAME_SIZE + ROOM_BEHIND
        return apsw.SQLITE_OK

    def commit(seq: int, header: bytes, payload: bytes, *more: tuple[str, Sequence[Any]]) -> None:
        database.execute("BEGIN IMMEDIATE")
        if files.wal_size < needed:
            make_room(str(path), None)
        database.execute(CLAIM, (seq, seq - 1))
        if not database.changes():
            raise AssertionError("somebody else moved the head")
        database.execute(INSERT, (FIRST | seq, header, payload))
        for statement, values in more:
            database.execute(statement, values)
        database.execute("COMMIT")
        files.check()

    database.set_wal_hook(committed)
    yield commit
    database.close()


@contextmanager
def _log(path: Path) -> Iterator[Append]:
    """The log of the one agent of a store, to append to."""
    with perdure.open(path) as store:
        agent = store.agent("a", Ticket)
        last = agent.commit(agent.seq)
    with writing(path) as commit:
        line = Line(last, lambda seq, _, header, payload: commit(seq, header, payload))
        yield line.append
    with perdure.open(path) as store:
        line.prove(store.agent("a", Ticket))


class Line:
    """Makes commits behind the last one of a log; `write` gets the seq, the previous commit's id,
    the header and the payload."""

    def __init__(self, last: Commit, write: Callable[[int, bytes, bytes, bytes], None]) -> None:
        self._agent, self._seq, self._previous = last.agent, last.seq, last.id
        self._schema = [last.schema_id, *last.schema_version]
        self._executor = os.urandom(6).hex()
        self._compress = zstandard.ZstdCompressor(level=1).compress
        self._head = struct.Struct(">2sBHB").pack(b"Pd", 1, 1, 1)
        self._write = write

    def append(self, delta: list[Any], records: list[Any], cause: list[Any]) -> None:
        seq, previous = self._seq, self._previous
        packed = self._compress(_encode([delta, records]))
        payload = b"".join((self._head, os.urandom(16), packed))
        header = _encode(
            [
                1,
                self._agent,
                1,
                seq + 1,
                previous,
                "main",
                (seq,),
                self._schema,
                time.time_ns() // 1000,
                self._executor,
                0,
                cause,
                os.urandom(8),
                sha256(b"perdure.payload.v1\0" + payload).digest(),
            ]
        )
        self._write(seq + 1, previous, header, payload)
        self._seq += 1
        self._previous = b"\x01" + sha256(b"perdure.commit.v1\0" + header).digest()

    def prove(self, agent: perdure.Agent[Any]) -> None:
        """That what was written are commits, all of them."""
        agent.verify()
        if agent.seq != self._seq:
            raise AssertionError("the straight line writes something else than commits")


def replay_in_a_straight_line(path: Path, agent_no: int, name: str) -> int:
    """Read the log of an agent, prove all of it, and go over the steps that it recorded, from their
    arguments to their results: how many there were."""
    database = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY, vfs="cksmvfs")
    first = agent_no << 36
    previous, steps = b"", []
    for header, payload in database.execute(READ, (first, first + FIRST - 1)):
        fields = _decode(header)
        if (
            fields[4] != previous
            or fields[13] != sha256(b"perdure.payload.v1\0" + payload).digest()
        ):
            raise AssertionError("the log is damaged")
        previous = b"\x01" + sha256(b"perdure.commit.v1\0" + header).digest()
        _, records = _decode(open_envelope(payload, name))
        steps += [record for record in records if record["t"] == "step"]
    database.close()
    total = 0
    for number, record in enumerate(steps):
        if record["args"][name] != sha256(_encode(number)).digest()[:8].hex():
            raise AssertionError("it was called with other arguments")
        total += len(record["value"])
    return len(steps)
