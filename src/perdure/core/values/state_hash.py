"""The hash of a state: in checkpoints, and in words of retention for the states that stay."""

from __future__ import annotations

from hashlib import sha256

from perdure.core.values import codec
from perdure.core.values.plain_values import Plain


def state_hash(state: Plain) -> str:
    """Returns the hash of a state's canonical bytes: equal states have equal hashes, whatever the
    order of their keys."""
    return "sha256:" + sha256(b"perdure.state.v1\0" + codec.canonical(state)).hexdigest()
