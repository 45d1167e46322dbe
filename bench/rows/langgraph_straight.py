"""The least that a cold `get_tuple` can cost in Python: its necessary work in a straight line.

Read the latest snapshot and the commits behind it, prove, inflate and decode them, and make the
messages. No branches, copies or removals are looked for, nothing but messages of one kind is made,
and nothing is noted for the `put` that follows. No reader of this format in Python can go below.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import apsw
import msgspec
from langchain_core.messages import BaseMessage, HumanMessage
from pydantic import BaseModel

from perdure.core.format.envelope import open_envelope
from perdure.storage.log.snapshots import SEAL_SIZE

SNAPSHOT = "SELECT id, manifest, leaf_ids FROM snapshots ORDER BY id DESC LIMIT 1"
LEAVES = "SELECT id, data FROM leaves"
BEHIND = "SELECT header, payload FROM commits WHERE id >= ? ORDER BY id"
SET, APPEND = 0, 2

_decode = msgspec.msgpack.Decoder().decode
_new: Callable[[type[HumanMessage]], HumanMessage] = object.__new__
_set_dict, _set_names, _set_extra, _set_private = (
    BaseModel.__dict__[name].__set__
    for name in (
        "__dict__",
        "__pydantic_fields_set__",
        "__pydantic_extra__",
        "__pydantic_private__",
    )
)


def read_in_a_straight_line(database: apsw.Connection) -> list[BaseMessage]:
    """The messages of the only thread of a store, all of which are a person's."""
    gc.disable()
    try:
        return [_spoken(plain) for plain in _stored(database)]
    finally:
        gc.enable()


def _stored(database: apsw.Connection) -> list[Any]:
    """The thread's messages as they are stored."""
    found: list[Any] = []
    place, previous = 0, b""
    if snapshot := database.execute(SNAPSHOT).fetchone():
        place, manifest, ids = snapshot
        _decode(_opened(manifest))
        rows: Any = database.execute(LEAVES).fetchall()
        leaves = dict(rows)
        for at in range(0, len(ids), 8):
            found += _decode(_opened(leaves[int.from_bytes(ids[at : at + 8], "big")]))
    for header, payload in database.execute(BEHIND, (place,)):
        fields = _decode(header)
        if fields[13] != sha256(b"perdure.payload.v1\0" + payload).digest():
            raise AssertionError("a payload is damaged")
        if previous and fields[4] != previous:
            raise AssertionError("the chain is broken")
        if previous or not place:  # else it is the commit that the snapshot is of
            for code, path, *values in _decode(open_envelope(payload, "it"))[0]:
                if code == APPEND:
                    found += values[0]
                elif code == SET and not path:  # the first commit: the whole state
                    found += values[0]["values"]["messages"]
        previous = b"\x01" + sha256(b"perdure.commit.v1\0" + header).digest()
    return found


def _opened(sealed: bytes) -> bytes:
    body = sealed[SEAL_SIZE:]
    if sha256(body).digest()[:SEAL_SIZE] != sealed[:SEAL_SIZE]:
        raise AssertionError("a snapshot is damaged")
    return open_envelope(body, "it")


def _spoken(plain: dict[str, Any]) -> BaseMessage:
    made = _new(HumanMessage)
    _set_dict(
        made,
        {
            "content": plain["content"],
            "additional_kwargs": {},
            "response_metadata": {},
            "type": "human",
            "name": None,
            "id": plain["id"],
        },
    )
    _set_extra(made, {})
    _set_names(made, {"content", "id"})
    _set_private(made, None)
    return made
