"""The working copy of one branch: its state in memory, typed and plain, and how it moves on.

`plain` is what the log says; `typed` is the user's live object. Ops go into `plain` first, are
checked, committed, and only then reach `typed`: a reader of the state sees committed values only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from perdure.core import chain, ops
from perdure.core.diff import diff
from perdure.core.draft import Recording, view
from perdure.core.drift import Drift
from perdure.core.names import check_cause
from perdure.core.ops import Op, OpError
from perdure.core.schema import Schema
from perdure.core.values import Plain, copy
from perdure.errors import Conflict, Corrupt, NotFound, SchemaError
from perdure.model import MAIN, MISSING, AgentInfo, Cause, Commit
from perdure.state.context import Context
from perdure.state.flow import Flow, drive
from perdure.state.following import MOVES, newer_commits
from perdure.state.incarnation import Incarnation
from perdure.state.initial import initial_state
from perdure.state.live import Live
from perdure.state.snapshotting import SinceSnapshot
from perdure.storage.looks import Reads
from perdure.storage.proposals import NOTHING, Committed, Extras, Proposal
from perdure.storage.reader import Folded, LogReader
from perdure.storage.retention import STORES_OWN

T = TypeVar("T")


class WorkingCopy(Generic[T]):
    """One branch of one agent in memory. Not for two threads at once: `lock` is theirs to take."""

    def __init__(
        self, context: Context, name: str, schema: Schema[T], branch: str, initial: Any = MISSING,
        incarnation: int | None = None, reads: Reads | None = None,
    ) -> None:  # fmt: skip
        self.context = context
        self._reads: Reads = reads or context.backend
        self.name = name
        self.schema = schema
        self.branch = branch
        self.lock = threading.RLock()
        self.epoch: int | None = None
        self.editing = False
        self._draft: Recording | None = None
        """The plain state holds what it recorded, uncommitted: no snapshot may be taken of it."""
        self._initial = initial
        self._incarnation = Incarnation(self._reads, name, incarnation)
        self._reader: LogReader | None = None
        self._plain: Plain = MISSING
        self._base: Plain = MISSING
        self._live = Live(schema)
        self._seq = 0
        self._stored: tuple[str, tuple[int, int]] | None = None
        self._since = SinceSnapshot()

    # -- what is there ---------------------------------------------------------------------

    @property
    def seq(self) -> int:
        """Seq of the commit whose state this is; 0 for an agent that is not created yet."""
        if self._plain is MISSING:
            self._load_anew()
        return self._seq

    @property
    def plain(self) -> Plain:
        self.load()
        return self._plain

    @property
    def typed(self) -> T:
        if self._plain is MISSING:
            self._load_anew()
        return self._live.of(self._plain)

    @property
    def in_memory(self) -> bool:
        """Whether `typed` can be had without reading or building anything."""
        return self._live.value is not MISSING and self._plain is not MISSING

    @property
    def known(self) -> bool:
        """`exists`, as last looked."""
        return self._reader is not None

    @property
    def reader(self) -> LogReader:
        """The agent's log.

        Raises:
            NotFound: the agent has no commit yet.
        """
        reader = self._reader or self.reader_if_created()
        if reader is None:
            raise NotFound(
                "has no commits yet", target=f"agent {self.name!r}",
                hint="the first edit creates it",
            )  # fmt: skip
        return reader

    def reader_if_created(self) -> LogReader | None:
        if self._reader is None:
            info = self._incarnation.find()
            if info is not None:
                self._reader = LogReader(self._reads, info)
        return self._reader

    def settle(self) -> None:
        """Be about the incarnation that is there now, or about the next one."""
        info = self._incarnation.settle()
        if info is not None:
            self._reader = LogReader(self._reads, info)

    # -- keeping in step -------------------------------------------------------------------

    def load(self) -> None:
        if self._plain is MISSING:
            self._load_anew()

    def refresh(self) -> None:
        """Move on to the branch's head as it is now."""
        if self.editing:
            self.refuse_inside_edit()  # raises
        if self._plain is MISSING or self._seq == 0:
            self._load_anew()
            return
        ref = self._reads.ref(self.reader.no, self.branch)
        if ref is None or ref.deleted:
            raise NotFound(
                "was deleted", target=f"agent {self.name!r}, branch {self.branch!r}",
                hint="open the agent anew",
            )  # fmt: skip
        if ref.seq == self._seq:
            return
        newer = self._newer(ref.seq)
        if newer is None:
            self._load_anew()
        for commit in newer or ():
            self.advance(commit, in_place=True)

    def follow(self) -> list[Commit] | None:
        """As `refresh`, in place, at a cost that depends on what others have committed: that, or
        None where everything may be different now."""
        self.refuse_inside_edit()
        ref = self.in_memory and self._seq and self._reads.ref(self.reader.no, self.branch)
        newer = self._newer(ref.seq) if ref and not ref.deleted else None
        if newer is None or any(commit.cause.kind in MOVES for commit in newer):
            self.refresh()
            return None
        for commit in newer:
            self.advance(commit, in_place=True)
        return newer

    def no_branch(self) -> NotFound:
        return NotFound(
            f"{self.branch!r} is a checkpoint, not a branch", target=f"agent {self.name!r}",
            hint="agent.at(name) shows its state, agent.fork(new, at=name) works from it",
        )  # fmt: skip

    def _newer(self, head: int) -> list[Commit] | None:
        own = (self.schema.id, self.schema.version)
        return newer_commits(self.reader, self._seq, head, own) if self._stored == own else None

    def refuse_inside_edit(self) -> None:
        """An open draft stands on the head as it was; what moved the head would tear it loose.

        Raises:
            Conflict: a block of `edit` is open.
        """
        if self.editing:
            raise Conflict(
                "not inside an open edit", target=f"agent {self.name!r}",
                hint="end the block first, or use another handle: store.agent(…)",
            )  # fmt: skip

    def drift(self) -> list[Drift]:
        """Where the live object is not what is committed; an open draft does not count."""
        plain = self.plain if self._draft is None else self._draft.before()
        return self.schema.drift(self.typed, plain)

    def drop_drift(self) -> None:
        """Forget what was changed in the live typed object outside `edit`. Costs O(state)."""
        self._live.drop_drift(self._plain)

    def reopen_if_created_meanwhile(self) -> None:
        """After a conflict on creating the agent: look again who is there."""
        with self.lock:
            if self._seq == 0 and not self.editing:
                self.forget()

    def forget(self) -> None:
        """Drop what is in memory; the next look rehydrates it from the log."""
        self._plain = MISSING
        self._live.drop()

    def _load_anew(self) -> None:
        reader = self.reader_if_created()
        if reader is None:
            if self.branch != MAIN:
                raise NotFound(
                    "has no commits yet", target=f"agent {self.name!r}, branch {self.branch!r}",
                    hint="its first commit makes the branch 'main'; fork from there",
                )  # fmt: skip
            self._start_from_initial()
            return
        ref = reader.ref(self.branch)
        if ref.kind != "branch":
            raise self.no_branch()
        self._adopt(reader.fold(ref.seq))

    def _start_from_initial(self) -> None:
        self._plain = initial_state(self.schema, self._initial, self.name)
        self._live.forget()
        self._live.of(self._plain)
        self._seq = 0

    def _adopt(self, folded: Folded) -> None:
        self._stored = (folded.schema_id, folded.schema_version)
        self._check_schema(folded.schema_id)
        self._plain = self.schema.migrate(folded.state, folded.schema_version)
        self._live.drop()
        self._seq = folded.seq
        self._since.begin(folded, migrated=self.migration_due)

    def _check_schema(self, stored: str) -> None:
        if stored != self.schema.id:
            raise SchemaError(
                f"its state was written under schema {stored!r}, not {self.schema.id!r}",
                target=f"agent {self.name!r}",
                hint=f"open it with that type, or say so: perdure.Schema(…, id={stored!r})",
            )

    @property
    def migration_due(self) -> bool:
        """Whether the log's state is of an older major version than the one in memory."""
        return self._stored is not None and self._stored[1][0] < self.schema.version[0]

    def migration(self) -> list[Op]:
        """What the next commit has to write first: from the log's state to the migrated one."""
        if not self.migration_due:
            return []
        return diff(self.reader.fold(self._seq).state, self._plain)

    def rewind(self, seq: int) -> None:
        """Go back, in memory only, to the state at an earlier commit: where a replay begins."""
        self._adopt(self.reader.fold(seq))
        self._live.forget()  # a replay begins with what a first run would have

    def advance(self, commit: Commit, *, in_place: bool = False) -> None:
        """Go on, in memory only, over a commit of the branch that is in the log already.

        Args:
            in_place: change the live typed object, as committing here would have.
        """
        if self.migration_due or commit.cause.kind in MOVES:
            self._adopt(self.reader.fold(commit.seq))
            return
        if not commit.delta:
            pass  # only of a run's journal
        elif in_place and self._live.value is not MISSING:
            self._advance_typed(commit)
        else:
            self._plain = self.reader.apply(self._plain, commit)
            self._live.drop()
        self._since.note(commit.delta, commit.size)
        self._seq = commit.seq

    def _advance_typed(self, commit: Commit) -> None:
        """Both states over a commit."""
        inverses = []
        try:
            for op in commit.delta:
                inverses.append(ops.invert(self._plain, op))
                self._plain = ops.apply(self._plain, ops.own(op))
        except OpError as error:
            raise Corrupt(
                str(error), target=self.reader.target(commit.seq), hint=chain.HINT
            ) from error
        if not self._live.advance(self._plain, [ops.own(op) for op in commit.delta], inverses):
            self._plain = self.reader.fold(commit.seq).state

    # -- moving on -------------------------------------------------------------------------

    def commit_recording(
        self, recording: Recording, cause: Cause, extras: Extras = NOTHING
    ) -> Committed:
        """Validate and commit what a draft recorded; on any failure all is as before it."""
        return drive(self.context, self.committing_recording(recording, cause, extras))

    def committing_recording(
        self, recording: Recording, cause: Cause, extras: Extras = NOTHING
    ) -> Flow[Committed]:
        """The operation behind `commit_recording`."""
        seq, self._draft = self._seq, None
        try:
            committed = yield from self._committing(
                recording.plain, recording.ops, recording.inverses, cause, extras
            )
        except BaseException:
            self._put_back(recording.rollback, seq)
            raise
        recording.apply_ephemeral(self._live.value)
        return committed

    def record(self) -> Recording:
        """A draft of the state, which `commit_recording` or `restore` ends."""
        typed = self.typed  # built from the plain state as it is before the draft changes it
        self._keep_base()
        self._draft = Recording(self.schema, self._plain, typed=typed)
        return self._draft

    def throwaway(self) -> Recording:
        """A draft of which nothing will remain."""
        typed = self.typed
        return Recording(self.schema, copy(self._plain), typed=typed)

    def restore(self, recording: Recording) -> None:
        """Undo in memory what an abandoned draft did."""
        self._draft = None
        self._plain = recording.rollback()

    def commit_delta(
        self, delta: Sequence[Op], cause: Cause, extras: Extras = NOTHING
    ) -> Committed:
        """Commit ops that come from elsewhere: a diff, an inverse. Nothing changes on failure."""
        return drive(self.context, self.committing_delta(delta, cause, extras))

    def committing_delta(
        self, delta: Sequence[Op], cause: Cause, extras: Extras = NOTHING
    ) -> Flow[Committed]:
        """The operation behind `commit_delta`."""
        if self.editing:
            self.refuse_inside_edit()  # raises
        if not delta and self.in_memory and self._seq and not self.migration_due:
            check_cause(cause)  # the state stays, as with most of a run's: nothing to take back
            return self._submitting([], cause, extras)
        return self._committing_ops(delta, cause, extras)

    def _committing_ops(self, delta: Sequence[Op], cause: Cause, extras: Extras) -> Flow[Committed]:
        if not self.in_memory:
            yield lambda: self.typed
        self._keep_base()
        seq, before = self._seq, self._plain
        # Taking a deletion back would put the key last, and the order of keys counts.
        spare = copy(before) if any(type(op) is ops.Delete for op in delta) else MISSING
        root, applied, inverses = before, [], []
        try:
            for op in delta:
                inverses.append(ops.invert(root, op))
                root = ops.apply(root, ops.own(op))
                applied.append(op)
            return (yield from self._committing(root, list(delta), inverses, cause, extras))
        except BaseException:
            undone = reversed(inverses[: len(applied)])
            self._put_back(lambda: spare if spare is not MISSING else ops.fold(root, undone), seq)
            raise

    def _put_back(self, restore: Callable[[], Plain], seq: int) -> None:
        """After a failure: the state as before. If a commit landed, the log knows better."""
        self._since.doubt()
        if self._seq == seq:
            self._plain = restore()
        else:
            self.forget()

    def _committing(
        self, root: Plain, delta: list[Op], inverses: list[Op], cause: Cause, extras: Extras
    ) -> Flow[Committed]:
        check_cause(cause)
        typed = self.typed
        touched = [op.path for op in delta] if self.schema.invariants else []
        plan = self.schema.plan(typed, root, delta, inverses) if delta else None
        if delta and self.schema.invariants:
            self.schema.check_invariants(typed, view(self.schema, root), touched)
        self._plain = root
        if self._seq == 0 or self.migration_due:
            yield from self._committing_base()
        committed = yield from self._submitting(delta, cause, extras)
        if plan is not None:
            self._live.value = plan.apply()
        return committed

    def _keep_base(self) -> None:
        """Where a base must be written first, it is the state before any change, to its order."""
        if self._seq == 0 or self.migration_due:
            self._base = copy(self._plain)

    def _committing_base(self) -> Flow[None]:
        """What must be in the log before a first commit: the agent, or its migrated state."""
        base = self._base
        change: list[Op]
        if self._seq == 0:
            self.schema.check_invariants(None, view(self.schema, base), [()])
            cause, change = Cause("create"), [ops.Set((), base)]
        else:
            folded: Folded = yield partial(self.reader.fold, self._seq)
            cause, change = Cause("migrate"), diff(folded.state, base)
        yield from self._submitting(change, cause, NOTHING, snapshot=False)

    def creating(self, along: Proposal | None = None) -> Flow[Committed | None]:
        """Make sure that the agent is in the log; None if it was already.

        Args:
            along: the commit behind that, which is in along with it, or neither is.
        """
        yield self.load
        if self._seq:
            return None
        self.schema.check_invariants(None, view(self.schema, self._plain), [()])
        created, cause = [ops.Set((), self._plain)], Cause("create")
        return (yield from self._submitting(created, cause, NOTHING, along=along))

    def _submitting(
        self, delta: Sequence[Op], cause: Cause, extras: Extras, *, snapshot: bool = True,
        along: Proposal | None = None,
    ) -> Flow[Committed]:  # fmt: skip
        first = self._seq == 0
        payload = chain.pack_payload(delta, extras.records)
        schema_id, version = self.schema_to_write()
        incarnation: int = (
            self._reader.incarnation if self._reader else (yield lambda: self.incarnation)
        )
        draft = chain.Draft(
            self.name, incarnation, self.branch, () if first else (self._seq,),
            schema_id, version, self.context.executor, self.epoch or 0, cause, payload,
        )  # fmt: skip
        self._since.note(delta, len(payload.data))
        proposal = self.propose(draft, None if first else self._seq, extras)
        if first:
            proposal.no = None  # created meanwhile, or not: the store says so
            proposal.then = along
        stored: Callable[[int], None] | None = None
        if snapshot and self._draft is None and self._since.due(self.context, cause):
            proposal.snapshot, stored = yield partial(
                self._since.write, self._plain, self.name, incarnation, self._seq
            )
        committed: Committed = yield proposal
        if first:
            self._reader = LogReader(
                self._reads,
                AgentInfo(self.name, committed.no, draft.incarnation, False, committed.seq),
            )
            self._since.begin_ageing(committed.at_micros)
        if along is not None:
            self._since.note((), len(along.draft.payload.data))
        self._seq, self._stored = proposal.end.seq, (schema_id, version)
        if stored is not None:
            self._since.wrote(proposal, stored, committed.at_micros)
        return committed

    def schema_to_write(self) -> tuple[str, tuple[int, int]]:
        """A newer minor version in the log stays: unknown fields are kept, so is their version."""
        own, stored = self.schema.version, self._stored
        if stored is not None and stored[1] > own and stored[1][0] == own[0]:
            return self.schema.id, stored[1]
        return self.schema.id, own

    @property
    def incarnation(self) -> int:
        """Of the agent that is there, or of the one that a first commit would create."""
        reader = self.reader_if_created()
        return reader.incarnation if reader is not None else self._incarnation.to_create()

    def propose(self, draft: chain.Draft, expected: int | None, extras: Extras) -> Proposal:
        if self.branch in STORES_OWN:  # whoever reads it relies on what the store says there
            raise Conflict(
                f"the branch {self.branch!r} is the store's own, and only read",
                target=f"agent {self.name!r}", hint="fork it, or write to a branch of your own",
            )  # fmt: skip
        no = self._reader.no if self._reader else None
        return Proposal(draft, extras, no=no, expected=expected, epoch=self.epoch)
