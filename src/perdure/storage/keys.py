"""Look-up of the commit that an idempotency key made, whatever version of Perdure noted it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from perdure.core.arguments.bounds import index_key
from perdure.storage.shortcuts import MANY_KEYS


class Keys(Protocol):
    capabilities: frozenset[Any]

    def key(self, agent_no: int, key: str) -> tuple[int, bytes] | None: ...


def find_key(backend: Keys, agent_no: int, key: str) -> tuple[int, bytes] | None:
    """Returns the seq of the commit that a key made, and the digest of its request; None if it is
    unused.

    Long keys are noted by their digests, but older stores have the keys themselves: with a look-up
    by the digest alone such a command would be carried out again.
    """
    noted = index_key(key)
    found = backend.key(agent_no, noted)
    return backend.key(agent_no, key) if found is None and noted is not key else found


def find_keys(backend: Keys, agent_no: int, keys: Sequence[str]) -> dict[str, int]:
    """Returns the seqs of many keys' commits; unused keys are left out."""
    many = MANY_KEYS.of(backend)
    if many is not None and all(index_key(key) is key for key in keys):
        return dict(many.keys(agent_no, keys)) if keys else {}
    found = {key: find_key(backend, agent_no, key) for key in keys}
    return {key: one[0] for key, one in found.items() if one is not None}
