"""Since when a working copy has had no snapshot, and writing the next one."""

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
    """What was committed since the last snapshot, and what of that still holds."""

    def __init__(self) -> None:
        self._leaves = Leaves()
        self._weight = self._commits = self._at = 0
        self._wrote = self._holds = 0
        """Bytes that the last snapshot wrote; bytes of it, those that it shares included."""

    def begin(self, folded: Folded, *, migrated: bool) -> None:
        """From a state as it was read."""
        self._leaves = Leaves() if migrated else folded.leaves
        self._weight = folded.weight
        self._commits = folded.commits
        self._at = folded.snapshot_at
        self._holds = folded.snapshot_size

    def begin_ageing(self, at: int) -> None:
        """Until there is a snapshot, ages count from here (micros)."""
        self._at = at

    def note(self, delta: Sequence[Op], size: int) -> None:
        """One more commit, of `size` bytes."""
        if delta and self._leaves.lists:
            self._leaves.note(delta)
        self._weight += size + REPLAY_COST[bool(delta)]
        self._commits += 1

    def doubt(self) -> None:
        """A change was taken back: no leaf is known to hold any more."""
        self._leaves = Leaves()

    def wrote(self, proposal: Proposal, stored: Callable[[int], None], at: int) -> None:
        """The commit that was to carry a snapshot is in. `stored`: from `write`."""
        if proposal.snapshot is not None:
            stored(at)
        else:  # a leaf was gone
            self.doubt()

    def due(self, context: Context, cause: Cause) -> bool:
        """Whether the next commit shall carry a snapshot."""
        policy, weight = context.snapshots, self._weight
        if policy.by_weight and weight >= self._wrote:
            if cause.kind in RESTING:
                heavy = weight >= min(policy.weight_min, RESTING_WEIGHT_MIN)
            else:
                heavy = weight >= max(policy.weight_min, min(self._holds // 2, WEIGHT_LONG))
            if heavy:
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
        """Encode a snapshot, and what to call, with its time, once it is stored. O(state)."""
        snapshot, stored = snapshots.write(state, self._leaves, agent, incarnation, parent)
        fresh = sum(map(len, snapshot.leaves.values()))
        self._wrote = len(snapshot.manifest) + fresh
        self._holds += fresh  # but for leaves that were given up: an estimate is enough

        def begin_anew(at: int) -> None:
            stored()
            self._commits = self._weight = 0
            self._at = at

        return snapshot, begin_anew
