"""Optional abilities of a backend that do several of its duties at once, or at less cost. The
promises of the port hold here, too; callers can do without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from perdure.errors import PerdureError
from perdure.model import AgentInfo, Lease, Message, RunInfo
from perdure.storage.appending import Ref, StoredSnapshot
from perdure.storage.capabilities import Capability
from perdure.storage.port import StoredCommit

CLAIM_S = 0.25
"""The time for which a claim keeps others from trying. By then the claimant has taken the lease, or
is slow, or dead: then others try, too, and one of them gets it."""

COMMITS = 32
"""The number of commits that a look brings when the log will be read next: as many as folding a
state reads first."""


class AgentAndRun(Struct, frozen=True):
    """An agent and a run as they were at one moment.

    Attributes:
        agent: its latest incarnation; None if there is none of that name.
        runs: in their order: the one of that id, and the agent's unfinished ones.
        messages: the messages in the run's inbox, in the order they came.
        branch: the run's branch, or main if it has not begun; `ref` is the agent's name there.
        commits: commits up to the branch's head, the last first, and dense; at most as many as were
            asked for; none if the store is near.
    """

    agent: AgentInfo | None
    runs: Sequence[RunInfo]
    messages: Sequence[Message]
    branch: str
    ref: Ref | None
    commits: Sequence[StoredCommit]


class Looks(Protocol):
    """Reads an agent and a run at once."""

    def look(self, agent: str, run: str) -> AgentAndRun:
        """Returns everything in one go; with `COMMITS` commits only if the run can begin or resume:
        it has not begun, or rests, and nobody has the branch's lease."""
        ...


LOOKS = Capability[Looks]("looks")


class FarLeases(Protocol):
    """For a distant store: a lease along with a look, and claims of runs."""

    def take(
        self, no: int, branch: str, executor: str, over: int | None, agent: str, run: str
    ) -> tuple[Lease | Ref, AgentAndRun | None]:
        """Takes a lease like `Backend.lease`, for `executor`; returns what there is under the
        lease, with `COMMITS` commits, too; None if it was not given."""
        ...

    def claim(self, runs: Sequence[str], executor: str) -> set[str]:
        """Returns the runs that nobody else has claimed within `CLAIM_S`, and claims them for
        `executor`: it is about to take their leases, and others need not try. Nothing depends on
        it."""
        ...


FAR_LEASES = Capability[FarLeases]("far leases")

Head = int | PerdureError
"""The head of a branch: the seq of its last commit; 0 if there is none, or it was deleted. Or the
error that hides it."""


class ManyHeads(Protocol):
    """Reads the heads of many branches at once."""

    def heads(self, places: Sequence[tuple[int, str]]) -> Sequence[Head]:
        """Returns the heads of many branches, each given by an agent's number and a name.

        Raises:
            PerdureError: none of them can be read.
        """
        ...


MANY_HEADS = Capability[ManyHeads]("many heads")


class HeadsAtHand(Protocol):
    """For a local store: heads without waiting, for callers like an event loop."""

    def ref_at_hand(self, no: int, name: str) -> tuple[Ref | None] | None:
        """Returns the result of `Backend.ref`, in a tuple; None if that would have to wait for
        another thread."""
        ...


HEADS_AT_HAND = Capability[HeadsAtHand]("heads at hand")


class ManyKeys(Protocol):
    """Looks up many idempotency keys at once."""

    def keys(self, no: int, keys: Sequence[str]) -> Mapping[str, int]:
        """Returns the seqs of those of the keys that took effect."""
        ...


MANY_KEYS = Capability[ManyKeys]("many keys")


class SnapshotParts(Protocol):
    """Reads the parts of a snapshot, one by one."""

    def manifest(self, no: int, seq: int) -> StoredSnapshot | None:
        """Returns a snapshot like `Backend.snapshot`, without the leaves."""
        ...

    def leaf(self, leaf_id: int) -> bytes | None:
        """Returns one leaf; None if retention has removed it."""
        ...


SNAPSHOT_PARTS = Capability[SnapshotParts]("snapshot parts")
