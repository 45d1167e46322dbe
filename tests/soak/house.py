"""Where the store is, and how the processes are told to end."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perdure.model import AgentInfo
from perdure.store import Store


@dataclass(frozen=True, slots=True)
class House:
    """A folder with a store."""

    folder: Path

    @property
    def store(self) -> Path:
        return self.folder / "store.db"

    @property
    def finished(self) -> Path:
        """There once all is done."""
        return self.folder / "finished"


def living_agents(store: Store) -> list[AgentInfo]:
    found: list[AgentInfo] = []
    while page := store.agents(after=found[-1].name if found else ""):
        found += page
    return found
