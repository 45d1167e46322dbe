"""The age of a working copy's last snapshot, and the writing of the next one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perdure.core.values.ops import Op
from perdure.core.values.plain_values import Plain
from perdure.model import Cause
from perdure.state.context import Context
from perdure.state.snapshot_policy import RESTING, RESTING_WEIGHT_MIN, WEIGHT_LONG
from perdure.storage.appending import StoredSnapshot
from perdure.storage.log import snapshots
from perdure.storage.log.proposals import Proposal
from perdure.storage.log.reader import REPLAY_COST, Folded
from perdure.storage.log.snapshots import Leaves


class SinceSnapshot:
    """The commits since the last snapshot, and the parts of it that still hold."""

    def __init__(self) -> None:
        self._leaves = Leaves()
        self._weight = self._commits = self._at = 0
        self._wrote = self._holds = 0
        """Bytes that the last snapshot wrote; bytes of it, those that it shares included."""

    def begin(self, folded: Folded, *, migrated: bool) -> None:
        """Starts from a state as it was read."""
        self._leaves = Leaves() if migrated else folded.leaves
        self._weight = folded.weight
        self._commits = folded.commits
        self._at = folded.snapshot_at
        self._holds = folded.snapshot_size

    def begin_ageing(self, at: int) -> None:
        """Makes ages count from here (micros) until there is a snapshot."""
        self._at = at

    def note(self, delta: Sequence[Op], size: int) -> None:
        """Notes one more commit, of `size` bytes."""
        if delta and self._leaves.lists:
            self._leaves.note(delta)
        self._weight += size + REPLAY_COST[bool(delta)]
        self._commits += 1

    def doubt(self) -> None:
        """Notes that a change was taken back: no leaf is known to hold any more."""
        self._leaves = Leaves()

    def wrote(self, proposal: Proposal, stored: Callable[[int], None], at: int) -> None:
        """Notes that the commit that was to carry a snapshot is in. `stored`: from `write`."""
        if proposal.snapshot is not None:
            stored(at)
        else:  # a leaf was gone
            self.doubt()

    def due(self, context: Context, cause: Cause) -> bool:
        """True if the next commit is to carry a snapshot."""
        policy, weight = context.snapshots, self._weight
        if policy.by_weight and weight >= self._wrote:
            rests = cause.kind in RESTING
            if weight >= policy.weight_min:
                if rests or weight >= min(self._holds // 2, WEIGHT_LONG):
                    return True
            elif rests and weight >= RESTING_WEIGHT_MIN:
                return True
        if policy.every_commits is not None and self._commits >= policy.every_commits:
            return True
        if policy.every_seconds is not None:
            age_s = (context.backend.now() - self._at) / 1e6 if self._at else 0.0
            if age_s >= policy.every_seconds:
                return True
        return cause.kind in policy.on or cause.what in policy.on

    def write(
        self, state: Plain, agent: str, incarnation: int, parent: int
    ) -> tuple[StoredSnapshot, Callable[[int], None]]:
        """Encodes a snapshot. Returns it with a function to call, with its time, once it is stored.
        O(state)."""
        snapshot, stored = snapshots.write(state, self._leaves, agent, incarnation, parent)
        fresh = sum(map(len, snapshot.leaves.values()))
        self._wrote = len(snapshot.manifest) + fresh
        self._holds += fresh  # but for leaves that were given up: an estimate is enough

        def begin_anew(at: int) -> None:
            stored()
            self._commits = self._weight = 0
            self._at = at

        return snapshot, begin_anew
