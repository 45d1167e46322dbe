"""Frozen data that every layer speaks of: commits, branches, checkpoints, leases, runs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Literal

from msgspec import Struct, field

from perdure.delta import Op, Plain
from perdure.public_data import EPOCH as EPOCH
from perdure.public_data import PublicData
from perdure.public_data import from_micros as from_micros
from perdure.public_data import id_text as id_text
from perdure.public_data import to_micros as to_micros

Durability = Literal["sync", "group", "os"]
"""When a commit is acknowledged: after its fsync; at one fsync per N commits or T milliseconds (see
`GroupPolicy`); or with no fsync (survives the process, not the machine)."""

RunStatus = Literal[
    "pending", "running", "waiting", "needs_attention", "done", "failed", "cancelled"
]

UNFINISHED: tuple[RunStatus, ...] = ("pending", "running", "waiting", "needs_attention")
FINISHED: tuple[RunStatus, ...] = ("done", "failed", "cancelled")

UNTIL = "until "
"""The beginning of `RunInfo.waits` if a run just sleeps."""

MAIN = "main"
"""The branch that an agent's first commit makes."""

MICROS_MAX = 253_402_300_799_999_999
"""The last moment that a datetime can tell."""


class Cause(PublicData, Struct, frozen=True, gc=False):
    """The reason for a commit.

    Attributes:
        kind: the sort of commit: ``edit``, ``create``, ``fork``, ``rollback``, ``undo`` …
        what: the caller's words.
        run: id of the run that made it.
        step: place of the step or tool call in the run.
        key: the idempotency key of the command.
        trace: a trace id of the caller's.
        group: commits that share it are undone together.
        tags: free labels.
        refers: the seqs that an undo, redo, rollback or adoption refers to.
    """

    kind: str
    what: str = ""
    run: str | None = None
    step: str | None = None
    key: str | None = None
    trace: str | None = None
    group: str | None = None
    tags: tuple[str, ...] = ()
    refers: tuple[int, ...] = ()


class Commit(PublicData, Struct, frozen=True, gc=False):
    """One entry of an agent's log.

    Attributes:
        seq: its number, dense per agent over all branches, from 1.
        id: the hash of its header; `id_text` makes it readable.
        prev: id of the commit at ``seq - 1``; empty for the first.
        parents: seqs of the commits whose state it changes; the first is the one it builds on.
        at_micros: the store's time in microseconds since 1970, strictly growing along the log; `at`
            is the same as a datetime.
        executor: id of the process that made it; `epoch` its lease's fencing token, 0 without.
        delta: ops that turn the parent's state into this one's.
        records: its other content (a run's journal, a checkpoint's guards), as plain maps.
        size: bytes of header and payload as stored.
        trimmed: True if retention removed the payload: `delta` and `records` are empty.
        damaged: the reason why it cannot be read as it was written, if such commits were asked for;
            parts that cannot be read are empty. Empty if the commit is whole.
        newer: True if nothing is wrong with it, but only a newer version can read it; `damaged`
            says why.
        foldable: True if its parents and delta are as they were written, even if another part of
            the commit is damaged.
        typed: the records as structs, for the library itself; see `core.format.records`.
    """

    agent: str
    incarnation: int
    seq: int
    id: bytes
    prev: bytes
    branch: str
    parents: tuple[int, ...]
    schema_id: str
    schema_version: tuple[int, int]
    at_micros: int
    executor: str
    epoch: int
    cause: Cause
    delta: tuple[Op, ...]
    records: tuple[Mapping[str, Any], ...]
    size: int
    trimmed: bool = False
    damaged: str = ""
    foldable: bool = True
    newer: bool = False
    typed: tuple[Any, ...] = ()

    hidden_fields: ClassVar[frozenset[str]] = frozenset({"typed"})

    def __repr__(self) -> str:
        shown = [name for name in self.__struct_fields__ if name != "typed"]  # it is the records
        return f"Commit({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    @property
    def parent(self) -> int:
        """Seq of the commit whose state this one changes; 0 for the first."""
        return self.parents[0] if self.parents else 0

    @property
    def at(self) -> datetime:
        """The store's time, in UTC."""
        return from_micros(self.at_micros)


class Branch(PublicData, Struct, frozen=True):
    """A named head. `holder` and `epoch`: the executor that has the lease, if one has."""

    name: str
    head: int
    deleted: bool = False
    epoch: int = 0
    holder: str | None = None


class Checkpoint(PublicData, Struct, frozen=True):
    """A named recovery point: a commit with its recorded surroundings.

    Attributes:
        seq: the commit whose state it names.
        state_hash: hash of the state's canonical bytes.
        config_hash: hash of the agent's configuration, if one was given.
        dependencies: versions of named distributions.
        run: id of the branch's unfinished run, if there was one, and `position` its last place.
    """

    name: str
    seq: int
    state_hash: str
    schema_id: str
    schema_version: tuple[int, int]
    config_hash: str | None = None
    dependencies: Mapping[str, str] = field(default_factory=dict)
    run: str | None = None
    position: str | None = None


class Lease(Struct, frozen=True):
    """The right of one executor to append to a branch, until another takes a higher epoch."""

    agent_no: int
    branch: str
    executor: str
    epoch: int


class AgentInfo(PublicData, Struct, frozen=True):
    """A store's data about an agent, known without reading its log.

    Attributes:
        no: the store's own number for this incarnation; never used again.
        incarnation: 1 for the first agent of that name; one more after each deletion.
        seq: seq of its latest commit.
        purged: True if only the last commit of its log, its deletion, is left, or will be in a
            moment.
    """

    name: str
    no: int
    incarnation: int
    deleted: bool
    seq: int
    purged: bool = False


class RunInfo(PublicData, Struct, frozen=True):
    """One execution of an agent function, as a row of the store.

    Attributes:
        id: unique in the store: ``agent/function/key`` and a number if those repeat.
        started: seq of the commit that began it; `ended` of the one that finished it, or 0.
        args: a digest of the arguments.
        result: the recorded result, while status is "done".
        problem: the reason why it failed or needs attention.
        wake_at_micros: while it waits: when its timer is due, in microseconds since 1970 by the
            store's clock; 0: no timer. `wake_at` is the same as a datetime.
        waits: what it waits for, in words.
        turn: number of its current turn, from 1.
        turn_at: seq of the commit that began the current turn.
        version: the version of the agent function that it is of: that began it, or recorded last.
        queue: the queue in which workers find it.
        parent: id of the run that started it as a child; empty without one.
        started_at_micros: time of the commit that began it, in microseconds since 1970, or of its
            request; `changed_at_micros` of the one that last changed this row. `started_at` and
            `changed_at` are the same as datetimes.
        seen: the highest number of a message that it had looked at when it last began to wait.
    """

    id: str
    agent: str
    agent_no: int
    branch: str
    function: str
    key: str
    status: RunStatus
    started: int
    ended: int = 0
    args: str = ""
    result: Any = None
    problem: str | None = None
    wake_at_micros: int = 0
    waits: str = ""
    turn: int = 1
    turn_at: int = 0
    version: str = ""
    queue: str = "default"
    parent: str = ""
    started_at_micros: int = 0
    changed_at_micros: int = 0
    seen: int = 0

    @property
    def wake_at(self) -> datetime | None:
        """When its timer is due while it waits, in UTC by the store's clock; None: no timer."""
        return from_micros(self.wake_at_micros) if self.wake_at_micros else None

    @property
    def started_at(self) -> datetime:
        """The time of the commit that began it, or of its request, in UTC."""
        return from_micros(self.started_at_micros)

    @property
    def changed_at(self) -> datetime:
        """The time of the commit that last changed its status or what it waits for, in UTC."""
        return from_micros(self.changed_at_micros)


MessageKind = Literal["start", "signal", "answer", "cancel"]


class Message(PublicData, Struct, frozen=True):
    """A message to a run, which is in no log yet. It joins the log when a commit takes it out.

    Attributes:
        run, agent: the run and its agent; for a "start", a run that is not there yet.
        name: the signal's name, the name of the question, or the name of the agent function.
        key: the same run, kind, name and key is put in once only; empty for a "start".
        value: its value; MISSING once it was taken out.
        who: the person or program that sent it.
        at_micros: its arrival, in microseconds since 1970 by the store's clock; the store sets it.
            `at` is the same as a datetime.
        no: its number, which orders messages; the store sets it, and never uses one again.
    """

    run: str
    agent: str
    kind: MessageKind
    name: str
    key: str = ""
    value: Plain = None
    who: str = ""
    at_micros: int = 0
    no: int = 0

    @property
    def at(self) -> datetime:
        """Its arrival, in UTC by the store's clock."""
        return from_micros(self.at_micros)


class Change(PublicData, Struct, frozen=True):
    """One difference between two states: `before` and `after` are plain; MISSING where absent. For
    a ``reordered`` dict they are lists of the keys that both have."""

    path: str
    kind: Literal["added", "removed", "changed", "reordered"]
    before: Any
    after: Any


class Verified(PublicData, Struct, frozen=True):
    """The result of `verify` without a finding.

    Attributes:
        purged: True if only the last commit of a deleted agent's log is left. It names, by its
            hash, all commits before it, and is all that could be checked.
        trimmed: the number of commits whose payloads retention removed, as the log itself says.
            They are in the chain; their changes can no longer be read.
        healed: the number of damaged snapshots that were removed: they are a cache of the log.
        damages: from `repair` with take_incomplete: everything of this agent that could not be
            proved; `before` is the last commit before that whose state can be read, 0 if none.
    """

    agent: str
    commits: int
    snapshots: int
    head: bytes
    purged: bool = False
    trimmed: int = 0
    healed: int = 0
    damages: tuple[str, ...] = ()
    before: int = 0

    @property
    def root(self) -> str:
        """Id of the last commit: keep it elsewhere, and pass it as `anchor` another time."""
        return id_text(self.head)


class Rebuilt(Struct, frozen=True):
    """The files after a repair.

    Attributes:
        copy: the path of the copy of the old file; empty if none was made.
        told: the damage of the WAL, or of pages, that was put right or cut off; empty if there was
            none.
        is_cut: True if commits of the WAL are lost.
    """

    copy: str
    told: str = ""
    is_cut: bool = False
