"""What a backend may do at once, or at less cost, beside what it has to. The promises of the port
hold here, too; whoever asks can do without.
"""

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
"""How long a claim keeps others from trying. Whoever claimed has taken the lease by then, or is
slow, or dead: then others try, too, and one of them gets it."""

COMMITS = 32
"""How many commits a look brings that is to be followed by reading the log: as many as the first
part of it that folding a state reads."""


class Seen(Struct, frozen=True):
    """What there was of an agent and of a run, all at one moment.

    Attributes:
        agent: its latest incarnation; None: there is none of that name.
        runs: in their order: those of that id, and the agent's unfinished ones.
        messages: what is in the run's inbox, in the order they came.
        branch: the run's, or main where it has not begun; `ref` is what the agent has there.
        commits: up to the branch's head, the last first, and dense; as many as were asked for, or
            all that there are; none, where the store is near.
    """

    agent: AgentInfo | None
    runs: Sequence[RunInfo]
    messages: Sequence[Message]
    branch: str
    ref: Ref | None
    commits: Sequence[StoredCommit]


class Looks(Protocol):
    """An agent and a run at once."""

    def look(self, agent: str, run: str) -> Seen:
        """What there is, in one go; with `COMMITS` commits only where the run can begin or go on:
        it has not begun, or rests, and nobody has the branch's lease."""
        ...


LOOKS = Capability[Looks]("looks")


class FarLeases(Protocol):
    """Of one that is far away: a lease along with a look, and who tries for which."""

    def take(
        self, no: int, branch: str, executor: str, over: int | None, agent: str, run: str
    ) -> tuple[Lease | Ref, Seen | None]:
        """As `Backend.lease`, for `executor`; and what there is under the lease, with `COMMITS`
        commits; None where it was not given."""
        ...

    def claim(self, runs: Sequence[str], executor: str) -> set[str]:
        """Those of the runs that nobody else has claimed within `CLAIM_S`, which `executor` claims
        now: it is about to take their leases, and others need not try. Nothing depends on it."""
        ...


FAR_LEASES = Capability[FarLeases]("far leases")

Head = int | PerdureError
"""Where a branch ends: the seq of its last commit; 0: there is none, or it was deleted. Or why that
cannot be said of this one."""


class ManyHeads(Protocol):
    """Where many branches end, at once."""

    def heads(self, places: Sequence[tuple[int, str]]) -> Sequence[Head]:
        """Where so many branches end, each of an agent's number and a name.

        Raises:
            PerdureError: nothing can be said of any of them.
        """
        ...


MANY_HEADS = Capability[ManyHeads]("many heads")


class HeadsAtHand(Protocol):
    """Of a local one: for who must not wait, as an event loop."""

    def ref_at_hand(self, no: int, name: str) -> tuple[Ref | None] | None:
        """As `Backend.ref`, in a tuple; None: not without waiting for somebody else's work."""
        ...


HEADS_AT_HAND = Capability[HeadsAtHand]("heads at hand")


class ManyKeys(Protocol):
    """Many idempotency keys at once."""

    def keys(self, no: int, keys: Sequence[str]) -> Mapping[str, int]:
        """The seqs of those of the keys that took effect."""
        ...


MANY_KEYS = Capability[ManyKeys]("many keys")


class SnapshotParts(Protocol):
    """The parts of a snapshot, one by one."""

    def manifest(self, no: int, seq: int) -> StoredSnapshot | None:
        """As `Backend.snapshot`, without the leaves."""
        ...

    def leaf(self, leaf_id: int) -> bytes | None:
        """One leaf; None: retention has removed it."""
        ...


SNAPSHOT_PARTS = Capability[SnapshotParts]("snapshot parts")
