"""Writes commits that cannot be read straight to a backend, below all that would refuse them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from perdure.core.format import chain, envelope
from perdure.core.format.chain import LogTail
from perdure.core.values import codec, ops
from perdure.model import Cause
from perdure.storage.appending import Append, Appended, Riders, StoredSnapshot
from perdure.storage.capabilities import Backend
from perdure.storage.memory.backend import MemoryBackend
from perdure.storage.sqlite.rows import place
from perdure.store import Store

Bytes = tuple[bytes, bytes]
"""A header and its payload."""


def _draft(vandal: Vandal, payload: chain.Payload) -> chain.Draft:
    head = vandal.head
    return chain.Draft(
        vandal.agent,
        vandal.info.incarnation,
        vandal.branch,
        (head,),
        "dict",
        (1, 0),
        "x",
        0,
        vandal.cause,
        payload,
    )


def _linked(vandal: Vandal, payload: chain.Payload) -> Bytes:
    header, _ = chain.link(_draft(vandal, payload), vandal.tail, vandal.backend.now())
    return header, payload.data


def _body(vandal: Vandal, body: Any) -> Bytes:
    data = envelope.seal(codec.encode(body))
    return _linked(vandal, chain.Payload(data, envelope.digest(data), b"id"))


def good(vandal: Vandal, n: int = 1) -> Bytes:
    return _linked(vandal, chain.pack_payload([ops.Set(("n",), n)], ()))


def _with_field(vandal: Vandal, place: int, value: Any) -> Bytes:
    header, payload = good(vandal, 77)
    fields = msgspec.msgpack.decode(header)
    fields[place] = value
    return msgspec.msgpack.encode(fields), payload


def _delta_that_does_not_fit(vandal: Vandal) -> Bytes:
    return _linked(vandal, chain.pack_payload([ops.Append(("nothing",), [1])], ()))


def _record_that_is_refused(vandal: Vandal) -> Bytes:
    question = {"t": "wait-began", "place": "ask#1", "branches": [], "question": {"text": 1}}
    return _body(vandal, [[chain.to_wire(ops.Set(("n",), 77))], [question]])


def _byte_of_the_payload(vandal: Vandal) -> Bytes:
    header, payload = good(vandal, 77)
    return header, payload[:-1] + bytes([payload[-1] ^ 1])


def _byte_of_the_header(vandal: Vandal) -> Bytes:
    header, payload = good(vandal, 77)
    return b"\xc1" + header[1:], payload


def _no_envelope(vandal: Vandal) -> Bytes:
    data = b"nothing that was ever written"
    return _linked(vandal, chain.Payload(data, envelope.digest(data), b"id"))


KINDS: dict[str, Callable[[Vandal], Bytes]] = {
    "a delta that does not fit": _delta_that_does_not_fit,
    "an op of no kind": lambda vandal: _body(vandal, [[["?", ["n"], 1]], []]),
    "no delta": lambda vandal: _body(vandal, {"delta": 1}),
    "a record that its type refuses": _record_that_is_refused,
    "a record that is no map": lambda vandal: _body(
        vandal, [[chain.to_wire(ops.Set(("n",), 77))], [4711]]
    ),
    "a byte of the payload": _byte_of_the_payload,
    "no payload": lambda vandal: (good(vandal)[0], b""),
    "no envelope": _no_envelope,
    "a byte of the header": _byte_of_the_header,
    "no header": lambda vandal: (b"", good(vandal)[1]),
    "a tag that is no text": lambda vandal: _with_field(vandal, 11, ["edit", {"l": [None]}]),
    "an epoch below 0": lambda vandal: _with_field(vandal, 10, -1),
    "a time after all times": lambda vandal: _with_field(vandal, 8, 2**60),
    "a branch that is no text": lambda vandal: _with_field(vandal, 5, 4711),
    "a parent that is itself": lambda vandal: _with_field(vandal, 6, [99]),
}

FOLDABLE = {
    "a record that its type refuses",
    "a record that is no map",
    "a tag that is no text",
    "an epoch below 0",
    "a time after all times",
    "a branch that is no text",
}
"""Of these all is there that a state is made of: not even their own change is lost."""


class Vandal:
    """Writes to one branch of an agent, behind its head."""

    def __init__(self, store: Store, agent: str, branch: str = "main") -> None:
        self.backend: Backend = store._context.backend
        self.agent = agent
        self.branch = branch
        self.cause = Cause("edit", "by a vandal")
        info = self.backend.agent(agent)
        assert info is not None
        self.info = info
        (last,) = self.backend.read(info.no, 0, 2**40, newest_first=True, limit=1)
        self.tail = chain.tail_of(last.header, agent)

    @property
    def head(self) -> int:
        ref = self.backend.ref(self.info.no, self.branch)
        assert ref is not None
        return ref.seq

    def damage(self, kind: str) -> int:
        """Write a commit of a kind that cannot be read; its seq."""
        return self.write(*KINDS[kind](self))

    def write(
        self, header: bytes, payload: bytes, snapshot: StoredSnapshot | None = None, **more: Any
    ) -> int:
        seq = self.tail.seq + 1
        append = Append(
            self.agent,
            self.info.no,
            self.info.incarnation,
            seq,
            header,
            payload,
            self.branch,
            self.head,
            riders=Riders(**more),
            snapshot=snapshot,
            behind=self.tail,
        )
        (outcome,) = self.backend.append([append])
        assert isinstance(outcome, Appended), outcome
        self.tail = LogTail(seq, chain.commit_id(header), self.backend.now(), header)
        return seq

    def go_on(self, count: int = 3) -> None:
        """Commits behind it that are whole, as a handle writes that is out of step."""
        for n in range(count):
            self.write(*good(self, n))


def break_first(store: Store, agent: str, column: str) -> None:
    """Damages header or payload of an agent's first commit, in an SQLite store."""
    backend: Any = store._context.backend
    info = backend.agent(agent)
    with backend._transaction() as db:
        sql = f"UPDATE commits SET {column} = CAST(x'00' || {column} AS BLOB) WHERE id = ?"
        db.execute(sql, (place(info.no, 1),))


def break_snapshots(store: Store, how: str) -> None:
    """Damage each leaf, or each manifest, of a store; what its files' checksums see stays right."""
    backend: Any = store._context.backend
    table, column = {"a leaf": ("leaves", "data"), "a manifest": ("snapshots", "manifest")}[how]
    if isinstance(backend, MemoryBackend):
        _break_in_memory(backend, table)
    elif backend.url.startswith("postgresql:"):
        name = f'"{backend._address.schema}".{table}'
        sql = f"UPDATE {name} SET {column} = set_byte({column}, 0, 255 - get_byte({column}, 0))"
        backend._writer.settled(lambda db: db.execute(sql))
    else:
        with backend._transaction() as db:
            db.execute(f"UPDATE {table} SET {column} = CAST({column} || x'21' AS BLOB)")


def _break_in_memory(backend: Any, table: str) -> None:
    if table == "leaves":
        for key, data in backend._leaves.items():
            backend._leaves[key] = data[:-1] + bytes([data[-1] ^ 1])
        return
    for agent in backend._agents:
        for seq, found in agent.snapshots.items():
            agent.snapshots[seq] = msgspec.structs.replace(found, manifest=found.manifest[:-1])


def flip(store: Store, agent: str, seq: int, column: str, bit: int) -> None:
    """Flips one bit in the header or payload of a commit; what its file's checksums see stays
    right."""
    backend: Any = store._context.backend
    info = backend.agent(agent)
    (row,) = backend.read(info.no, seq, seq)
    data = bytearray(getattr(row, column))
    bit %= 8 * len(data)
    data[bit // 8] ^= 1 << (bit % 8)
    if isinstance(backend, MemoryBackend):
        log = next(one for one in backend._agents if one.no == info.no)
        header, payload = log.commits[seq - 1] or (b"", b"")
        log.commits[seq - 1] = (
            (bytes(data), payload) if column == "header" else (header, bytes(data))
        )
    elif backend.url.startswith("postgresql:"):
        table = f'"{backend._address.schema}".commits'
        where = f"(agent_no, seq) = ({info.no}, {seq})"
        sql = f"UPDATE {table} SET {column} = '\\x{data.hex()}' WHERE {where}"
        backend._writer.settled(lambda db: db.execute(sql))
    else:
        with backend._transaction() as db:
            sql = f"UPDATE commits SET {column} = ? WHERE id = ?"
            db.execute(sql, (bytes(data), place(info.no, seq)))
