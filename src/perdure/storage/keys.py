"""Which commit an idempotency key made, whatever version of Perdure noted it."""

from __future__ import annotations

from typing import Protocol

from perdure.core.bounds import index_key


class Keys(Protocol):
    def key(self, agent_no: int, key: str) -> tuple[int, bytes] | None: ...


def find_key(backend: Keys, agent_no: int, key: str) -> tuple[int, bytes] | None:
    """Seq of the commit that a key made, and what was asked for under it; None: it is unused.

    Long keys are noted by their digests, but stores that were written before that have them as they
    are: a command whose key is only looked for by its digest would be carried out again.
    """
    noted = index_key(key)
    found = backend.key(agent_no, noted)
    return backend.key(agent_no, key) if found is None and noted is not key else found
