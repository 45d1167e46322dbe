"""The journal of one run: what its commits recorded, by place, and what of it was consumed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from perdure.errors import NeedsAttention
from perdure.model import Commit


@dataclass(slots=True)
class Entry:
    """What is recorded at one place of a run.

    Attributes:
        kind: ``step``, ``tool``, ``edit`` or ``value``.
        seq: of the commit that settled it; of the intent while it is in doubt.
        outcome: the record with its value or error; None while in doubt.
        attempts: how many intents it has.
    """

    place: str
    kind: str
    seq: int
    call: Mapping[str, Any]
    outcome: Mapping[str, Any] | None = None
    attempts: int = 0


@dataclass(slots=True)
class Journal:
    """See the module. `origin`: id of the commit that began the run."""

    run: str
    origin: bytes = b""
    entries: dict[str, Entry] = field(default_factory=dict)
    commits: list[Commit] = field(default_factory=list)
    _consumed: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, run: str, commits: Iterable[Commit], origin: bytes = b"") -> Journal:
        """From the branch's commits since the run began, oldest first."""
        journal = cls(run, origin, commits=list(commits))
        for commit in journal.commits:
            for record in commit.records:
                if record.get("run") == run and "place" in record:
                    journal._add(record, commit.seq)
        return journal

    def _add(self, record: Mapping[str, Any], seq: int) -> None:
        place = str(record["place"])
        entry = self.entries.get(place)
        match record["t"]:
            case "intent":
                if entry is None:
                    entry = self.entries[place] = Entry(place, "tool", seq, record)
                entry.attempts += 1
                entry.outcome = None
            case "outcome":
                if entry is not None:
                    entry.outcome, entry.seq = record, seq
            case "step" | "edit" | "value" as kind:
                self.entries[place] = Entry(place, kind, seq, record, record)

    def consume(self, place: str) -> Entry | None:
        """What is recorded at a place that the function has come to; None: it goes live there.

        Raises:
            NeedsAttention: the function does something else than it did before.
        """
        entry = self.entries.get(place)
        if entry is None:
            left = self.next_left()
            if left is not None:
                raise changed(
                    f"the function now calls {place}, where it had recorded {describe(left)}",
                    self.run,
                )
            return None
        self._consumed.add(place)
        return entry

    def next_left(self) -> Entry | None:
        """The first recorded entry that the function has not come to."""
        if len(self._consumed) == len(self.entries):
            return None  # asked for at every live call: must not cost O(journal)
        return next(
            (entry for place, entry in self.entries.items() if place not in self._consumed), None
        )

    def check_finished(self) -> None:
        """The function returned: everything that was recorded must have been come to."""
        left = self.next_left()
        if left is not None:
            raise changed(f"the function ended, where it had recorded {describe(left)}", self.run)

    def check_call(self, entry: Entry, kind: str, args: Mapping[str, str], preview: str) -> None:
        """The call at a place must be the one that was recorded there.

        Raises:
            NeedsAttention: naming the arguments that differ.
        """
        recorded = entry.call.get("args", {})
        if entry.kind != kind:
            raise changed(
                f"{entry.place} is a {kind} now and was recorded as a {entry.kind}", self.run
            )
        names = [
            name for name in {**recorded, **args}
            if recorded.get(name) != args.get(name)
        ]  # fmt: skip
        if names:
            raise NeedsAttention(
                f"{entry.place} is called with other arguments ({', '.join(names)}): "
                f"recorded {entry.call.get('preview', '')!r}, now {preview!r}",
                target=f"run {self.run}",
                hint="what a function passes on must come from its arguments, its state and "
                "recorded calls; use run.now(), run.random() and run.uuid()",
            )


CHANGED_HINT = (
    "the function's code changed under the run; put the old code back and run it again, "
    "or cancel the run and start another with a new key"
)


def changed(problem: str, run: str) -> NeedsAttention:
    return NeedsAttention(problem, target=f"run {run}", hint=CHANGED_HINT)


def describe(entry: Entry) -> str:
    return f"{entry.kind} {entry.place}({entry.call.get('preview', '')})"
