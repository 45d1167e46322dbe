"""The working copy of one branch: its state in memory, and the commits that change it.

`plain` is what the log says; `typed` is the user's live object. Ops go into `plain` first, are
checked, committed, and only then reach `typed`: a reader of the state sees committed values only.

What takes more than memory is a *flow*, written once for callers that wait in a thread and for
those that await: a generator. It yields what it waits for and is sent the result: a `Proposal` to
commit, or a function that blocks (reads the log) or takes long. Between two yields it only
computes. The driver decides how to wait, so neither face has an implementation of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from perdure.core.draft.draft import Recording, view
from perdure.core.draft.shown_members import check_shown_members
from perdure.core.format import chain
from perdure.core.schema.schema import TypedPlan
from perdure.core.values import ops
from perdure.core.values.diff import diff
from perdure.core.values.ops import Op
from perdure.core.values.plain_values import Plain, copy
from perdure.errors import PerdureError, SchemaError
from perdure.missing import MISSING
from perdure.model import AgentInfo, Cause
from perdure.state import refused_calls
from perdure.state.branch_state import BranchState
from perdure.state.context import Context
from perdure.state.others_commits import compares
from perdure.state.threads import refuse_edit
from perdure.storage.appending import NOTHING, Riders
from perdure.storage.log.proposals import Committed, Proposal
from perdure.storage.log.reader import Folded, LogReader
from perdure.storage.lost_commits import LostCommitsError
from perdure.storage.retention import STORES_OWN

T = TypeVar("T")
R = TypeVar("R")
Wanted = Proposal | Callable[[], Any]
Flow = Generator[Wanted, Any, R]


class WorkingCopy(BranchState[T]):
    """One branch of one agent in memory, and its changes. Not for two threads at once: callers
    take its `lock`."""

    epoch: int | None = None
    """Of the lease on the branch that what is committed here is under; None without one."""
    trace: str | None = None
    """Of the run whose commits are made here: the trace id of each that has none of its own."""
    _base: Plain = MISSING
    """The state before a change of it, where that has to be in the log first."""

    def traced(self, cause: Cause) -> Cause:
        """Returns a cause with the trace id of the run, unless it has its own."""
        return cause if cause.trace is not None else replace(cause, trace=self.trace)

    def committing_recording(
        self, recording: Recording, cause: Cause, riders: Riders = NOTHING
    ) -> Flow[Committed]:
        """Validates and commits what a draft recorded; a failure leaves everything as before. With
        riders, also one that changed nothing."""
        seq = self._seq
        if riders is not NOTHING and seq and recording.ops and not recording.changed:
            return (yield from self._committing_no_change(recording, cause, riders))
        try:
            if recording.torn or recording.handed_out:
                recording.check_whole()
            if recording.deriving:
                recording.derive()
            if recording.shown:
                check_shown_members(recording.shown.values())
            root, delta = recording.plain, recording.ops
            plan = self._planned(root, delta, recording.inverses, delta)
            committed = yield from self._submitting(delta, cause, riders, root=root, plan=plan)
        except BaseException as error:
            torn = recording.torn or ops.is_torn(recording.inverses)
            self._put_back(recording, None if torn else recording.rollback, error, seq)
            raise
        if recording.unstored or recording.carried:
            recording.apply_ephemeral(self._live.value)
        return committed

    def _committing_no_change(
        self, recording: Recording, cause: Cause, riders: Riders
    ) -> Flow[Committed]:
        given = recording.ephemeral
        self.restore(recording)
        recording.check_handed_out()
        committed = yield from self.committing_delta([], cause, riders)
        recording.apply_ephemeral(self._live.value, given)
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
        """Makes the plain state what its types show of it; the next write stores that. O(state).

        Raises:
            SchemaError: a newer program stored it, and it does not fit: no whole value may replace
                what this program cannot read. Or older programs could not read it any more.
        """
        self.load()
        if self.schema_to_write[1] > self.schema.version:
            _ = self.typed
        self._attempt()
        _, version = self._stored or self._own
        plain = self._live.normal(self._plain, version)
        if plain is not self._plain:
            if not self.lowers:  # what is written then is compared as a whole
                self.migration_due = self._normalised = True  # first: it must not go unnoticed
            self._plain = plain

    def take_as_stored(self) -> bool:
        """Makes the plain state what the log says, for ops that were made of states of the log.
        Returns False if the types show another one: then the live object is not of it. O(state),
        once."""
        if self._mixes:
            self._load_anew()
        self._attempt()
        if self._live.value is MISSING or not self._live.is_new:
            return True
        _, version = self._stored or self._own
        shown = self._live.normal(self._plain, version) is self._plain
        self._live.is_new = True
        return shown

    def _attempt(self) -> None:
        """Builds the live object if the plain state fits."""
        self.load()
        with suppress(SchemaError):
            _ = self.typed

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
        self,
        delta: Sequence[Op],
        cause: Cause,
        riders: Riders = NOTHING,
        *,
        whole: bool = False,
        anew: bool = False,
        free: bool = False,
    ) -> Flow[Committed]:
        """The flow of `commit_delta`. `whole`: the state before need not fit, only the result.
        `anew`: the live object is not of the plain state, and another one takes its place.
        `free`: an earlier state comes back; invariants are not asked."""
        if self.editing:
            self.refuse_inside_edit()
        waits = self._older and cause.kind.startswith("run-") and cause.kind != "run-started"
        there = self._live.value is not MISSING and self._plain is not MISSING
        if not delta and there and self._seq and (waits or not self.migration_due):
            # The state stays, as with most of a run's: its steps take 0.95 of the long way. A
            # migration waits while a run only wakes: the program before may be put back.
            return self._submitting([], cause, riders, under=self._stored if waits else None)
        if not delta and not there:
            return self._committing_nothing(cause, riders)
        return self._committing_ops(delta, cause, riders, whole, anew, free)

    def _committing_nothing(self, cause: Cause, riders: Riders) -> Flow[Committed]:
        self._mend()  # and no mark: an edit opened meanwhile would drop what this moves
        yield lambda: self.typed
        return (yield from self.committing_delta([], cause, riders))

    def _committing_ops(
        self, delta: Sequence[Op], cause: Cause, riders: Riders, whole: bool, anew: bool, free: bool
    ) -> Flow[Committed]:
        self._mend()
        if not self.in_memory:
            yield lambda: self._attempt() if whole else self.typed
        self._complete()
        self._begin_change()
        seq, before = self._seq, self._plain
        # Taking a deletion back would put the key last, and the order of keys counts.
        spare = copy(before) if any(type(op) is ops.Delete for op in delta) else MISSING
        root, inverses = before, list[Op]()
        self._open = token = object()
        try:
            for op in delta:
                root = ops.apply_noting(root, op, inverses)
            changed = list(delta)
            by_place = self._live.keeps_fields and compares(self._reader, cause)
            plan, asks = None, [] if free else changed
            if anew:
                self._check_anew(root, asks)
            else:
                plan = self._planned(root, changed, inverses, asks, whole=whole, by_place=by_place)
            return (yield from self._submitting(changed, cause, riders, root=root, plan=plan))
        except BaseException as error:

            def restore() -> Plain:
                return spare if spare is not MISSING else ops.fold(root, reversed(inverses))

            self._put_back(token, None if ops.is_torn(inverses) else restore, error, seq)
            raise

    def _put_back(
        self, token: object, restore: Callable[[], Plain] | None, error: BaseException, seq: int
    ) -> None:
        """Restores the state after a failure; if a commit landed, or the exception came in between,
        it drops it. A signal's handler may raise errors of ours, too: between any two things.

        Args:
            restore: gives the plain state before; None where something was changed by half.
        """
        if self._open is not token:
            return  # a thrown away generator's, late: others have read anew since
        self._since.doubt()
        known = isinstance(error, PerdureError) and self._seq == seq
        if restore is not None and known and self._plain is not MISSING:
            self._plain = restore()
            self._open = None
        else:
            self.forget()

    def _planned(
        self,
        root: Plain,
        delta: list[Op],
        inverses: list[Op],
        asks: Sequence[Op],
        *,
        whole: bool = False,
        by_place: bool = False,
    ) -> TypedPlan | None:
        """Returns the plan of a change to the live object, if there is one, after checking that it
        may be made. `asks`: the ops of which invariants are asked. `by_place`: see `Schema.plan`.
        """
        typed, plan = self._live.value if whole else self.typed, None
        if delta and typed is not MISSING:
            plan = self.schema.plan(typed, root, delta, inverses, by_place=by_place)
            if plan.turned and isinstance(self._open, Recording):
                plan.refuse_turned()
        if asks and self.schema.invariants:
            self.schema.check_invariants(typed, view(self.schema, root), [op.path for op in asks])
        return plan

    def _check_anew(self, root: Plain, asks: Sequence[Op]) -> None:
        """Checks a new plain state by itself; the next look builds the live object of it."""
        before = self._live.value
        self.schema.build(root)
        if asks and self.schema.invariants:
            touched = [op.path for op in asks]
            self.schema.check_invariants(before, view(self.schema, root), touched)
        self._live.drop()

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
            cause, change = Cause("create"), [ops.Set((), self.as_created(base))]
        else:
            folded: Folded = yield partial(self.reader.fold, self._seq)
            cause, change = Cause("migrate"), diff(folded.state, base)
            self._check_migrated(folded, base, change)
            if self.lowers:
                change = diff(folded.state, self.as_created(base))
        yield from self._submitting(change, cause, NOTHING, snapshot=False)

    def _check_migrated(self, folded: Folded, base: Plain, change: Sequence[Op]) -> None:
        if not self.schema.invariants or self._live.value is MISSING:
            return  # what does not fit is replaced as a whole: that is checked
        was = folded.schema_version[0] == self.schema.version[0]
        before = view(self.schema, folded.state) if was else None
        touched = [op.path for op in change]
        self.schema.check_migrated(folded.state, before, view(self.schema, base), touched)

    def creating(self, along: Proposal | None = None) -> Flow[Committed | None]:
        """Makes sure that the agent is in the log; returns None if it was already. `along`: the
        commit after that, which is in along with it, or neither is."""
        if self.editing:
            self.refuse_inside_edit()
        yield self.load
        if self._seq:
            return None
        if self._is_thread:
            refuse_edit(self.name, self.branch)
        self.schema.check_invariants(None, view(self.schema, self._plain), [()])
        created, cause = [ops.Set((), self.as_created(self._plain))], Cause("create")
        return (yield from self._submitting(created, cause, NOTHING, along=along))

    def moving(self, proposal: Proposal) -> Flow[Committed]:
        """Commits what makes another state the branch's; the next look reads that."""
        self._mend()
        self._open = token = object()
        try:
            committed: Committed = yield proposal
        except BaseException as error:
            if self._open is token:  # else a thrown away generator's, late
                if isinstance(error, LostCommitsError):
                    self.lose()
                elif isinstance(error, PerdureError):
                    self._open = None
                else:
                    self.forget()
            raise
        self.forget()
        return committed

    def _submitting(
        self,
        delta: Sequence[Op],
        cause: Cause,
        riders: Riders,
        *,
        snapshot: bool = True,
        along: Proposal | None = None,
        root: Plain = MISSING,
        plan: TypedPlan | None = None,
        under: tuple[str, tuple[int, int]] | None = None,
    ) -> Flow[Committed]:
        """Makes one commit. `root`, `plan`: the plain state after it and the live object's change;
        `under`: the older schema that the state stays stored under; each if any."""
        in_log = root
        if root is not MISSING:
            self._plain = root
            if self.lowers:  # before anything is written
                in_log = yield partial(self.lowered, root)
            if self._seq == 0 or self.migration_due:
                yield from self._committing_base()
            if self.lowers:
                folded: Folded = yield partial(self.reader.fold, self._seq)
                delta = diff(folded.state, in_log)
        if self.branch in STORES_OWN:  # whoever reads it relies on what the store says there
            raise refused_calls.stores_own(self.name, self.branch)
        if self.trace is not None:
            cause = self.traced(cause)
        first = self._seq == 0
        payload = chain.pack_payload(delta, riders.records)
        schema, reader = under or self.schema_to_write, self._reader
        incarnation: int = reader.incarnation if reader else (yield lambda: self.incarnation)
        place = self.name, incarnation, self.branch, () if first else (self._seq,)
        by = self.context.executor, self.epoch or 0
        draft = chain.Draft(*place, *schema, *by, cause, payload, self._id)
        # The first one: whether it is created meanwhile, or not, the store says.
        no = None if first or self._reader is None else self._reader.no
        expected = None if first else self._seq
        proposal = Proposal(draft, no, expected, riders, self.epoch, then=along)
        self._since.note(delta, len(payload.data))
        stored: Callable[[int], None] | None = None
        state = self._plain if self._open is None else root
        if snapshot and not under and state is not MISSING and self._since.due(self.context, cause):
            if self.lowers:
                state = in_log if root is not MISSING else (yield self.stored_form)
            proposal.snapshot, stored = yield partial(
                self._since.write, state, self.name, incarnation, self._seq
            )
        try:
            committed: Committed = yield proposal
        except LostCommitsError:
            self.lose()
            raise
        if first:
            self._reader = LogReader(
                self._reads,
                AgentInfo(self.name, committed.no, draft.incarnation, False, committed.seq),
            )
            self._since.begin_ageing(committed.at_micros)
        if along is not None:
            self._since.note((), len(along.draft.payload.data))
        if root is MISSING:
            # The state stays; before what is due, which goes by it.
            self._seq, self._id = proposal.end.seq, proposal.end.id
        self._stored, self._older, self.migration_due = schema, bool(under), bool(under)
        if root is not MISSING:
            self._land(proposal.end, root, plan)
        if stored is not None:
            self._since.wrote(proposal, stored, committed.at_micros)
        return committed

    def _land(self, end: chain.LogTail, root: Plain, plan: TypedPlan | None) -> None:
        """Brings all in step with a landed commit; the plain state, which says so, last."""
        self._plain = MISSING
        self._seq, self._id = end.seq, end.id
        if plan is not None:
            self._live.value = plan.apply()
        self._plain, self._open = root, None


def drive(context: Context, flow: Flow[R]) -> R:
    """Runs an operation to its end on the calling thread."""
    # An exception may come between any two steps. The operation then ends here, not when its
    # generator is freed, which may be late.
    try:
        wanted = next(flow)
        while True:
            try:
                result = (
                    context.committer.submit(wanted) if isinstance(wanted, Proposal) else wanted()
                )
            except BaseException as error:
                wanted = flow.throw(error)
            else:
                wanted = flow.send(result)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    except BaseException:
        flow.close()
        raise


def next_proposal(flow: Flow[Any], outcome: Any) -> Proposal:
    """Sends an operation the outcome of its last proposal (None to begin), and does what it asks
    until it proposes again."""
    wanted = flow.throw(outcome) if isinstance(outcome, BaseException) else flow.send(outcome)
    while not isinstance(wanted, Proposal):
        try:
            result = wanted()
        except BaseException as error:
            wanted = flow.throw(error)
        else:
            wanted = flow.send(result)
    return wanted


async def drive_async(context: Context, flow: Flow[R]) -> R:
    """Runs an operation to its end; its reads run on the store's threads.

    On cancellation it stops where it is: a queued commit is withdrawn, one that is under way is
    awaited. If that landed, the operation is told, so that memory and log agree; it commits nothing
    more.
    """
    cancelled: BaseException | None = None
    try:
        wanted = next(flow)
        while True:
            try:
                if cancelled is not None:
                    raise cancelled
                if isinstance(wanted, Proposal):
                    result: Any = await context.submit_async(wanted)
                else:
                    result = await context.in_thread(wanted)
            except BaseException as error:
                landed = wanted.committed if isinstance(wanted, Proposal) else None
                if landed is None or cancelled is not None:
                    wanted = flow.throw(error)
                    continue
                cancelled, result = error, landed
            wanted = flow.send(result)
    except StopIteration as stop:
        if cancelled is not None:
            raise cancelled from None
        return stop.value  # type: ignore[no-any-return]
