"""A commit on its way in: its parts, its place once it has one, and its outcome."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from perdure.core.format import chain
from perdure.core.format.chain import START, LogTail
from perdure.core.format.rows import check_message, check_row
from perdure.errors import (
    Conflict,
    Fenced,
    Hint,
    NotFound,
    PerdureError,
)
from perdure.model import Checkpoint, Commit, RunInfo
from perdure.storage.appending import NOTHING, Append, Refused, Riders, StoredSnapshot
from perdure.storage.log.refusals import (
    BegunError,
    ConsumedError,
    EndedError,
    KeyUsedError,
    UnreadError,
    held_error,
)


def asked(*declared: object) -> bytes:
    """Returns a digest of what a caller asked for under an idempotency key, by its declared
    arguments."""
    return sha256("\0".join(map(repr, declared)).encode("utf-8", "surrogatepass")).digest()[:16]


class Proposal(Struct, eq=False):
    """A commit that wants in. Only when it is linked, at the end, does it get its place.

    Attributes:
        no: the agent's number; None: it is not there yet.
        expected: the head of its branch; None: it begins one.
        then: for one that creates its agent: another one that gets in along with it, or neither
            does.
        end: the log's end once it is in, followers included.
        withdrawn: True if nobody wants it any more; a leader leaves it out.
    """

    draft: chain.Draft
    no: int | None
    expected: int | None
    riders: Riders = NOTHING
    epoch: int | None = None
    snapshot: StoredSnapshot | None = None
    then: Proposal | None = None
    linked: Append | None = None
    tail: LogTail = START
    end: LogTail = START
    committed: Committed | None = None
    refused: Refused | None = None
    error: BaseException | None = None
    withdrawn: bool = False
    _gate: threading.Lock | None = None
    _done: Callable[[], None] | None = None

    @property
    def waited_for(self) -> bool:
        """True if a thread is blocked on this proposal; such a thread can become the leader."""
        return self._gate is not None

    @property
    def settled(self) -> bool:
        return bool(self.committed or self.refused or self.error)

    def outcome(self) -> Committed:
        """Returns the outcome, once it is settled. Called by the waiter: nobody else has to be
        woken, and the reference cycle is cut.

        Raises:
            as `Committer.submit`.
        """
        self._done = None
        if self.committed is not None:
            return self.committed
        if self.refused is not None:
            raise explain(self, self.refused)
        assert self.error is not None
        raise self.error

    def landed(self, no: int) -> None:
        """Notes that it is in the log of the agent of that number, at the place that it was linked
        to."""
        tail, linked = self.tail, self.linked
        assert linked is not None
        if self.then is not None:
            self.then.landed(no)
        self.committed = Committed(no, tail.seq, tail.id, tail.at, linked)

    def link(self, tail: LogTail, now: int) -> Append:
        """Takes the place behind `tail`; may be repeated behind another one."""
        draft, riders = self.draft, self.riders
        if riders.log_end is not None and tail.seq > riders.log_end:
            raise Conflict(
                f"its log went on, to commit {tail.seq}, since this was decided",
                target=f"agent {draft.agent!r}",
                hint=Hint.HEAD_MOVED,
            )
        header, place = chain.link(draft, tail, now)
        seq = place.seq
        if riders.runs or riders.checkpoint is not None:
            riders = replace(
                riders,
                runs=[_with_seq(run, place) for run in riders.runs],
                checkpoint=riders.checkpoint and _at(riders.checkpoint, seq),
            )
        # I11: as with header and records, nothing is written that readers would refuse.
        for row in riders.runs:
            check_row(row)
        for message in riders.sends:
            check_message(message)
        linked = Append(
            draft.agent,
            self.no,
            draft.incarnation,
            seq,
            header,
            draft.payload.data,
            draft.branch,
            self.expected,
            self.epoch,
            riders,
            self.snapshot,
            behind=tail,
            awaited=self._done is None,
        )
        end = place
        if self.then is not None:
            follower = self.then.link(place, now)
            linked.then = (follower,)
            both = riders.sync or follower.riders.sync, riders.lazy and follower.riders.lazy
            if both != (riders.sync, riders.lazy):
                linked.riders = replace(riders, sync=both[0], lazy=both[1])
            end = self.then.end
        self.linked = None  # an exception in between leaves none that is out of step
        self.tail, self.end = place, end
        self.linked = linked
        return linked

    def wait(self, seconds: float) -> bool:
        """Waits to be woken; returns True if it was."""
        assert self._gate is not None
        return self._gate.acquire(timeout=seconds)

    def anew(self) -> None:
        """Resets a refused proposal, to be submitted again: nobody waits for it yet."""
        self.refused = self.linked = None
        self._gate = None

    def prepare_to_wait(self) -> None:
        gate = threading.Lock()
        gate.acquire()
        self._gate = gate

    def call_when_settled(self, done: Callable[[], None]) -> None:
        self._gate, self._done = None, done

    def wake(self) -> None:
        """Wakes the waiter. May be repeated: after an interrupted leader the next one does."""
        # A woken caller may submit the proposal again at once, during this call: from then on what
        # is noted belongs to the caller, and must not be changed.
        done = self._done
        if self._gate is not None:
            if self._gate.locked():
                with suppress(RuntimeError):
                    self._gate.release()
        elif done is not None:
            try:
                done()
            except Exception:
                with suppress(Exception):  # who asked must not hurt the rest of the batch
                    done()


HERE = -1
"""Stands for the proposal's own seq, in a checkpoint or a run's row, until it is linked; in
`RunInfo.started_at_micros`, for its time."""


def _at(checkpoint: Checkpoint, seq: int) -> Checkpoint:
    return replace(checkpoint, seq=seq) if checkpoint.seq == HERE else checkpoint


def _with_seq(run: RunInfo, tail: LogTail) -> RunInfo:
    waits = run.status == "waiting"
    finished = run.ended > 0  # before: then this commit tells it once more, and changes nothing
    return replace(
        run,
        started=tail.seq if run.started == HERE else run.started,
        ended=tail.seq if run.ended == HERE else run.ended,
        turn_at=tail.seq if run.turn_at == HERE else run.turn_at,
        started_at_micros=tail.at if run.started_at_micros == HERE else run.started_at_micros,
        changed_at_micros=run.changed_at_micros if finished else tail.at,
        wake_at_micros=run.wake_at_micros if waits else 0,
        waits=run.waits if waits else "",
    )


class Committed(Struct, frozen=True):
    """The place and time of a landed commit (microseconds since 1970), and what was written."""

    no: int
    seq: int
    id: bytes
    at_micros: int
    linked: Append

    def read(self) -> Commit:
        """Returns the commit, decoded from the stored bytes."""
        linked = self.linked
        return chain.read_commit(linked.agent, linked.seq, linked.header, linked.payload)


def explain(proposal: Proposal, refused: Refused) -> PerdureError:
    """Returns the error that tells a caller of a refusal."""
    draft = proposal.draft
    target = f"agent {draft.agent!r}, branch {draft.branch!r}"
    ref = refused.ref
    if refused.why == "key":
        key = proposal.riders.key
        assert key is not None
        return KeyUsedError(
            f"the idempotency key {key[0]!r} was used by commit {refused.seq}",
            target=target,
            hint="use another key for another command",
            seq=refused.seq,
            asked=refused.asked,
        )
    if refused.why == "held" and ref is not None and ref.held is not None:
        return held_error(draft.agent, ref)
    if refused.why == "fenced":
        return Fenced(
            f"the lease of epoch {proposal.epoch} is over"
            + (f"; epoch {ref.epoch} is current" if ref else ""),
            target=target,
            hint="this process lost its branch to another; the run goes on there",
        )
    if refused.why == "moved" and ref is not None:
        dropped = ref.name == proposal.riders.drop_branch
        expected = proposal.riders.drop_head if dropped else proposal.expected
        return Conflict(
            f"expected the head at commit {expected}, but it is at {ref.seq}",
            target=f"agent {draft.agent!r}, branch {ref.name!r}",
            hint=Hint.HEAD_MOVED,
        )
    if refused.why == "exists":
        name = ref.name if ref else draft.agent
        what = f"the name {name!r} is taken" if ref else "the agent was created in the meantime"
        if ref and ref.deleted:
            what = f"the name {name!r} belonged to a branch that was deleted; names stay taken"
        return Conflict(what, target=target, hint="choose another name" if ref else "open it again")
    if (others := _explain_others(proposal, refused, target)) is not None:
        return others
    if refused.why == "trimmed":
        return Conflict(
            "retention is removing a part of its history right now",
            target=target,
            hint="make the call again, if what it builds on is still there",
        )
    gone = proposal.riders.drop_branch or draft.branch
    return NotFound(
        "was deleted" if ref is None or ref.deleted else "is a checkpoint, not a branch",
        target=f"agent {draft.agent!r}, branch {gone!r}",
        hint="a late write cannot bring it back; open the agent again to start another incarnation",
    )


def _explain_others(proposal: Proposal, refused: Refused, target: str) -> PerdureError | None:
    """Returns the error of a refusal for what others did to messages and runs; None: of another."""
    if refused.why == "consumed":
        return ConsumedError(
            "a message that this commit takes out of the inbox is no longer there",
            target=target,
            hint="read the inbox again and decide again",
        )
    if refused.why == "unread":
        return UnreadError(
            "a message arrived for a run that this commit begins or ends",
            target=target,
            hint="read the inbox again, and decide again",
        )
    if refused.why == "begun":
        return BegunError(
            "there is such a run since just now",
            target=f"run {', '.join(proposal.riders.fresh)}",
            hint="look at it, or use another key",
        )
    if refused.why == "ended":
        return EndedError(
            "has ended: nobody would receive it",
            target=f"run {', '.join(proposal.riders.going)}",
        )
    return None
