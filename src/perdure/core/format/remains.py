"""The format of what retention leaves in the place of a payload: nothing, or the payload with the
whole state.

A header names the digest of its payload: it stays what it was, and so does the chain. A commit on
the branch `@retention` says what was removed, and which digests the kept states have. Layout in
docs/format.md ("What retention leaves").
"""

from __future__ import annotations

import struct
from hashlib import sha256

from perdure.core.format import envelope
from perdure.core.values import codec
from perdure.core.values.plain_values import Plain
from perdure.errors import Corrupt, UnsupportedFormat
from perdure.system import stack_room

MAGIC = b"Pr\x01"
"""No envelope begins so."""

REMOVED = MAGIC + b"\0"
_BASE = MAGIC + b"\1"
_SEAL_SIZE = 16
_LENGTH = struct.Struct(">Q")
_BODY_AT = len(_BASE) + _SEAL_SIZE + _LENGTH.size


def write_base(payload: bytes, state: Plain) -> bytes:
    """Returns the stored form of a commit whose state is kept: the same bytes in each copy of the
    log. O(state)."""
    salt = sha256(payload).digest()[: envelope.SALT_SIZE]  # a payload has random ones in it
    body = _LENGTH.pack(len(payload)) + payload + envelope.seal(codec.encode(state), salt)
    return _BASE + sha256(body).digest()[:_SEAL_SIZE] + body


def payload_of(data: bytes, target: str) -> bytes:
    """Returns the payload of a commit whose state was kept.

    Raises:
        Corrupt: these bytes are damaged, or are not what retention leaves.
    """
    return _parts(data, target)[0]


def state_of(data: bytes, target: str) -> Plain:
    """Returns the kept state, newly decoded: the caller may change it. Errors as `payload_of`."""
    packed = _parts(data, target)[1]
    try:
        return codec.decode(envelope.open_envelope(packed, target))
    except UnsupportedFormat as error:
        error.target = error.target or target
        raise
    except (codec.UndecodableError, ValueError, TypeError, RecursionError) as error:
        stack_room.pass_on(error)
        raise _damaged(target) from error


def _parts(data: bytes, target: str) -> tuple[bytes, bytes]:
    """Returns the payload, and the state in its envelope."""
    seal, body = data[len(_BASE) : len(_BASE) + _SEAL_SIZE], data[len(_BASE) + _SEAL_SIZE :]
    size = _LENGTH.unpack_from(body)[0] if len(body) >= _LENGTH.size else -1
    end = _BODY_AT + size
    whole = data.startswith(_BASE) and sha256(body).digest()[:_SEAL_SIZE] == seal
    if not whole or not _BODY_AT <= end <= len(data):
        raise _damaged(target)
    return data[_BODY_AT:end], data[end:]


def _damaged(target: str) -> Corrupt:
    return Corrupt(
        "what retention left of it is damaged", target=target, hint=envelope.RESTORE_HINT
    )
