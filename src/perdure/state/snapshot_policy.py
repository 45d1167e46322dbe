"""The rules for taking a snapshot along with a commit."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr

from perdure.core.arguments import exact_types
from perdure.core.arguments.exact_types import is_a
from perdure.core.arguments.names import shown, words_of

WEIGHT_MIN = 64 * 1024
WEIGHT_LONG = 96 * 1024
"""The weight for a last snapshot that holds twice as much, or more: replaying so much is little
beside reading that, and longer leaves compress better."""

RESTING = ("run-waiting", "run-finished")
RESTING_WEIGHT_MIN = 8 * 1024
"""When a run is unloaded the next thing to happen is that somebody reads the state, and waits."""


class SnapshotPolicy(Struct, frozen=True):
    """The conditions for storing a whole state, so that reading need not replay. Any one suffices.

    Snapshots are a cache: every policy, also none, gives the same states.

    Attributes:
        by_weight: when the deltas since the last one outweigh what it wrote, and half of what it
            holds (`weight_min` at least, and at most 96 KiB of that half; 8 KiB where a run is
            unloaded): the cost per commit stays O(change), the cost of reading O(state).
        weight_min: deltas of fewer bytes than this never cause one by weight. With a lower value
            small states are read faster after opening the store, and written slower.
        every_commits: after so many commits; None: not by count.
        every_seconds: with the first commit after so much time; None: not by time.
        on: with commits of these kinds or whose words are among these, e.g. ``{"checkpoint"}``.

    Raises:
        TypeError, ValueError: an attribute is invalid; raised when the policy is made, because a
            commit would be too late.
    """

    by_weight: bool = True
    every_commits: int | None = None
    every_seconds: float | None = None
    on: Collection[str] = ("checkpoint",)
    weight_min: int = WEIGHT_MIN

    def __post_init__(self) -> None:
        # The checked values are the ones used at each commit, whatever the caller's objects say by
        # then.
        for name, kinds, least in (
            ("weight_min", (int,), 1),
            ("every_commits", (int,), 1),
            ("every_seconds", (int, float), 0),
        ):
            given = getattr(self, name)
            if given is None and name != "weight_min":
                continue
            force_setattr(self, name, _number(name, given, kinds, least=least))
        if type(self.on) not in (tuple, frozenset) or not all(type(one) is str for one in self.on):
            force_setattr(self, "on", _words("on", self.on))


def _words(name: str, given: Any) -> tuple[str, ...]:
    """Returns the words as a tuple; a single text is refused, because each of its letters would be
    taken for a word."""
    if not issubclass(type(given), Collection) or is_a(given, str) or is_a(given, bytes):
        raise TypeError(
            f"SnapshotPolicy: {name} must be a set of words, e.g. {{{shown(given)}}}, not "
            f"{shown(given)}"
        )
    return words_of(given, f"SnapshotPolicy: {name}")


def _number(name: str, given: Any, kinds: tuple[type, ...], *, least: int) -> float:
    if is_a(given, bool) or not issubclass(type(given), kinds):
        raise TypeError(f"SnapshotPolicy: {name} must be a number or None, not {shown(given)}")
    said: float = exact_types.whole(given) if is_a(given, int) else float.__float__(given)
    if not said >= least:
        raise ValueError(f"SnapshotPolicy: {name} must be at least {least}, not {shown(given)}")
    return said
