"""The agents of a store that are not deleted."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.model import AgentInfo
from perdure.storage.capabilities import Backend

PAGE = 1000


def living(backend: Backend, prefix: str = "") -> Iterator[AgentInfo]:
    """Yields all agents that are not deleted, by name; those whose names begin with `prefix`."""
    after = ""
    while page := backend.agents(prefix, after, PAGE):
        yield from page
        after = page[-1].name
