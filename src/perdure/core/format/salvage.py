"""Salvage of a commit that cannot be read, so that one damaged commit does not block the log.

A header that its type refuses may still name its parents and its payload's digest; a payload of
which a record is refused still has its delta. What is taken here was hashed like anything else;
what does not fit its hash is left out.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.core.format import chain, envelope, remains
from perdure.core.format.records import Record
from perdure.core.format.stored_records import read_records
from perdure.core.values import codec
from perdure.core.values.ops import OpError
from perdure.errors import Corrupt, PerdureError, UnsupportedFormat
from perdure.model import MICROS_MAX, Cause, Commit
from perdure.system import stack_room

FIELDS = 14
UNKNOWN = Cause("damaged")
"""The cause of a commit whose own cannot be read."""

_BROKEN = (codec.UndecodableError, OpError, ValueError, TypeError, LookupError, RecursionError)


def salvage(
    agent: str, incarnation: int, seq: int, header: bytes, payload: bytes, problem: str
) -> Commit:
    """Returns the readable parts of a commit that `chain.read_commit` refuses.

    Its `damaged` says what is wrong with it; `foldable` is True if its parent and its delta are
    still as they were written. Parts that cannot be read are empty: parents, delta, records.
    """
    blank = Commit(
        agent,
        incarnation,
        seq,
        chain.commit_id(header),
        b"",
        "",
        (),
        "",
        (1, 0),
        0,
        "",
        0,
        UNKNOWN,
        (),
        (),
        len(header) + len(payload),
        damaged=problem or "it cannot be read",
        foldable=False,
    )
    fields = _fields(header)
    if fields is None or fields[1] != agent or fields[3] != seq:
        return blank
    commit, sound = _with_header(blank, fields, seq)
    if payload == remains.REMOVED:
        return replace(commit, trimmed=True)
    try:
        if payload.startswith(remains.MAGIC):
            payload = remains.payload_of(payload, "")
        if envelope.digest(payload) != fields[13]:
            return commit
        delta, records = codec.decode(envelope.open_envelope(payload, ""))
        read = tuple(map(chain.from_wire, delta))
    except (Corrupt, UnsupportedFormat, *_BROKEN) as error:
        stack_room.pass_on(error)
        return commit
    plain, typed = _records(records)
    return replace(commit, delta=read, records=plain, typed=typed, foldable=sound)


def _fields(header: bytes) -> list[Any] | None:
    try:
        fields = chain.read_header(header, "")
    except PerdureError:
        return None
    return fields if type(fields) is list and len(fields) >= FIELDS else None


def _with_header(blank: Commit, fields: list[Any], seq: int) -> tuple[Commit, bool]:
    """Returns the commit with the readable fields of its header, and whether they suffice to fold
    it onto its parent."""
    at, branch, parents, schema = fields[8], fields[5], fields[6], fields[7]
    known: dict[str, Any] = {}
    if _is_number(at, 0, MICROS_MAX):
        known["at_micros"] = at
    if type(branch) is str:
        known["branch"] = branch
    fits = type(parents) is list and all(_is_number(one, 1, seq - 1) for one in parents)
    if fits:
        known["parents"] = tuple(parents)
    named = type(schema) is list and len(schema) == 3 and type(schema[0]) is str
    named = named and all(_is_number(one, 0, 2**62) for one in schema[1:])
    if named:
        known["schema_id"], known["schema_version"] = schema[0], (schema[1], schema[2])
    if type(fields[4]) is bytes:
        known["prev"] = fields[4]
    if type(fields[9]) is str:
        known["executor"] = fields[9]
    cause = _cause(fields[11])
    return replace(blank, cause=cause, **known), fits and named and bool(parents or seq == 1)


def _cause(said: Any) -> Cause:
    """Returns its kind, and those of its words that are texts."""
    try:
        return chain.read_cause(said)
    except (msgspec.ValidationError, *_BROKEN) as error:
        stack_room.pass_on(error)
    if type(said) is not list or len(said) != 2 or type(said[0]) is not str:
        return UNKNOWN
    more = said[1] if type(said[1]) is dict else {}
    words = {name: more[name] for name in ("w", "r", "s") if type(more.get(name)) is str}
    return Cause(said[0], words.get("w", ""), words.get("r"), words.get("s"))


def _records(records: Any) -> tuple[tuple[dict[str, Any], ...], tuple[Record, ...]]:
    """Returns all records, or none: a record that is left out might explain another."""
    try:
        return read_records(records)
    except _BROKEN as error:
        stack_room.pass_on(error)
        return (), ()


def _is_number(value: Any, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high
