"""What a run records with its next commit, whichever that is: nothing outside depends on it yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from perdure.core.format.records import Record, Valued
from perdure.engine.journal.entry import UNORDERED
from perdure.storage.appending import Riders


class PutOff(Struct):
    """Records, and the numbers of messages that they consumed."""

    records: list[Record | Mapping[str, Any]] = field(default_factory=list)
    consumed: list[int] = field(default_factory=list)

    def add(self, riders: Riders) -> None:
        self.records += riders.records
        self.consumed += riders.consumed

    @property
    def riders(self) -> Riders:
        return Riders(self.records, consumed=self.consumed)

    def take(self) -> PutOff:
        """All of it; it is the caller's now."""
        taken = PutOff(self.records, self.consumed)
        self.records, self.consumed = [], []
        return taken

    def put_back(self, taken: PutOff) -> None:
        """What was taken for a commit that did not happen: it comes before what came since."""
        self.records = taken.records + self.records
        self.consumed = taken.consumed + self.consumed

    def drop_unordered(self) -> None:
        """Forget values that nothing was recorded behind."""
        self.records = [
            record
            for record in self.records
            if not (isinstance(record, Valued) and record.t in UNORDERED)
        ]
