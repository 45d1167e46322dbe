"""The one write path: links commits to the log's end and shares transactions between writers.

A lone caller commits on its own thread with no hop. While one commits, others queue; the first of
them then leads, with all that have come, in one transaction and one fsync; each still succeeds or
fails alone.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from perdure.core import chain
from perdure.core.chain import START, Tail
from perdure.errors import Conflict, Fenced, NotFound, PerdureError, StoreUnavailable
from perdure.model import Checkpoint, RunInfo, from_micros
from perdure.storage.port import Append, Appended, Backend, Outcome, Refused, StoredSnapshot

TAILS_KEPT = 100_000
ROUNDS_MAX = 1000
"""Relinks of one commit before giving up. Each means that somebody else's commit got in."""


class Proposal:
    """A commit that wants in. What `Append` says of its fields holds; links come at the end."""

    __slots__ = (
        "_gate", "asked", "checkpoint", "committed", "delete_agent", "draft", "drop_branch",
        "epoch", "error", "expected", "key", "linked", "no", "refused", "release", "runs",
        "snapshot", "sync", "tail", "woken",
    )  # fmt: skip

    def __init__(
        self,
        draft: chain.Draft,
        *,
        no: int | None,
        expected: int | None,
        epoch: int | None = None,
        key: tuple[str, bytes] | None = None,
        snapshot: StoredSnapshot | None = None,
        checkpoint: Checkpoint | None = None,
        drop_branch: str | None = None,
        delete_agent: bool = False,
        runs: Sequence[RunInfo] = (),
        release: bool = False,
        sync: bool = False,
    ) -> None:
        self.draft = draft
        self.no = no
        self.expected = expected
        self.epoch = epoch
        self.key = key
        self.snapshot = snapshot
        self.checkpoint = checkpoint
        self.drop_branch = drop_branch
        self.delete_agent = delete_agent
        self.runs = runs
        self.release = release
        self.sync = sync
        self.linked: Append | None = None
        self.tail: Tail = START
        self.committed: Committed | None = None
        self.refused: Refused | None = None
        self.error: BaseException | None = None
        self.woken = False
        self._gate: threading.Lock | None = None

    @property
    def settled(self) -> bool:
        return bool(self.committed or self.refused or self.error)

    def link(self, tail: Tail, now: int) -> Append:
        """Take the place behind `tail`; may be done again behind another one."""
        header, self.tail = chain.link(self.draft, tail, now)
        seq = self.tail.seq
        draft = self.draft
        self.linked = Append(
            draft.agent, self.no, draft.incarnation, seq, header, draft.payload.data,
            draft.branch, self.expected, self.epoch, self.key, self.snapshot,
            _at(self.checkpoint, seq), self.drop_branch, self.delete_agent,
            [_with_seq(run, seq) for run in self.runs], self.release, self.sync, prev=tail.id,
        )  # fmt: skip
        return self.linked

    def wait(self) -> None:
        assert self._gate is not None
        self._gate.acquire()

    def prepare_to_wait(self) -> None:
        self._gate = threading.Lock()
        self._gate.acquire()

    def wake(self) -> None:
        self.woken = True
        if self._gate is not None:
            self._gate.release()


HERE = -1
"""Stands for the proposal's own seq, in a checkpoint or a run's row, until it is linked."""


def _at(checkpoint: Checkpoint | None, seq: int) -> Checkpoint | None:
    if checkpoint is None or checkpoint.seq != HERE:
        return checkpoint
    return replace(checkpoint, seq=seq)


def _with_seq(run: RunInfo, seq: int) -> RunInfo:
    return replace(
        run,
        started=seq if run.started == HERE else run.started,
        ended=seq if run.ended == HERE else run.ended,
    )


@dataclass(frozen=True, slots=True)
class Committed:
    """Where a commit landed."""

    no: int
    seq: int
    id: bytes
    at: datetime


class Committer:
    """See the module. One per open store."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._begin()
        weak = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _begin_anew(weak()))

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._queue: list[Proposal] = []
        self._busy = False
        self._tails: dict[tuple[str, int], Tail] = {}

    def submit(self, proposal: Proposal) -> Committed:
        """Commit, and return when that is durable as far as was asked.

        Raises:
            Conflict, Fenced, NotFound: nothing was written.
            StoreUnavailable: its outcome says whether it may have been.
        """
        with self._lock:
            self._queue.append(proposal)
            leads = not self._busy
            if leads:
                self._busy = True
            else:
                proposal.prepare_to_wait()
        if not leads:
            self._wait(proposal)
        if not proposal.settled:
            self._lead()
        if proposal.committed is not None:
            return proposal.committed
        if proposal.refused is not None:
            raise explain(proposal, proposal.refused)
        assert proposal.error is not None
        raise proposal.error

    def _wait(self, proposal: Proposal) -> None:
        """Wait to be committed, or to lead.

        Raises:
            BaseException: an interrupt; the proposal is withdrawn before, or its batch awaited,
                and those that it would have led go on without it.
        """
        try:
            proposal.wait()
        except BaseException:
            with self._lock:
                queued = proposal in self._queue
                if queued:
                    first = self._queue[0] is proposal
                    self._queue.remove(proposal)
                    if first and proposal.woken:
                        self._pass_on()
            if not queued and not proposal.settled:
                proposal.wait()  # a running batch has it: what it asked for is being done
            raise

    def _pass_on(self) -> None:
        """With the lock held: let the next one lead, or nobody."""
        if self._queue:
            self._queue[0].wake()  # it finds itself unsettled, and leads
        else:
            self._busy = False

    def _lead(self) -> None:
        """Commit all that wait, this thread's own among them, then pass the lead on."""
        with self._lock:
            batch, self._queue = self._queue, []
        interrupt: BaseException | None = None
        try:
            self._commit(batch)
        except BaseException as error:
            interrupt = self._rescue(batch, error)
        finally:
            with self._lock:
                self._pass_on()
            for proposal in batch:
                proposal.wake()
        if interrupt is not None:
            raise interrupt

    def _commit(self, batch: list[Proposal]) -> None:
        waiting = batch
        for _ in range(ROUNDS_MAX):
            waiting = self._link_all(waiting)
            if not waiting:
                return
            appends = [proposal.linked for proposal in waiting if proposal.linked is not None]
            outcomes = self._backend.append(appends)
            waiting = [
                proposal
                for proposal, outcome in zip(waiting, outcomes, strict=True)
                if not self._settle(proposal, outcome)
            ]
            if not waiting:
                return
        for proposal in waiting:
            proposal.error = StoreUnavailable(
                "could not get a commit in between those of others",
                target=f"agent {proposal.draft.agent!r}",
                hint="make the call again",
            )

    def _link_all(self, waiting: list[Proposal]) -> list[Proposal]:
        """Link each to its log's end, or to the one of the same log before it in the batch."""
        now = self._backend.now()
        ends: dict[tuple[str, int], Tail] = {}
        linked: list[Proposal] = []
        for proposal in waiting:
            log = (proposal.draft.agent, proposal.draft.incarnation)
            try:
                tail = ends.get(log) or self._tail(proposal)
                proposal.link(tail, now)
            except Exception as error:  # its own: the others of the batch go on
                proposal.error = error
                continue
            ends[log] = proposal.tail
            linked.append(proposal)
        return linked

    def _tail(self, proposal: Proposal) -> Tail:
        if proposal.no is None:
            return START
        log = (proposal.draft.agent, proposal.draft.incarnation)
        tail = self._tails.get(log)
        if tail is None:
            last = self._backend.read(proposal.no, 0, 2**40, newest_first=True, limit=1)
            target = f"agent {proposal.draft.agent!r}"
            tail = chain.tail_of(last[0].header, target) if last else START
            if len(self._tails) >= TAILS_KEPT:
                self._tails.clear()
            self._tails[log] = tail
        return tail

    def _settle(self, proposal: Proposal, outcome: Outcome) -> bool:
        """Note an outcome; False where the proposal must be linked and tried again."""
        log = (proposal.draft.agent, proposal.draft.incarnation)
        match outcome:
            case Appended(no):
                tail = proposal.tail
                self._tails[log] = tail
                proposal.committed = Committed(no, tail.seq, tail.id, from_micros(tail.at))
            case Refused("stale"):
                self._tails.pop(log, None)
                return False
            case Refused():
                # Those behind it in the batch were linked to it: they find themselves stale.
                self._tails.pop(log, None)
                proposal.refused = outcome
            case error:
                self._tails.pop(log, None)
                proposal.error = error
        return True

    def _rescue(self, batch: list[Proposal], error: BaseException) -> BaseException | None:
        """The leader was interrupted: find out how far it came, and finish for its followers."""
        self._tails.clear()
        undecided = [proposal for proposal in batch if not proposal.settled]
        if isinstance(error, Exception):
            for proposal in undecided:
                proposal.error = error
            return None
        try:
            left = [proposal for proposal in undecided if not self._landed(proposal)]
            self._commit(left)
        except Exception as second:
            for proposal in undecided:
                if not proposal.settled:
                    proposal.error = second
        return error

    def _landed(self, proposal: Proposal) -> bool:
        linked = proposal.linked
        if linked is None:
            return False
        no = linked.no
        if no is None:
            info = self._backend.agent(linked.agent, linked.incarnation)
            if info is None:
                return False
            no = info.no
        stored = self._backend.read(no, linked.seq, linked.seq)
        if not stored or stored[0].header != linked.header:
            return False
        tail = proposal.tail
        proposal.committed = Committed(no, tail.seq, tail.id, from_micros(tail.at))
        return True


def _begin_anew(committer: Committer | None) -> None:
    """In a forked child: the threads that led or waited are not there."""
    if committer is not None:
        committer._begin()


class KeyUsedError(Conflict):
    """The idempotency key took effect before; `seq` says where, `asked` for what."""

    def __init__(self, problem: str, *, target: str, hint: str, seq: int, asked: bytes) -> None:
        super().__init__(problem, target=target, hint=hint)
        self.seq = seq
        self.asked = asked


class HeldError(Conflict):
    """Another executor holds the branch's lease: `holder`, under epoch `held`."""

    def __init__(self, problem: str, *, target: str, hint: str, holder: str, held: int) -> None:
        super().__init__(problem, target=target, hint=hint)
        self.holder = holder
        self.held = held


def explain(proposal: Proposal, refused: Refused) -> PerdureError:
    """The error that a refusal is for the caller."""
    draft = proposal.draft
    target = f"agent {draft.agent!r}, branch {draft.branch!r}"
    ref = refused.ref
    if refused.why == "key":
        assert proposal.key is not None
        return KeyUsedError(
            f"the idempotency key {proposal.key[0]!r} was used by commit {refused.seq}",
            target=target, hint="use another key for another command",
            seq=refused.seq, asked=refused.asked,
        )  # fmt: skip
    if refused.why == "held" and ref is not None and ref.held is not None:
        holder = ref.holder or "?"
        return HeldError(
            f"executor {holder} is running on it",
            target=f"agent {draft.agent!r}, branch {ref.name!r}",
            hint="wait until the run ends or waits, send it a signal, or fork",
            holder=holder, held=ref.held,
        )  # fmt: skip
    if refused.why == "fenced":
        return Fenced(
            f"the lease of epoch {proposal.epoch} is over"
            + (f"; epoch {ref.epoch} is current" if ref else ""),
            target=target,
            hint="this process lost its branch to another; the run goes on there",
        )
    if refused.why == "moved" and ref is not None:
        return Conflict(
            f"expected the head at commit {proposal.expected}, it is at {ref.seq}",
            target=target,
            hint="agent.refresh() and decide anew, or use agent.update(fn), which retries",
        )
    if refused.why == "exists":
        name = ref.name if ref else draft.agent
        what = f"the name {name!r} is taken" if ref else "the agent was created meanwhile"
        if ref and ref.deleted:
            what = f"the name {name!r} belonged to a branch that was deleted; names stay taken"
        return Conflict(what, target=target, hint="choose another name" if ref else "open it again")
    gone = proposal.drop_branch or draft.branch
    return NotFound(
        "was deleted" if ref is None or ref.deleted else "is a checkpoint, not a branch",
        target=f"agent {draft.agent!r}, branch {gone!r}",
        hint="a late write cannot bring it back; open the agent anew to start another incarnation",
    )
