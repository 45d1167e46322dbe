"""Headers, commit ids, payloads: a commit as bytes, and the checks of those bytes (I3, I11).

``commit id = SHA-256("perdure.commit.v1" ‖ 0 ‖ header)`` after one byte that names the algorithm.
The header holds the previous id and the payload's digest, so one id fixes the whole log up to it.
Field by field in docs/format.md ("Header").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import astuple

from perdure.core.format import envelope, remains
from perdure.core.format.records import Record
from perdure.core.format.stored_records import read_records, written
from perdure.core.values import codec
from perdure.core.values.ops import (
    Append,
    Delete,
    Increment,
    Move,
    Op,
    OpError,
    Set,
    SetAdd,
    SetRemove,
    Splice,
    TextSplice,
)
from perdure.core.values.plain_values import Plain
from perdure.errors import Corrupt, PerdureError, Unstorable, UnsupportedFormat
from perdure.model import MICROS_MAX, Cause, Commit, id_text
from perdure.system import stack_room

HEADER_VERSION: Literal[1] = 1
PARTS = 2
"""Of a payload: its delta and its records."""
SHA256 = b"\x01"
_DOMAIN = b"perdure.commit.v1\0"

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class _Said(Struct, frozen=True, gc=False, omit_defaults=True):
    """The fields of a cause but its kind, under their short names: what is empty is not written.
    Those of newer versions are left out."""

    w: str = ""
    r: str | None = None
    s: str | None = None
    k: str | None = None
    t: str | None = None
    g: str | None = None
    l: tuple[str, ...] = ()  # noqa: E741
    x: tuple[int, ...] = ()


class _Header(Struct, array_like=True, forbid_unknown_fields=True, frozen=True, gc=False):
    """A header: its fields in their order, each of its type, as which it is decoded."""

    version: Literal[1]
    agent: str
    incarnation: Annotated[int, Meta(ge=1, le=2**62)]
    seq: int
    prev: bytes
    branch: str
    parents: tuple[Annotated[int, Meta(ge=1)], ...]
    schema: tuple[str, int, int]
    at: Annotated[int, Meta(ge=0, le=MICROS_MAX)]
    executor: str
    epoch: Annotated[int, Meta(ge=0, le=2**62)]
    cause: tuple[str, _Said]
    payload_id: bytes
    payload_digest: bytes


_decode_header = msgspec.msgpack.Decoder(_Header).decode


def read_cause(wire: Any) -> Cause:
    """Returns the cause of a header whose other fields may be anything.

    Raises:
        msgspec.ValidationError: it is not a cause.
    """
    kind, said = msgspec.convert(wire, tuple[str, _Said])
    return Cause(kind, said.w, said.r, said.s, said.k, said.t, said.g, said.l, said.x)


class LogTail(Struct, frozen=True, gc=False):
    """The end of an agent's log: what the next commit links to.

    Attributes:
        header: the last commit's, whose digest is `id`; empty where it is not known.
    """

    seq: int
    id: bytes
    at: int
    header: bytes = b""


START = LogTail(0, b"", 0)


class Payload(Struct, frozen=True, gc=False):
    """An encoded payload, ready to be linked: envelope bytes, their digest, a random id."""

    data: bytes
    digest: bytes
    id: bytes


class Draft(Struct, frozen=True):
    """The fields of a header that do not depend on the commit's position in the log.

    Attributes:
        parent_id: id of the first of `parents`, which is not part of the header; empty if unknown.
    """

    agent: str
    incarnation: int
    branch: str
    parents: tuple[int, ...]
    schema_id: str
    schema_version: tuple[int, int]
    executor: str
    epoch: int
    cause: Cause
    payload: Payload
    parent_id: bytes = b""


_KINDS: tuple[type[Any], ...] = (
    Set,
    Delete,
    Append,
    Splice,
    TextSplice,
    Increment,
    SetAdd,
    SetRemove,
    Move,
)
"""An op's code on the wire is its place here. Part of the format: only add at the end."""

_CODES = {kind: code for code, kind in enumerate(_KINDS)}


def to_wire(op: Op) -> list[Any]:
    """Returns an op as ``[code, path, …its other fields]``.

    Raises:
        OpError: `from_wire` would refuse it.
    """
    path, *fields = astuple(op)
    code = _CODES[type(op)]
    if code in _COUNTED:
        try:
            _check_counts(fields)
        except TypeError as error:
            raise OpError(f"not an op: {op!r:.80}") from error
    return [code, list(path), *fields]


def from_wire(wire: Any) -> Op:
    """Returns the op of a decoded wire form.

    Raises:
        OpError: it is not an op. UnsupportedFormat: only a newer version knows its kind.
    """
    try:
        code, fields = wire[0], wire[2:]
        if type(code) is int and code >= len(_KINDS):
            raise UnsupportedFormat(
                f"an op of a kind that this version does not know, {code}",
                hint="it was written by a newer version: read it with a newer perdure",
            )
        op = _KINDS[code](tuple(wire[1]), *fields)
        if code in _COUNTED:
            _check_counts(fields)
    except (TypeError, ValueError, LookupError) as error:
        raise OpError(f"not an op: {wire!r:.80}") from error
    return op  # type: ignore[no-any-return]


_COUNTED = frozenset((_CODES[Splice], _CODES[TextSplice], _CODES[Move]))


def _check_counts(fields: list[Any]) -> None:
    """Refuses negative counts, which Python would count from the end, and True, which it would take
    for 1."""
    for number in fields[:2]:
        if type(number) is not int or number < 0:
            raise TypeError("an index or a number of items")


def commit_id(header: bytes) -> bytes:
    return SHA256 + sha256(_DOMAIN + header).digest()


def pack_payload(delta: Sequence[Op], records: Sequence[Record | Mapping[str, Any]]) -> Payload:
    """Encodes a delta and records. Their values must be plain already.

    Raises:
        Unstorable: a record that the readers of the log would refuse.
    """
    try:
        # I11: by the very types of `read_payload`, or one wrong word poisons the agent for all.
        said = written(records) if records != () else []
    except (ValueError, TypeError) as error:
        raise _unreadable(f"what is recorded ({_kinds(records)})", error) from error
    body = codec.encode([[*map(to_wire, delta)], said])
    random = envelope.random_bytes()
    data = envelope.seal(body, random[: envelope.SALT_SIZE])
    return Payload(data, envelope.digest(data), random[envelope.SALT_SIZE :])


def _kinds(records: Sequence[Any]) -> str:
    kinds = [one.t for one in records[:3] if isinstance(one, Record)]
    kinds += [str(one.get("t")) for one in records[:3] if isinstance(one, dict)]
    return ", ".join(kind[:40] for kind in kinds)


def _unreadable(what: str, error: Exception) -> Unstorable:
    return Unstorable(
        f"{what} cannot be written, because it could not be read again: {error}",
        hint="nothing was written; an argument of this call is of a wrong type",
    )


def link(draft: Draft, tail: LogTail, now: int) -> tuple[bytes, LogTail]:
    """Returns the header of a commit that follows `tail`, and the tail that it makes.

    Args:
        now: the store's clock, microseconds since 1970. A clock that stands still or goes back
            does not: header time is at least one microsecond after the previous one.

    Raises:
        Unstorable: the readers of the log would refuse the header.
    """
    at, cause, payload = max(now, tail.at + 1), draft.cause, draft.payload
    said = _Said(
        cause.what or "",
        cause.run or None,
        cause.step or None,
        cause.key or None,
        cause.trace or None,
        cause.group or None,
        cause.tags or (),
        cause.refers or (),
    )
    try:
        header = _encode(
            _Header(
                HEADER_VERSION,
                draft.agent,
                draft.incarnation,
                tail.seq + 1,
                tail.id,
                draft.branch,
                draft.parents,
                (draft.schema_id, *draft.schema_version),
                at,
                draft.executor,
                draft.epoch,
                (cause.kind, said),
                payload.id,
                payload.digest,
            )
        )
        # I11: every commit passes here. None gets in that `read_commit` would refuse, or that would
        # be found under other names than it says: a date is written as its text.
        read = _decode_header(header)
        if read.agent != draft.agent or read.branch != draft.branch:
            raise TypeError("the names of an agent and of a branch must be texts")
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        raise _unreadable(f"the header of a commit ({draft.cause.kind})", error) from error
    return header, LogTail(tail.seq + 1, commit_id(header), at, header)


def read_header(header: bytes, target: str) -> list[Any]:
    """Returns the fields of a header, in the order of docs/format.md.

    Raises:
        Corrupt, UnsupportedFormat: the header is damaged, or of a newer version.
    """
    try:
        fields = _decode(header)
        version = fields[0]
    except (
        msgspec.MsgspecError,
        ValueError,
        TypeError,
        IndexError,
        KeyError,
        RecursionError,
    ) as error:
        stack_room.pass_on(error)
        raise Corrupt("its header is unreadable", target=target, hint=HINT) from error
    if version != HEADER_VERSION:
        raise UnsupportedFormat(
            f"header version {version}", target=target, hint="read it with a newer perdure"
        )
    return fields  # type: ignore[no-any-return]


HINT = envelope.RESTORE_HINT


def tail_of(header: bytes, target: str) -> LogTail:
    """Returns the tail that a stored last header makes.

    Raises:
        Corrupt, UnsupportedFormat: the header is damaged, or of a newer version.
    """
    fields = _typed_header(header, target)
    return LogTail(fields.seq, commit_id(header), fields.at, header)


def parents_of(header: bytes, target: str) -> tuple[int, ...]:
    """Returns the parents that a stored header names.

    Raises:
        Corrupt, UnsupportedFormat: the header is damaged, or of a newer version.
    """
    return _typed_header(header, target).parents


def kind_of(header: bytes, target: str) -> str:
    """Returns the kind of a stored header's cause.

    Raises:
        Corrupt, UnsupportedFormat: the header is damaged, or of a newer version.
    """
    return _typed_header(header, target).cause[0]


def _typed_header(header: bytes, target: str) -> _Header:
    try:
        return _decode_header(header)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        stack_room.pass_on(error)
        fields = read_header(header, target)  # is it another version's, or none at all?
        if type(fields) is list and len(fields) > len(_Header.__struct_fields__):
            raise UnsupportedFormat(
                f"a header of {len(fields)} fields", target=target, hint=codec.NEWER
            ) from error
        raise Corrupt(f"its header is malformed: {error}", target=target, hint=HINT) from error


def read_commit(agent: str, seq: int, header: bytes, payload: bytes | None) -> Commit:
    """Decodes a stored commit and checks it against itself: place, agent and payload digest.

    Raises:
        Corrupt: naming agent and commit.
    """
    try:
        read = _typed_header(header, "")
        if read.agent != agent or read.seq != seq:
            whose = f"agent {read.agent!r}, commit {read.seq}"
            raise Corrupt(f"its header is that of {whose}", hint=HINT)
        if read.parents and max(read.parents) >= seq:
            raise Corrupt(f"names {read.parents} as its parents", hint=HINT)
        size = len(header) + len(payload or b"")
        trimmed = False
        if payload is not None and payload.startswith(remains.MAGIC):
            trimmed = payload == remains.REMOVED
            payload = payload if trimmed else remains.payload_of(payload, "")
        content = _NO_CONTENT if trimmed else read_payload(payload, read.payload_digest)
    except PerdureError as error:
        error.target = error.target or f"agent {agent!r}, commit {seq}"
        raise
    (schema_id, major, minor), (kind, said) = read.schema, read.cause
    delta, records, typed = content
    return Commit(
        agent,
        read.incarnation,
        seq,
        commit_id(header),
        read.prev,
        read.branch,
        read.parents,
        schema_id,
        (major, minor),
        read.at,
        read.executor,
        read.epoch,
        Cause(kind, said.w, said.r, said.s, said.k, said.t, said.g, said.l, said.x),
        delta,
        records,
        size,
        trimmed,
        typed=typed,
    )


Content = tuple[tuple[Op, ...], tuple[dict[str, Plain], ...], tuple[Record, ...]]
"""A delta, and records, plain and typed."""

_NO_CONTENT: Content = ((), (), ())


def read_payload(data: bytes | None, expected: bytes) -> Content:
    """Returns the delta of a payload whose digest a header names, and its records, plain and
    typed."""
    if data is None:
        raise Corrupt("its payload is gone", hint=HINT)
    if envelope.digest(data) != expected:
        raise Corrupt("its payload is not the one that its header was made for", hint=HINT)
    body: Any = None
    try:
        body = codec.decode(envelope.open_envelope(data, ""))
        delta, records = body
        return tuple(map(from_wire, delta)), *read_records(records)
    except (codec.UndecodableError, OpError, ValueError, TypeError, RecursionError) as error:
        stack_room.pass_on(error)
        if type(body) is list and len(body) > PARTS:
            raise UnsupportedFormat(f"a payload of {len(body)} parts", hint=codec.NEWER) from error
        raise Corrupt("its payload is malformed", hint=HINT) from error


def follows(header: bytes, before: bytes) -> bool:
    """True if a commit names the one with these bytes as its predecessor. The bytes themselves are
    not read.

    Raises:
        Corrupt, UnsupportedFormat: its own header cannot be read.
    """
    prev = _typed_header(header, "").prev
    return prev == commit_id(before) or not prev.startswith(
        SHA256
    )  # of another algorithm: who knows


def check_link(commit: Commit, before: Commit | None) -> None:
    """Checks that a commit continues the chain of the one before it (I3).

    Raises:
        Corrupt: naming the first commit that does not follow.
    """
    seq, prev = (before.seq, before.id) if before else (0, b"")
    problem = ""
    if commit.seq != seq + 1:
        problem = f"follows commit {seq}: commits are missing"
    elif commit.prev != prev:
        problem = f"names {id_text(commit.prev)} as its predecessor, which is {id_text(prev)}"
    elif before and commit.at_micros <= before.at_micros:
        problem = "is not later than the one before it"
    if problem:
        raise Corrupt(problem, target=f"agent {commit.agent!r}, commit {commit.seq}", hint=HINT)
