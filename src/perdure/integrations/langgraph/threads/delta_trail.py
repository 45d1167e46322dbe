"""The history of the channels of one checkpoint that are stored as deltas, for those who continue
from there.

A turn asks for the way to the checkpoint that the turn before it ended with, or to one a few steps
later: a hundred ancestors, most of which were walked over a moment ago.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from perdure.core.values.plain_values import Plain
from perdure.integrations.langgraph.threads.write_records import writes_on
from perdure.integrations.langgraph.values import thread_names
from perdure.model import Commit

TRAILS_KEPT = 4
"""Of one thread: namespaces, and sets of channels, are few at a time."""

Written = list[tuple[str, str, Plain]]
"""Writes that count, in their order: task, channel, value. Not to be changed."""


class Way(Struct):
    """The history of one channel: the value that an ancestor has, if any has one (`found`), and the
    writes since."""

    found: bool
    seed: Plain
    writes: Written


class Trail(Struct):
    """The ways to the channels of the checkpoint at `target`, all in one log.

    Writes that come for one of its `places`, the target's own excepted, or a checkpoint that is put
    there anew, end it: see `Trails.follow`.
    """

    target: int
    place: str
    ways: dict[str, Way]
    places: set[str]
    seqs: set[int]

    def ends_with(self, kind: str, place: str, on: int | None) -> bool:
        """Returns True if a later commit changes this trail.

        Args:
            kind: "c" for a commit that puts the checkpoint of that place, "w" for writes for it.
            on: the seq of the checkpoint whose writes it contains.
        """
        if place in self.places or on in self.seqs:
            return True
        return kind == "c" and place == self.place


class Trails:
    """The trails of one log, by namespace and channels."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, tuple[str, ...]], Trail] = {}

    def take(self, namespace: str, channels: Sequence[str]) -> Trail | None:
        """Removes and returns one trail: the caller changes it, and stores the result."""
        return self._known.pop((namespace, tuple(channels)), None)

    def keep(self, namespace: str, channels: Sequence[str], trail: Trail) -> None:
        while len(self._known) >= TRAILS_KEPT:
            self._known.pop(next(iter(self._known)), None)
        self._known[namespace, tuple(channels)] = trail

    def follow(self, commit: Commit) -> None:
        """Takes in one more commit of the log, a checkpoint or writes; forgets the trails that it
        changes."""
        if not self._known:
            return
        found = thread_names.read_key(commit.cause.key)
        assert found is not None
        kind, _, place = found
        on = writes_on(commit) if kind == "c" else None
        for key, trail in [*self._known.items()]:
            if trail.ends_with(kind, place, on):
                del self._known[key]
