"""What led to the channels of one checkpoint that are stored as deltas, for who goes on from there.

A turn asks for the way to the checkpoint that the turn before it ended with, or for that of a few
steps later: a hundred ancestors, of which all but a few were walked over a moment ago.
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
    """What led to one channel: the value that an ancestor has, if any has one (`found`), and what
    was written since."""

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
        """Whether a later commit changes what it says.

        Args:
            kind: "c" of one that puts the checkpoint of that place, "w" of writes for it.
            on: the seq of the checkpoint whose writes it took along.
        """
        if place in self.places or on in self.seqs:
            return True
        return kind == "c" and place == self.place


class Trails:
    """Those of one log, by namespace and channels."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, tuple[str, ...]], Trail] = {}

    def take(self, namespace: str, channels: Sequence[str]) -> Trail | None:
        """One, out of here: who goes on from it changes it, and keeps what becomes of it."""
        return self._known.pop((namespace, tuple(channels)), None)

    def keep(self, namespace: str, channels: Sequence[str], trail: Trail) -> None:
        while len(self._known) >= TRAILS_KEPT:
            self._known.pop(next(iter(self._known)), None)
        self._known[namespace, tuple(channels)] = trail

    def follow(self, commit: Commit) -> None:
        """One more commit of the log, a checkpoint or writes; what it changes is known no more."""
        if not self._known:
            return
        found = thread_names.read_key(commit.cause.key)
        assert found is not None
        kind, _, place = found
        on = writes_on(commit) if kind == "c" else None
        for key, trail in [*self._known.items()]:
            if trail.ends_with(kind, place, on):
                del self._known[key]
