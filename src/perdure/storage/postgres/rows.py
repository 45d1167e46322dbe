"""Rows as model objects, and the reverse."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from psycopg.pq.abc import PGresult

from perdure.missing import MISSING
from perdure.model import Checkpoint, Message, RunInfo
from perdure.storage.appending import Ref, Refused
from perdure.storage.cells import checkpoint_of, value_of
from perdure.storage.postgres.wire import TRUE, to_number, to_text

RUN_COLUMNS = {
    name.removesuffix("_micros"): name
    for name in RunInfo.__struct_fields__
    if name not in ("agent_no", "result")
}
"""The columns of a run's row, and the fields of `RunInfo` in them."""


def text(value: str) -> str:
    """Returns a text in the form that PostgreSQL keeps, whose texts have no NUL."""
    if "\0" in value or "\x1a" in value:
        return value.replace("\x1a", "\x1a1").replace("\0", "\x1a0")
    return value


def from_text(value: str) -> str:
    if "\x1a" in value:
        return value.replace("\x1a0", "\0").replace("\x1a1", "\x1a")
    return value


def _from_texts(row: Iterable[Any]) -> list[Any]:
    return [from_text(value) if type(value) is str else value for value in row]


def to_ref(row: Any) -> Ref:
    name, _, seq, *_, data = values = _from_texts(row)
    values[-1] = checkpoint_of(data, name, seq) if data else None
    return Ref(*values)


def ref_in(result: PGresult) -> Ref | None:
    """Returns a name from the answer to the statement "find_ref"."""
    if not result.ntuples:
        return None
    name, kind, seq, deleted, epoch, held, holder, data = (
        result.get_value(0, field) for field in range(8)
    )
    return to_ref(
        (
            to_text(name),
            to_text(kind),
            to_number(seq),
            deleted == TRUE,
            to_number(epoch),
            to_number(held),
            to_text(holder),
            data,
        )
    )


def ref_of(found: dict[str, Any]) -> Ref:
    """Returns a name from a row as JSON, in which bytes are hexadecimal digits."""
    *rest, checkpoint = (found[name] for name in Ref.__struct_fields__)
    return to_ref((*rest, _bytes(checkpoint)))


def to_refused(found: dict[str, Any]) -> Refused:
    """Returns a refusal from the database's description of it."""
    ref = found.get("ref")
    return Refused(
        found["why"],
        ref_of(ref) if ref else None,
        found.get("seq", 0),
        _bytes(found.get("asked")) or b"",
    )


def _bytes(digits: str | None) -> bytes | None:
    return None if digits is None else bytes.fromhex(digits.removeprefix("\\x"))


def from_checkpoint(checkpoint: Checkpoint) -> bytes:
    return msgspec.msgpack.encode(checkpoint)


def to_run(row: Any) -> RunInfo:
    values = _from_texts(row)
    values[10] = value_of(values[10], values[1])
    return RunInfo(*values)


def from_run(row: RunInfo) -> dict[str, Any]:
    """Returns a row as JSON; its result goes beside it."""
    return {
        column: text(value) if isinstance(value, str) else value
        for column, name in RUN_COLUMNS.items()
        for value in (getattr(row, name),)
    }


def to_message(row: Any) -> Message:
    """Returns a message; its value is MISSING if it was taken out."""
    values = _from_texts(row)
    values[5] = MISSING if values[5] is None else value_of(values[5], values[1])
    return Message(*values)


def from_message(message: Message) -> list[Any]:
    """Returns a message's run, agent, kind, name and key, as columns."""
    return list(map(text, (message.run, message.agent, message.kind, message.name, message.key)))
