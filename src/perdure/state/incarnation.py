"""Which incarnation of an agent a working copy is about: no write of it comes into another one."""

from __future__ import annotations

from perdure.model import AgentInfo
from perdure.storage.looks import Reads


class Incarnation:
    """One incarnation of an agent, before or after it was created.

    Args:
        number: the one that is meant; None: the one that is there when it is first asked for, as
            for whoever comes anew; or see `settle`.
    """

    def __init__(self, backend: Reads, name: str, number: int | None) -> None:
        self._backend = backend
        self._name = name
        self._known = number
        self._awaited: int | None = None

    def settle(self) -> AgentInfo | None:
        """Mean from now on the one that is there, or, if none is, the next one to be created.

        Without it a handle that looks late takes a deletion for "not created yet", and its first
        write brings the agent back.
        """
        latest = self._backend.agent(self._name)
        if latest is not None and not latest.deleted:
            self._known = latest.incarnation
            return latest
        self._awaited = latest.incarnation + 1 if latest is not None else 1
        return None

    def find(self) -> AgentInfo | None:
        """What there is of it, deleted or not; None before it is created."""
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
        """The number under which a first commit creates it. Where another one took that number
        meanwhile, storage refuses the commit."""
        if self._awaited is not None:
            return self._awaited
        latest = self._backend.agent(self._name)
        return latest.incarnation + 1 if latest is not None and latest.deleted else 1
