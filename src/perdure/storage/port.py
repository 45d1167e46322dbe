"""The storage port: what a backend must do, and exactly what each call promises.

A backend keeps bytes, and a few projections that are written in the same transaction as the commit
they follow from. It knows nothing of states, deltas or schemas. `perdure.testing.contract` holds
every backend to this page.

Errors: a backend raises `StoreUnavailable` (with its outcome), `Corrupt` or `UnsupportedFormat`;
an absent row is None or an empty list, and never the result of a failure (I12).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from perdure.model import AgentInfo, Checkpoint, Lease, RunInfo


@dataclass(frozen=True, slots=True)
class StoredCommit:
    """One entry of the log as bytes. `snapshotted`: whether a snapshot of its state is stored."""

    seq: int
    header: bytes
    payload: bytes
    snapshotted: bool


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A state as bytes: a manifest, and the leaves that it is made of, shared between snapshots.

    Attributes:
        leaf_ids: all its leaves, in the manifest's order.
        leaves: their bytes; on the way in, only those that are new.
    """

    manifest: bytes
    leaf_ids: Sequence[int] = ()
    leaves: Mapping[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ref:
    """A name of an agent: a branch or a checkpoint. Both share one namespace; names stay taken.

    Attributes:
        seq: head of the branch, or the commit of the checkpoint.
        epoch: the highest epoch ever given for the branch.
        held: the epoch that may append now; None while nobody holds a lease.
        holder: the executor of that epoch.
    """

    name: str
    kind: Literal["branch", "checkpoint"]
    seq: int
    deleted: bool = False
    epoch: int = 0
    held: int | None = None
    holder: str | None = None
    checkpoint: Checkpoint | None = None


@dataclass(slots=True)
class Append:
    """One commit on its way in, linked to a tail, with all that must happen along with it.

    Attributes:
        agent: the agent's name; `no` its number, None where this commit creates the incarnation.
        seq, header, payload: the commit. `seq` must be the log's next.
        branch, expected: the branch's head must be at `expected`; None: the branch must be new.
        epoch: the lease under which it is written; None: no lease may be held on the branch.
        key: an idempotency key that must be new to the agent, and a digest of what was asked.
        snapshot: a snapshot of the state after this commit.
        checkpoint: a checkpoint to record.
        drop_branch: a branch to delete; its name stays taken.
        delete_agent: end this incarnation; none of its branches can be appended to again.
        runs: rows of runs to insert or replace.
        release: give up the branch's lease along with this commit.
        sync: durable before it is answered, whatever the store's durability is.
        epoch_min: the branch's highest epoch is at least this afterwards: an imported log's
            fencing tokens go on growing.
        prev: id of the commit at `seq` − 1, which `header` names. Where another one is there, the
            writer linked to what never got in: ``stale`` (I3).
        then: with a commit that creates its agent, commits that follow it (their `no` is None):
            all of them are in along with it, or none is. For imports.
    """

    agent: str
    no: int | None
    incarnation: int
    seq: int
    header: bytes
    payload: bytes
    branch: str
    expected: int | None
    epoch: int | None = None
    key: tuple[str, bytes] | None = None
    snapshot: StoredSnapshot | None = None
    checkpoint: Checkpoint | None = None
    drop_branch: str | None = None
    delete_agent: bool = False
    runs: Sequence[RunInfo] = ()
    release: bool = False
    sync: bool = False
    epoch_min: int = 0
    prev: bytes = b""
    then: Sequence[Append] = ()


@dataclass(frozen=True, slots=True)
class Appended:
    """The commit is in, at the durability asked for. `no`: the agent's number."""

    no: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing of the commit is in.

    Attributes:
        why: ``stale``: the log's end is not before `seq`, link again;
            ``moved``: the branch's head is elsewhere; ``exists``: agent, branch or name is taken;
            ``held``: another executor holds the branch; ``fenced``: the epoch is not current;
            ``gone``: the agent, incarnation or branch is deleted or was never there;
            ``key``: the idempotency key is used, `seq` says where and `asked` for what.
        ref: the branch as it is, where there is one.
    """

    why: Literal["stale", "moved", "exists", "held", "fenced", "gone", "key"]
    ref: Ref | None = None
    seq: int = 0
    asked: bytes = b""


Outcome = Appended | Refused | Exception


@dataclass(frozen=True, slots=True)
class ExecutorRow:
    """A process that runs agents. `expires`: by the store's clock, in microseconds since 1970."""

    id: str
    expires: int


@dataclass(slots=True)
class Sizes:
    """Bytes kept for one agent, or for all."""

    commits: int = 0
    header_bytes: int = 0
    payload_bytes: int = 0
    snapshots: int = 0
    snapshot_bytes: int = 0
    leaves: int = 0
    leaf_bytes: int = 0
    file_bytes: int = 0
    extra: dict[str, Any] = field(default_factory=dict)


class Backend(Protocol):
    """Synchronous and thread-safe. Reads see all commits that were answered before they began."""

    url: str

    def append(self, batch: Sequence[Append]) -> list[Outcome]:
        """Write commits in one transaction, each succeeding or failing alone (I2).

        Answers are in the batch's order; later appends see what earlier ones wrote. An exception
        as an answer is that commit's own; its outcome attribute says whether it may have happened.
        Only `append` is called by one thread at a time.
        """
        ...

    def agent(self, name: str, incarnation: int | None = None) -> AgentInfo | None:
        """The latest incarnation of a name (deleted or not), or the one asked for."""
        ...

    def agents(self, prefix: str = "", after: str = "", limit: int = 1000) -> list[AgentInfo]:
        """Agents that are not deleted, by name, after `after`."""
        ...

    def read(self, no: int, first: int, last: int, *, newest_first: bool = False,
             limit: int | None = None) -> list[StoredCommit]:  # fmt: skip
        """The commits with first ≤ seq ≤ last, all from one moment."""
        ...

    def ref(self, no: int, name: str) -> Ref | None:
        """One name of an agent, deleted ones included."""
        ...

    def refs(self, no: int) -> list[Ref]:
        """All names of an agent, deleted ones included, by name."""
        ...

    def key(self, no: int, key: str) -> tuple[int, bytes] | None:
        """Where an idempotency key took effect, and the digest of what it was for."""
        ...

    def snapshot(self, no: int, seq: int) -> StoredSnapshot | None:
        """The snapshot at a commit, with every leaf that its manifest names and is stored."""
        ...

    def runs(self, *, agent: str | None = None, run_id: str | None = None,
             unfinished: bool = False) -> list[RunInfo]:  # fmt: skip
        """Rows of runs, oldest first."""
        ...

    def lease(self, no: int, branch: str, executor: str | None, *,
              over: int | None = None, release: int | None = None) -> Lease | Ref:  # fmt: skip
        """Take or give back the lease of a branch, durably, in a transaction of its own (I4).

        Taken for `executor`, with the next epoch, if none is held or the one held is `over`.
        Given back if the epoch held is `release`; with `executor` None and `over`, broken.
        Returns the new lease; else the branch as it is.
        """
        ...

    def heartbeat(self, executor: str, ttl_ms: int | None) -> None:
        """Say that an executor lives for `ttl_ms` more; None: it has ended, forget it."""
        ...

    def alive(self, executor: str) -> bool:
        """Whether an executor may still be running: provably dead ones are not, expired ones
        neither. In doubt, the answer is True until its time is up."""
        ...

    def maintain(self, what: Literal["sizes", "check", "clean", "flush"], *,
                 no: int | None = None) -> Sizes:  # fmt: skip
        """Housekeeping: count bytes; read every page and check it; shrink the files; make all
        that was acknowledged durable.

        Raises:
            Corrupt: from "check", with what is damaged.
        """
        ...

    def now(self) -> int:
        """The store's clock, in microseconds since 1970."""
        ...

    def close(self) -> None:
        """Release everything. Idempotent; later calls raise `StoreUnavailable`."""
        ...
