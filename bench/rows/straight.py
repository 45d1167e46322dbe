"""The least that a commit of the format can cost in Python: its necessary work in a straight line.

No draft, no general plan, no committer, no errors told apart: one known change, written as a commit
that `verify` accepts. What our own commit costs beyond this is what generality costs; what this
costs, no implementation in Python over this format and SQLite can go below.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import apsw
import msgspec
import zstandard

import perdure
from bench.workplace import Message, Ticket, open_ticket
from perdure.storage.sqlite.connection import connect

STRAIGHT = "straight line"

CLAIM = """UPDATE refs SET seq = ? WHERE agent_no = 1 AND name = 'main' AND kind = 'branch'
           AND deleted = 0 AND seq = ? AND held IS NULL"""
INSERT = "INSERT INTO commits (id, header, payload) VALUES (?, ?, ?)"


@contextmanager
def in_a_straight_line(path: Path) -> Iterator[Callable[[Message], None]]:
    """Append messages to the state of a new store, each durably, and prove the log at the end."""
    with perdure.open(path) as store:
        agent = open_ticket(store, "a")
        live, last = agent.state, agent.commit(agent.seq)
    seq, previous, schema = last.seq, last.id, [last.schema_id, *last.schema_version]
    executor = os.urandom(6).hex()
    encode = msgspec.msgpack.Encoder().encode
    compress = zstandard.ZstdCompressor(level=1).compress
    validate = Message.__pydantic_validator__.validate_python
    head = struct.Struct(">2sBHB").pack(b"Pd", 1, 1, 1)
    database = connect(str(path), synchronous="FULL", create=False)
    database.set_wal_hook(lambda *_: apsw.SQLITE_OK)
    files = [str(path), f"{path}-wal"]
    identities = [os.stat(file).st_ino for file in files]

    def commit(message: Message) -> None:
        nonlocal seq, previous
        plain = {"role": message.role, "content": message.content}
        typed = validate(plain)
        body = compress(encode([[[2, ["messages"], [plain]]], []]))
        payload = b"".join((head, os.urandom(16), body))
        header = encode([
            1, "a", 1, seq + 1, previous, "main", (seq,), schema, time.time_ns() // 1000, executor,
            0, ["edit", {"w": "user message added"}], os.urandom(8),
            sha256(b"perdure.payload.v1\0" + payload).digest(),
        ])  # fmt: skip
        database.execute("BEGIN IMMEDIATE")
        database.execute(CLAIM, (seq + 1, seq))
        if not database.changes():
            raise AssertionError("somebody else moved the head")
        database.execute(INSERT, ((1 << 36) | (seq + 1), header, payload))
        database.execute("COMMIT")
        if [os.stat(file).st_ino for file in files] != identities:
            raise AssertionError("the files were exchanged")
        seq += 1
        previous = b"\x01" + sha256(b"perdure.commit.v1\0" + header).digest()
        live.messages.append(typed)

    yield commit
    database.close()
    with perdure.open(path) as store:
        written = store.agent("a", Ticket)
        written.verify()
        if written.seq != seq or written.state != live:
            raise AssertionError("the straight line writes something else than commits")
