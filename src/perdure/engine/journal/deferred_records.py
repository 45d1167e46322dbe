"""The records that a run writes with its next commit: nothing outside depends on them yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from perdure.core.format.records import Completed, Record, Valued
from perdure.model import RunInfo
from perdure.storage.appending import Riders


class PutOff(Struct):
    """Records, the numbers of messages that they consumed, and the row of the run if they change
    that."""

    records: list[Record | Mapping[str, Any]] = field(default_factory=list)
    consumed: list[int] = field(default_factory=list)
    rows: list[RunInfo] = field(default_factory=list)

    def add(self, riders: Riders) -> None:
        self.records += riders.records
        self.consumed += riders.consumed
        self.rows += riders.runs

    @property
    def riders(self) -> Riders:
        return Riders(self.records, consumed=self.consumed, runs=self.rows, lazy=True)

    def take(self) -> PutOff:
        """Takes all of them, for the caller to commit."""
        taken = PutOff(self.records, self.consumed, self.rows)
        self.records, self.consumed, self.rows = [], [], []
        return taken

    def put_back(self, taken: PutOff) -> None:
        """Puts back what was taken for a commit that failed, in front of what came since."""
        self.records = taken.records + self.records
        self.consumed = taken.consumed + self.consumed
        self.rows = taken.rows + self.rows

    def drop_unordered(self) -> None:
        """Forgets values that nothing was recorded behind. The others stay, also where that was in
        another task: it may have been told of them."""
        end = len(self.records)
        while end and isinstance(self.records[end - 1], Valued | Completed):
            end -= 1
        self.records = self.records[:end]
