"""The working copy of one branch: its state in memory, typed and plain, and its changes.

`plain` is what the log says; `typed` is the user's live object. Ops go into `plain` first, are
checked, committed, and only then reach `typed`: a reader of the state sees committed values only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from perdure.core.draft.draft import Recording, view
from perdure.core.format import chain
from perdure.core.live.drift import Drift
from perdure.core.schema.schema import Schema, TypedPlan
from perdure.core.values import ops
from perdure.core.values.diff import diff
from perdure.core.values.ops import Op
from perdure.core.values.plain_values import Plain, copy
from perdure.errors import PerdureError
from perdure.missing import MISSING
from perdure.model import MAIN, AgentInfo, Cause, Commit
from perdure.state import not_found, refused_calls
from perdure.state.context import Context
from perdure.state.flow import Flow, drive
from perdure.state.incarnation import Incarnation
from perdure.state.initial_state import initial_state
from perdure.state.live_object import Live
from perdure.state.others_commits import MOVES, advance_both, newer_commits
from perdure.state.snapshot_age import SinceSnapshot
from perdure.state.threads import is_thread, refuse_edit
from perdure.storage.appending import NOTHING, Riders
from perdure.storage.log.proposals import Committed, Proposal
from perdure.storage.log.reader import Folded, LogReader
from perdure.storage.looks import Reads
from perdure.storage.retention import STORES_OWN
from perdure.system.locks import ReentrantLock

T = TypeVar("T")


class WorkingCopy(Generic[T]):
    """One branch of one agent in memory. Not for two threads at once: callers take its `lock`."""

    def __init__(
        self, context: Context, name: str, schema: Schema[T], branch: str, initial: Any = MISSING,
        incarnation: int | None = None, reads: Reads | None = None,
    ) -> None:  # two lines, for the limit of the file  # fmt: skip
        self.context, self.name = context, name
        self._reads: Reads = reads or context.backend
        self.schema, self._own = schema, (schema.id, schema.version)
        self._is_thread = is_thread(schema.id)
        self.branch = branch
        self.lock = ReentrantLock()
        self.epoch: int | None = None
        self.editing = False
        self.edit_lost: Callable[[], bool] | None = None
        """Tells whether the block that is open was left without its end."""
        self._open: object = None
        """Whose changes the plain state holds, uncommitted: a draft's, or a commit's under way. Set
        before the first one, and unset behind the last. An exception may come in between: who
        finds it set where nothing is under way reads the log anew."""
        self._initial = initial
        self._incarnation = Incarnation(self._reads, name, incarnation)
        self._reader: LogReader | None = None
        self._plain: Plain = MISSING
        self._base: Plain = MISSING
        self._live = Live(schema, name)
        self._seq = 0
        self._stored: tuple[str, tuple[int, int]] | None = None
        self.schema_to_write = self._own
        """Returns the schema to write: a newer minor version in the log stays, with its fields."""
        self._older = self.migration_due = False
        """True if the next write must store a migration's result, or a default that changes."""
        self._since = SinceSnapshot()

    # -- what is there ---------------------------------------------------------------------

    @property
    def seq(self) -> int:
        """Seq of the commit whose state this is; 0 for an agent that is not created yet."""
        if self._plain is MISSING:
            with self.lock:  # else it may be missing for the moment in which a commit lands
                self.load()
        return self._seq

    @property
    def plain(self) -> Plain:
        self.load()
        return self._plain

    @property
    def typed(self) -> T:
        if self._plain is MISSING:
            self._load_anew()
        live = self._live
        return live.value if live.value is not MISSING else live.of(self._plain, self._seq)

    seen = typed  # what the function of a run sees; see `run_view`

    @property
    def in_memory(self) -> bool:
        return self._live.value is not MISSING and self._plain is not MISSING

    @property
    def known(self) -> bool:  # the last known answer of `exists`
        return self._reader is not None

    @property
    def reader(self) -> LogReader:
        """The agent's log. Raises NotFound if it has no commit yet."""
        reader = self._reader or self.reader_if_created()
        if reader is None:
            raise not_found.not_created(self.name)
        return reader

    def reader_if_created(self) -> LogReader | None:
        if self._reader is None:
            info = self._incarnation.find()
            if info is not None:
                self._reader = LogReader(self._reads, info)
        return self._reader

    def settle(self) -> None:
        """Fixes the incarnation: the one that is there now, or the next one."""
        info = self._incarnation.settle()
        if info is not None:
            self._reader = LogReader(self._reads, info)

    # -- keeping in step -------------------------------------------------------------------

    def load(self) -> None:
        self._mend()
        if self._plain is MISSING:
            self._load_anew()

    def _mend(self) -> None:
        """Drops what is in memory if a change of it was interrupted."""
        if self._open is not None and not self.editing:
            self.forget()

    def refresh(self) -> None:
        """Moves on to the branch's head as it is now."""
        if self.editing:
            self.refuse_inside_edit()
        if self._open is not None:
            self._mend()
        if self._plain is MISSING or self._seq == 0:
            self._load_anew()
            return
        ref = self._reads.ref((self._reader or self.reader).no, self.branch)
        if ref is None or ref.deleted:
            raise not_found.deleted(self.name, self.branch)
        if ref.seq == self._seq:
            return
        newer = self._newer(ref.seq)
        if newer is None:
            self._load_anew()
        for commit in newer or ():
            self.advance(commit, in_place=True)

    def follow(self) -> list[Commit] | None:
        """Refreshes in place, at a cost that depends on what others have committed. Returns those
        commits; None where everything may be different now."""
        self.refuse_inside_edit()
        self._mend()
        ref = self.in_memory and self._seq and self._reads.ref(self.reader.no, self.branch)
        newer = self._newer(ref.seq) if ref and not ref.deleted else None
        if newer is None or any(commit.cause.kind in MOVES for commit in newer):
            self.refresh()
            return None
        for commit in newer:
            self.advance(commit, in_place=True)
        return newer

    def _newer(self, head: int) -> list[Commit] | None:
        own = self._own
        return newer_commits(self.reader, self._seq, head, own) if self._stored == own else None

    def refuse_inside_edit(self) -> None:
        """Raises Conflict while a block of `edit` is open: its draft stands on the head."""
        if self.editing and self.edit_lost is not None and self.edit_lost():
            self.forget()
            self.editing = False
        if self.editing:
            raise refused_calls.inside_edit(self.name)

    def drift(self) -> list[Drift]:
        """Returns where the live object is not what is committed; an open draft does not count."""
        draft = self._open
        plain = draft.before() if isinstance(draft, Recording) and self.editing else self.plain
        return self.schema.drift(self.typed, plain)

    def drop_drift(self) -> None:
        """Forgets changes made to the live typed object outside `edit`. Costs O(state)."""
        self._live.drop_drift(self._plain)

    def reopen_if_created_meanwhile(self) -> None:
        """Looks again, after a conflict on creating the agent, who is there."""
        with self.lock:
            if self._seq == 0 and not self.editing:
                self.forget()

    def forget(self) -> None:
        """Drops what is in memory; the next look rehydrates it from the log."""
        self._plain = MISSING
        self._live.drop()
        self._open = None

    def _load_anew(self) -> None:
        reader = self.reader_if_created()
        if reader is None:
            if self.branch != MAIN:
                raise not_found.no_first_branch(self.name, self.branch)
            self._start_from_initial()
            return
        ref = reader.ref(self.branch)
        if ref.kind != "branch":
            raise not_found.no_branch(self.name, self.branch)
        self._adopt(reader.fold(ref.seq))

    def _start_from_initial(self) -> None:
        plain = initial_state(self.schema, self._initial, self.name)
        self._plain = MISSING
        self._live.forget()
        self._live.of(plain, 0)
        self._seq = 0
        self._plain = plain

    def _adopt(self, folded: Folded) -> None:
        if folded.schema_id != self.schema.id:
            raise not_found.other_schema(self.name, folded.schema_id, self.schema)
        plain = self.schema.complete(self.schema.migrate(folded.state, folded.schema_version))
        self._plain = MISSING
        self._stored = stored = (folded.schema_id, folded.schema_version)
        (_, own), (_, version) = self._own, stored
        self._older = version[0] < own[0]
        self.migration_due = self._older or plain is not folded.state
        self.schema_to_write = stored if own < version < (own[0] + 1,) else self._own
        self._live.drop()
        self._open = None
        self._seq = folded.seq
        self._since.begin(folded, migrated=self.migration_due)
        self._plain = plain  # last: an exception before leaves none, which is read anew

    def rewind(self, folded: Folded) -> None:
        """Goes back, in memory only, to an earlier state: where a replay begins."""
        self._adopt(folded)
        self._live.forget()  # a replay begins with what a first run would have

    def advance(self, commit: Commit, *, in_place: bool = False) -> None:
        """Goes on, in memory only, over a commit of the branch that is in the log already.

        Args:
            in_place: change the live typed object, as committing here would have.
        """
        moved = commit.parent != self._seq or self.migration_due  # not on a state's path, all known
        if self._older or (moved and commit.cause.kind in MOVES):
            self._adopt(self.reader.fold(commit.seq))
            return
        # Until all is in step the plain state is not there: an exception leaves none to trust.
        plain, self._plain = self._plain, MISSING
        if not commit.delta:
            pass  # only of a run's journal
        elif in_place and self._live.value is not MISSING:
            plain = advance_both(self.reader, plain, self._live, commit)
        else:
            plain = self.reader.apply(plain, commit)
            self._live.drop()
        self._since.note(commit.delta, commit.size)
        self._seq = commit.seq
        self._plain = plain

    # -- moving on -------------------------------------------------------------------------

    def committing_recording(
        self, recording: Recording, cause: Cause, riders: Riders = NOTHING
    ) -> Flow[Committed]:
        """Validates and commits what a draft recorded; a failure leaves everything as before."""
        seq = self._seq
        try:
            if recording.torn or recording.handed_out:
                recording.check_whole()
            root, delta = recording.plain, recording.ops
            plan = self._planned(root, delta, recording.inverses)
            committed = yield from self._submitting(delta, cause, riders, root=root, plan=plan)
        except BaseException as error:
            whole = isinstance(error, PerdureError) and not recording.torn
            self._put_back(recording, recording.rollback if whole else None, seq)
            raise
        if recording.unstored:
            recording.apply_ephemeral(self._live.value)
        return committed

    def record(self) -> Recording:
        """A draft of the state, which `committing_recording` or `restore` ends."""
        if self._open is not None:
            self._mend()
        typed = self.typed  # built from the plain state as it is before the draft changes it
        if self._live.is_new:
            self.normalise()
        self._begin_change()
        self._open = recording = Recording(self.schema, self._plain, typed=typed)
        return recording

    def normalise(self) -> None:
        """Makes the plain state what its types show of it; the next write stores that. O(state)."""
        self._live.attempt(self.plain, self._seq)
        plain = self._live.normal(self._plain)
        if plain is not self._plain:
            self.migration_due = True  # first: what is not in the log must not go unnoticed
            self._plain = plain

    def throwaway(self) -> Recording:
        """Returns a draft of which nothing will remain."""
        return Recording(self.schema, copy(self.plain), typed=self.typed)

    def restore(self, recording: Recording) -> None:
        if recording.torn:
            self.forget()
        elif self._open is recording:
            self._plain, self._open = recording.rollback(), None

    def commit_delta(
        self, delta: Sequence[Op], cause: Cause, riders: Riders = NOTHING
    ) -> Committed:
        """Commits ops that come from elsewhere: a diff, an inverse. Nothing changes on failure."""
        return drive(self.context, self.committing_delta(delta, cause, riders))

    def committing_delta(
        self, delta: Sequence[Op], cause: Cause, riders: Riders = NOTHING, *, whole: bool = False
    ) -> Flow[Committed]:
        """The flow of `commit_delta`. `whole`: the state before need not fit, only the result."""
        if self.editing:
            self.refuse_inside_edit()
        waits = self._older and cause.kind.startswith("run-") and cause.kind != "run-started"
        if not delta and self.in_memory and self._seq and (waits or not self.migration_due):
            # The state stays, as with most of a run's: its steps take 0.95 of the long way. A
            # migration waits while a run only wakes: the program before may be put back.
            return self._submitting([], cause, riders, under=self._stored if waits else None)
        if not delta and not self.in_memory:
            return self._committing_nothing(cause, riders)
        return self._committing_ops(delta, cause, riders, whole)

    def _committing_nothing(self, cause: Cause, riders: Riders) -> Flow[Committed]:
        self._mend()  # and no mark: an edit opened meanwhile would drop what this moves
        yield lambda: self.typed
        return (yield from self.committing_delta([], cause, riders))

    def _committing_ops(
        self, delta: Sequence[Op], cause: Cause, riders: Riders, whole: bool
    ) -> Flow[Committed]:
        self._mend()
        if not self.in_memory:
            yield lambda: self._live.attempt(self.plain, self._seq) if whole else self.typed
        self._begin_change()
        seq, before = self._seq, self._plain
        # Taking a deletion back would put the key last, and the order of keys counts.
        spare = copy(before) if any(type(op) is ops.Delete for op in delta) else MISSING
        root, inverses = before, []
        self._open = token = object()
        try:
            for op in delta:
                inverses.append(ops.invert(root, op))
                root = ops.apply(root, ops.own(op))
            changed = list(delta)
            plan = self._planned(root, changed, inverses, whole=whole)
            return (yield from self._submitting(changed, cause, riders, root=root, plan=plan))
        except BaseException as error:

            def restore() -> Plain:
                return spare if spare is not MISSING else ops.fold(root, reversed(inverses))

            self._put_back(token, restore if isinstance(error, PerdureError) else None, seq)
            raise

    def _put_back(self, token: object, restore: Callable[[], Plain] | None, seq: int) -> None:
        """Restores the state after a failure; if a commit landed, or the exception came in between,
        it drops it."""
        if self._open is not token:
            return  # a thrown away generator's, late: others have read anew since
        self._since.doubt()
        if restore is not None and self._seq == seq and self._plain is not MISSING:
            self._plain = restore()
            self._open = None
        else:
            self.forget()

    def _planned(
        self, root: Plain, delta: list[Op], inverses: list[Op], *, whole: bool = False
    ) -> TypedPlan | None:
        """Returns the plan of a change to the live object, if there is one, after checking that it
        may be made."""
        typed, plan = self._live.value if whole else self.typed, None
        if delta and typed is not MISSING:
            plan = self.schema.plan(typed, root, delta, inverses)
            if plan.turned and isinstance(self._open, Recording):
                plan.refuse_turned()
        if delta and self.schema.invariants:
            self.schema.check_invariants(typed, view(self.schema, root), [op.path for op in delta])
        return plan

    def _begin_change(self) -> None:
        """Keeps the state before any change, in its order, if it must be written as a base."""
        if self._is_thread:
            refuse_edit(self.name, self.branch)
        if self._seq == 0 or self.migration_due:
            self._base = copy(self._plain)

    def _committing_base(self) -> Flow[None]:
        """Commits what must be in the log first: the agent, or its migrated state."""
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
        """Makes sure that the agent is in the log; returns None if it was already. `along`: the
        commit after that, which is in along with it, or neither is."""
        yield self.load
        if self._seq:
            return None
        if self._is_thread:
            refuse_edit(self.name, self.branch)
        self.schema.check_invariants(None, view(self.schema, self._plain), [()])
        created, cause = [ops.Set((), self._plain)], Cause("create")
        return (yield from self._submitting(created, cause, NOTHING, along=along))

    def _submitting(
        self, delta: Sequence[Op], cause: Cause, riders: Riders, *, snapshot: bool = True,
        along: Proposal | None = None, root: Plain = MISSING, plan: TypedPlan | None = None,
        under: tuple[str, tuple[int, int]] | None = None,
    ) -> Flow[Committed]:  # two lines, for the limit of the file  # fmt: skip
        """Makes one commit. `root`, `plan`: the plain state after it and the live object's change;
        `under`: the older schema that the state stays stored under; each if any."""
        if root is not MISSING:
            self._plain = root
            if self._seq == 0 or self.migration_due:
                yield from self._committing_base()
        first = self._seq == 0
        payload = chain.pack_payload(delta, riders.records)
        schema, reader = under or self.schema_to_write, self._reader
        incarnation: int = reader.incarnation if reader else (yield lambda: self.incarnation)
        place = self.name, incarnation, self.branch, () if first else (self._seq,)
        by = self.context.executor, self.epoch or 0
        draft = chain.Draft(*place, *schema, *by, cause, payload)
        proposal = self.propose(draft, None if first else self._seq, riders)
        if first:
            proposal.no = None  # created meanwhile, or not: the store says so
            proposal.then = along
        self._since.note(delta, len(payload.data))
        stored: Callable[[int], None] | None = None
        state = self._plain if self._open is None else root
        if snapshot and not under and state is not MISSING and self._since.due(self.context, cause):
            proposal.snapshot, stored = yield partial(
                self._since.write, state, self.name, incarnation, self._seq
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
        self._stored, self._older, self.migration_due = schema, bool(under), bool(under)
        if root is MISSING:
            self._seq = proposal.end.seq  # the state stays
        else:
            self._land(proposal.end.seq, root, plan)
        if stored is not None:
            self._since.wrote(proposal, stored, committed.at_micros)
        return committed

    def _land(self, seq: int, root: Plain, plan: TypedPlan | None) -> None:
        """Brings all in step with a landed commit; the plain state, which says so, last."""
        self._plain = MISSING
        self._seq = seq
        if plan is not None:
            self._live.value = plan.apply()
        self._plain, self._open = root, None

    @property
    def incarnation(self) -> int:
        """The incarnation that is there, or that a first commit would create."""
        reader = self.reader_if_created()
        return reader.incarnation if reader is not None else self._incarnation.to_create()

    def propose(self, draft: chain.Draft, expected: int | None, riders: Riders) -> Proposal:
        if self.branch in STORES_OWN:  # whoever reads it relies on what the store says there
            raise refused_calls.stores_own(self.name, self.branch)
        no = self._reader.no if self._reader else None
        return Proposal(draft, no, expected, riders, self.epoch)
