"""Commits as a newer version may write them, which this one can only tell from damage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from perdure.core.format import chain, dictionary, envelope
from perdure.core.values import codec, ops
from tests.damaging import Bytes, Vandal, good

SET = chain.to_wire(ops.Set(("n",), 77))
VALUE = msgspec.msgpack.Ext(13, b"of a kind that came later")


def _linked(vandal: Vandal, data: bytes) -> Bytes:
    draft = chain.Draft(
        vandal.agent,
        vandal.info.incarnation,
        vandal.branch,
        (vandal.head,),
        "dict",
        (1, 0),
        "x",
        0,
        vandal.cause,
        chain.Payload(data, envelope.digest(data), bytes(16)),
    )
    header, _ = chain.link(draft, vandal.tail, vandal.backend.now())
    return header, data


def _body(vandal: Vandal, *parts: Any) -> Bytes:
    return _linked(vandal, envelope.seal(msgspec.msgpack.encode(parts), bytes(16)))


def _enveloped(vandal: Vandal, version: int, features: int, coded: int, body: bytes = b"") -> Bytes:
    body = body or codec.encode([[SET], []])
    head = envelope._HEAD.pack(envelope.MAGIC, version, features, coded)
    return _linked(vandal, head + bytes(16) + body)


def _header(vandal: Vandal, change: Callable[[list[Any]], list[Any]]) -> Bytes:
    header, payload = good(vandal, 77)
    return msgspec.msgpack.encode(change(msgspec.msgpack.decode(header))), payload


KINDS: dict[str, Callable[[Vandal], Bytes]] = {
    "an encrypted envelope": lambda vandal: _enveloped(vandal, 1, envelope.ENCRYPTED, 1),
    "a feature of the envelope": lambda vandal: _enveloped(vandal, 1, 1 << 9, 1),
    "a version of the envelope": lambda vandal: _enveloped(vandal, 2, 0, 1),
    "a codec": lambda vandal: _enveloped(vandal, 1, 0, 2),
    "a dictionary": lambda vandal: _enveloped(
        vandal, 1, envelope.ZSTD | envelope.DICTIONARY, 1, b"\xff" * len(dictionary.ID) + b"x" * 40
    ),
    "an op": lambda vandal: _body(vandal, [[99, ["n"], 1]], []),
    "a value": lambda vandal: _body(vandal, [[0, ["n"], VALUE]], []),
    "a value in a record": lambda vandal: _body(vandal, [SET], [{"t": "edit", "value": VALUE}]),
    "a part of the payload": lambda vandal: _body(vandal, [SET], [], ["more"]),
    "a field of the header": lambda vandal: _header(vandal, lambda fields: [*fields, "more"]),
    "a version of the header": lambda vandal: _header(vandal, lambda fields: [2, *fields[1:]]),
}
"""What makes a commit one that this version cannot read."""

READABLE: dict[str, Callable[[Vandal], Bytes]] = {
    "a kind of record": lambda vandal: _body(vandal, [SET], [{"t": "of-later", "what": [1]}]),
    "a field of a record": lambda vandal: _body(
        vandal, [SET], [{"t": "run-progress", "run": "a/b/c", "text": "t", "mood": "good"}]
    ),
    "a kind of cause": lambda vandal: _header(
        vandal, lambda fields: [*fields[:11], ["dream", {"w": "x"}], *fields[12:]]
    ),
    "a word of a cause": lambda vandal: _header(
        vandal, lambda fields: [*fields[:11], ["edit", {"z": {"deep": 1}}], *fields[12:]]
    ),
}
"""What a newer version may add, and this one passes over."""
