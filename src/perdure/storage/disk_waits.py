"""The decision which commits are answered only once they are on disk; one for all backends."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.model import Durability
from perdure.storage.appending import Append
from perdure.storage.group_policy import GroupPolicy


class DiskWaits:
    """The decision for one open store. Only its writer uses it.

    Attributes:
        durability: the store's.
        flush_after_s: the seconds after which what did not wait is to be synced; None: never.
        unsynced: the commits since the last that waited; its writer says when there are none.
    """

    def __init__(self, durability: Durability, group: GroupPolicy) -> None:
        self.durability = durability
        self.flush_after_s = None if durability == "os" else float(group.every_seconds)
        self.unsynced = 0
        self._commits_max = group.every_commits

    def needed(self, batch: Sequence[Append]) -> bool:
        """Returns True if one of the commits must be on disk before it is answered. A transaction
        is one for all of them."""
        for item in batch:
            riders = item.riders
            if riders.sync or (self.durability == "sync" and not riders.lazy):
                return True
        return False

    def due(self, batch: Sequence[Append]) -> bool:
        """Counts commits that are about to be written; returns True if they must wait for the disk,
        or it is the turn of one of them to."""
        self.unsynced += len(batch)
        grouped = self.durability != "os" and self.unsynced >= self._commits_max
        return grouped or self.needed(batch)
