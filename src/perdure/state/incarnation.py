"""The incarnation of an agent that a working copy is about: none of its writes gets into another
one."""

from __future__ import annotations

from perdure.core.arguments.checks import count
from perdure.core.arguments.exact_types import is_a
from perdure.core.arguments.names import check_name, shown
from perdure.errors import NotFound
from perdure.model import AgentInfo
from perdure.storage.looks import Reads


class Incarnation:
    """One incarnation of an agent, before or after it was created.

    Args:
        number: the incarnation; None: the one that exists when it is first looked up, as for a new
            handle; or see `settle`.
    """

    def __init__(self, backend: Reads, name: str, number: int | None) -> None:
        self._backend = backend
        self._name = name
        self._known = number
        self._awaited: int | None = None

    def settle(self) -> AgentInfo | None:
        """Fixes the incarnation: the one that exists now, or, if none does, the next one to be
        created.

        Without this, a handle that looks late takes a deletion for "not created yet", and its first
        write brings the agent back.
        """
        latest = self._backend.agent(self._name)
        if latest is not None and not latest.deleted:
            self._known = latest.incarnation
            return latest
        self._awaited = latest.incarnation + 1 if latest is not None else 1
        return None

    def find(self) -> AgentInfo | None:
        """Returns its row, deleted or not; None before it is created."""
        found = self._find()
        if found is not None:
            self._known = found.incarnation
        return found

    def _find(self) -> AgentInfo | None:
        if self._known is not None:
            return self._backend.agent(self._name, self._known)
        latest = self._backend.agent(self._name)
        if latest is None:
            return None
        if self._awaited is None:
            return None if latest.deleted else latest
        if latest.incarnation < self._awaited:
            return None  # deleted already when this settled
        # It may be a later one because the awaited one was deleted, or because its log came from
        # another store, where it had another number.
        return self._backend.agent(self._name, self._awaited) or latest

    def to_create(self) -> int:
        """Returns the number under which a first commit creates it. If another one takes that
        number first, storage refuses the commit."""
        if self._awaited is not None:
            return self._awaited
        latest = self._backend.agent(self._name)
        return latest.incarnation + 1 if latest is not None and latest.deleted else 1


def own_agent(backend: Reads, info: AgentInfo) -> AgentInfo:
    """Returns a store's own row of an agent: another store's would lead to another agent's log.

    Raises:
        NotFound: it is not from this store. TypeError: it is no row of an agent.
    """
    if not is_a(info, AgentInfo):
        raise TypeError(f"info must come from store.find or store.agents, not {shown(info)}")
    name = check_name(info.name, "an agent")
    there = backend.agent(name, count(info.incarnation, "info.incarnation"))
    if there is None or there.no != count(info.no, "info.no"):
        raise NotFound(
            "is not what this store said of an agent",
            target=f"agent {name!r}",
            hint="use store.find(name), or store.agents(), of this store",
        )
    return there
