"""Bytes that are decoded: values, envelopes, payloads, headers, snapshots."""

from __future__ import annotations

from hashlib import sha256

from perdure.core.format import chain, envelope, remains
from perdure.core.values import codec, ops
from perdure.core.values.plain_values import same
from perdure.errors import Unstorable
from perdure.storage.appending import StoredSnapshot
from perdure.storage.log import snapshots
from tests.fuzz.mutating import Parts
from tests.fuzz.target import Looks, Target

SALT = b"\0" * envelope.SALT_SIZE


def _values(parts: Parts, looks: Looks) -> None:
    """What can be read can be written, and read again as what it was."""
    for part in parts:
        with looks.look(codec.UndecodableError, Unstorable):
            value = codec.decode(part)
            again = codec.decode(codec.encode(value))
            codec.canonical(value)
            with looks.look(RecursionError):  # of the comparison, which is ours
                assert same(value, again), f"{value!r:.500} came back as {again!r:.500}"


def _envelopes(parts: Parts, looks: Looks) -> None:
    for part in parts:
        with looks.look():
            envelope.open_envelope(part, "an envelope")
        with looks.look():
            codec_body = envelope.open_envelope(envelope.seal(part, SALT), "an envelope")
            assert codec_body == part


def _payloads(parts: Parts, looks: Looks) -> None:
    """Behind the digest: a body in an envelope that its header names; folded, and taken back."""
    for body in parts:
        data = envelope.seal(body, SALT)
        with looks.look():
            delta, *_ = chain.read_payload(data, envelope.digest(data))
            with looks.look(ops.OpError):
                state = ops.fold(None, delta)
                looks.note(type(state).__name__)


def _headers(parts: Parts, looks: Looks) -> None:
    """Behind the payload's digest: agent and seq are those that the header itself says."""
    body = codec.encode([[], []])
    data = envelope.seal(body, SALT)
    for header in parts:
        with looks.look():
            chain.tail_of(header, "a header")
        with looks.look():
            fields = chain.read_header(header, "a header")
            name, seq = fields[1:4:2] if len(fields) > 13 else ("a", 1)
            if len(fields) == 14:
                fields[13] = envelope.digest(data)
            commit = chain.read_commit(name, seq, chain._encode(fields), data)
            chain.check_link(commit, None)
            looks.note(commit.cause.kind if commit.cause.kind in ("edit", "create") else "?")


def seal_snapshot(body: bytes) -> bytes:
    data = envelope.seal(body, SALT)
    return sha256(data).digest()[: snapshots.SEAL_SIZE] + data


def _snapshots(parts: Parts, looks: Looks) -> None:
    """Behind the seals: the first part is the manifest's body, the others are leaves'."""
    if not parts:
        return
    leaves = {number: seal_snapshot(body) for number, body in enumerate(parts[1:], 1)}
    stored = StoredSnapshot(seal_snapshot(parts[0]), list(leaves), leaves)
    with looks.look():
        state, known = snapshots.read(stored, "a snapshot", "a", 1, 1)
        snapshots.write(state, known, "a", 1, 1)
    with looks.look():
        snapshots.read(StoredSnapshot(parts[0], [], {}), "a snapshot", "a", 1, 1)


def _remains(parts: Parts, looks: Looks) -> None:
    """Behind the seal: the first part is a payload's body, the second a state's."""
    bodies = [envelope.seal(body, SALT) for body in (*parts[:2], b"", b"")[:2]]
    rest = len(bodies[0]).to_bytes(8, "big") + bodies[0] + bodies[1]
    whole = remains.MAGIC + b"\1" + sha256(rest).digest()[:16] + rest
    for data in (whole, *parts, *(remains.MAGIC + part for part in parts)):
        with looks.look():
            body = remains.payload_of(data, "a commit")
            chain.read_payload(body, envelope.digest(body))
        with looks.look(Unstorable):
            state = remains.state_of(data, "a commit")
            with looks.look(RecursionError):
                again = remains.write_base(bodies[0], state)
                assert same(remains.state_of(again, "a commit"), state)


values = Target("values", _values)
envelopes = Target("envelopes", _envelopes)
payloads = Target("payloads", _payloads)
headers = Target("headers", _headers)
sealed = Target("snapshots", _snapshots)
remains_of = Target("remains", _remains)
