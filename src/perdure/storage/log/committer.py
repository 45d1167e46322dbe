"""The one write path: links commits to the log's end and shares transactions between writers.

A lone caller commits on its own thread with no hop. While one commits, others queue; the first of
them then leads, with all that have come, in one transaction and one fsync; each still succeeds or
fails alone. A caller that cannot block a thread, like a coroutine, hands its commit over with
`submit_soon`; a thread of the committer leads if no waiting caller does.
"""

from __future__ import annotations

import queue
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from sys import _getframe
from types import FrameType

from perdure.core.format.chain import LogTail
from perdure.errors import (
    Conflict,
    Corrupt,
    Fenced,
    NotAStore,
    NotFound,
    PerdureError,
    StoreUnavailable,
    Unstorable,
    UnsupportedFormat,
)
from perdure.storage.appending import Append, Appended, Outcome, Refused
from perdure.storage.capabilities import Backend
from perdure.storage.log import log_ends
from perdure.storage.log.log_ends import LogEnds
from perdure.storage.log.proposals import Committed, Proposal
from perdure.storage.log.refusals import HeldError
from perdure.system import process_id
from perdure.system.locks import LOOK_FIRST_S, LOOK_MAX_S, Lock
from perdure.system.threads import Servants

ROUNDS_MAX = 1000
"""Relinks of one commit before giving up. Each means that somebody else's commit got in."""

CLOSE_MAX_S = 60
"""The time that closing waits for what is queued; a hanging disk must not block it for ever."""


AGAIN_S = 0.01
"""The pause of our own thread after it could not even begin to lead."""


_BACKENDS = (
    *(StoreUnavailable, Corrupt, UnsupportedFormat, NotAStore, NotFound),
    *(Unstorable, Conflict, Fenced),
)
"""Errors with which a backend refuses a batch. Others of ours are from a signal's handler, between
any two things: an interrupt."""


class WithdrawnError(PerdureError):
    """The caller no longer wants the commit; nothing was written."""

    def __init__(self) -> None:
        super().__init__("was withdrawn", hint="make the call again")


class Committer:
    """The committer of one open store.

    The leader holds `_lead`, which names its call (`system.locks`): no exception leaves it locked.
    A proposal stays in the queue or the batch until it is settled. So the next leader finds all
    open ones, also those of an interrupted leader: they have their places, and are looked up in the
    log before they are written, because they may be in.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._closed = False
        self.begin_anew()
        process_id.renew_in_children(self)

    def begin_anew(self) -> None:
        """Resets itself in a forked child: the threads that led or waited are not there."""
        self._lead, self._making = Lock(), Lock()
        self._queue: deque[Proposal] = deque()
        self._batch: list[Proposal] = []
        self._ends = LogEnds(self._backend)
        self._servants = Servants("perdure-committer")
        self._summons: queue.SimpleQueue[Committer | None] = queue.SimpleQueue()

    def submit(self, proposal: Proposal) -> Committed:
        """Commits a proposal, and returns when it is as durable as requested. A lease whose owner
        is dead or expired does not block it.

        Raises:
            Conflict, Fenced, NotFound: nothing was written.
            StoreUnavailable: its outcome says whether it may have been written.
            BaseException: an interrupt; the proposal was withdrawn, or its batch awaited, first.
        """
        try:
            if self._lead.try_take(_getframe()):
                self._queue.append(proposal)
                self._lead_on()
            else:
                proposal.prepare_to_wait()
                self._queue.append(proposal)
                self._wait(proposal, _getframe())
        except BaseException:
            self._see_off(proposal, _getframe())
            raise
        finally:
            try:
                self._leave(_getframe())
            except BaseException:  # it comes from outside: all of that can be done again
                self._leave(_getframe())
                raise
        return proposal.committed or self._outcome(proposal)

    def submit_all(self, proposals: Sequence[Proposal]) -> list[Committed | PerdureError]:
        """Commits proposals for different logs in as few transactions as possible, each succeeding
        or failing alone; returns when all are settled. A lease blocks them, whoever holds it.

        Raises:
            BaseException: an interrupt; what is not under way was withdrawn.
        """
        *before, last = proposals
        try:
            self._queue.extend(before)
            try:
                ended: Committed | PerdureError = self.submit(last)  # the queue before it, too
            except PerdureError as error:
                ended = error
        except BaseException:
            for proposal in before:
                self.withdraw(proposal)
            raise
        outcomes: list[Committed | PerdureError] = []
        for proposal in before:
            if self.withdraw(proposal):  # nobody could even begin to lead
                proposal.error = WithdrawnError()
            try:
                outcomes.append(proposal.outcome())
            except PerdureError as error:
                outcomes.append(error)
        return [*outcomes, ended]

    def _outcome(self, proposal: Proposal) -> Committed:
        try:
            return proposal.outcome()
        except HeldError as held:
            if not self.took_from_the_dead(proposal, held):
                raise
        return self.submit(proposal)

    def took_from_the_dead(self, proposal: Proposal, held: HeldError) -> bool:
        """Returns True if the lease that blocked a commit belonged to a dead owner, and was taken:
        the proposal may be submitted again."""
        if proposal.epoch is not None or self._backend.alive(held.holder):
            return False
        assert proposal.no is not None
        # The epoch grows with it: if the owner was only paused, it is fenced (I4).
        self._backend.lease(proposal.no, held.branch, None, over=held.held)
        proposal.anew()
        return True

    def _wait(self, proposal: Proposal, here: FrameType) -> None:
        """Waits until it is settled; leads if nobody else does any more."""
        pause_s = LOOK_FIRST_S
        # The proposal is in the queue: the current leader looks there before it leaves.
        led = self._lead.take_if_left(here)
        while not proposal.settled:
            if led:
                self._lead_on()
                continue
            if proposal.wait(pause_s):
                led = _is_open(proposal) and self._lead.try_take(here)
            else:
                led = self._lead.take_if_left(here)
                self._lead.refuse_within(here)
                pause_s = min(2 * pause_s, LOOK_MAX_S)

    def _see_off(self, proposal: Proposal, here: FrameType) -> None:
        """Settles the proposal of an interrupted caller, which is told nothing: it is withdrawn, so
        that it cannot get in later, or awaited if it is under way."""
        if self._lead.is_held_by(here):
            proposal.withdrawn = True
            self._lead_on()
        elif not self.withdraw(proposal):
            while not proposal.settled:
                if self._lead.take_if_left(here):
                    self._lead_on()
                else:
                    proposal.wait(LOOK_MAX_S)

    def _leave(self, here: FrameType) -> None:
        """Ends the call's lead; open proposals still need a leader."""
        self._lead.give_back(here)
        if (self._queue or self._batch) and not self._lead.held:
            self._pass_on()

    def submit_soon(self, proposal: Proposal, done: Callable[[], None]) -> None:
        """Queues a commit for the next transaction, and returns at once.

        Args:
            done: called on the leading thread when the proposal is settled; must be quick, must not
                raise. Not called for a withdrawn proposal.

        Raises:
            StoreUnavailable: the store is closed.
        """
        proposal.call_when_settled(done)
        if self._closed:
            raise StoreUnavailable(
                "the store is closed",
                target=f"agent {proposal.draft.agent!r}",
                hint="open it again",
            )
        try:
            self._queue.append(proposal)
            if not self._lead.held:
                self._summon()
        except BaseException:
            self.withdraw(proposal)
            raise

    def look_after(self) -> None:
        """Called regularly by waits in an event loop: makes sure that somebody leads. The last
        leader may have been interrupted before it passed the lead on."""
        if (self._queue or self._batch) and (not self._lead.held or self._lead.is_left):
            self._summon()

    def has(self, proposal: Proposal) -> bool:
        """True if it is queued or under way: its submitter will be told."""
        # A leader names its batch before it empties the queue: so it is seen in one of them.
        return proposal in self._queue or proposal in self._batch

    def withdraw(self, proposal: Proposal) -> bool:
        """Takes a queued proposal back; returns False if a batch has, or had, it already."""
        if proposal.settled:
            return False
        # A leader names its batch first and then looks for this mark; here the order is reversed.
        # So at least one of the two sees the other; if both do, the leader drops the proposal.
        proposal.withdrawn = True
        if proposal in self._batch:
            return False
        with suppress(ValueError):
            self._queue.remove(proposal)
        return True

    def close(self) -> None:
        """Commits what is queued, and ends the thread. Later `submit_soon` are refused."""
        self._closed = True
        if not self._servants.any_begun or not self._lead.take(_getframe(), CLOSE_MAX_S):
            return
        try:
            while self._queue:
                self._lead_on()
        finally:
            self._leave(_getframe())
        self._summons.put(None)
        self._servants.join(CLOSE_MAX_S)

    def _summon(self) -> None:
        """Lets our own thread lead; it is started when first needed."""
        if not self._servants.any_lives:
            self._make_thread()
        self._summons.put(self)

    def _make_thread(self) -> None:
        with self._making:
            if self._servants.any_lives:
                return
            summons = self._summons
            # The thread holds no committer between batches: it ends when its committer is no longer
            # referenced.
            weakref.finalize(self, summons.put, None)
            self._servants.begin(_serve, summons, weakref.ref(self))

    def _succeed(self) -> None:
        """Replaces the calling thread, which ends, by another one."""
        self._servants.leave()
        if self._queue or self._batch:
            self._summon()

    def _pass_on(self) -> None:
        """Lets one of the open proposals' threads lead."""
        for proposal in (*self._batch, *self._queue):
            if proposal.waited_for and not proposal.settled and not proposal.withdrawn:
                proposal.wake()  # it must wake anyway: it finds itself unsettled, and leads
                return
        self._summon()

    def lead(self) -> None:
        """For our own thread: commits what is queued, unless somebody else is leading."""
        try:
            if self._lead.take_if_left(_getframe()):
                try:
                    self._lead_on()
                except Exception as error:  # it lasts: of these nobody knows more
                    self._fail_open(error)
        finally:
            try:
                self._leave(_getframe())
            except BaseException:
                self._leave(_getframe())
                raise

    def lead_again(self) -> None:
        """For our own thread, which failed to lead: makes sure that somebody sees to the open
        proposals."""
        if (self._queue or self._batch) and not self._lead.held:
            time.sleep(AGAIN_S)  # it may last
            self._summon()

    def _lead_on(self) -> None:
        """Commits everything queued, in one batch. If interrupted, finishes first."""
        try:
            self._commit_queued()
        except _BACKENDS as error:  # its word, for all of them
            self._ends.clear()
            came_first = not self._batch
            self._fail_open(error)
            if came_first:
                raise
        except BaseException:
            self._ends.clear()
            # If an interrupt ends this, too, the next leader finds the batch as it is.
            try:
                self._commit_queued()
            except Exception as error:  # it lasts: it would meet whoever leads next, for ever
                self._fail_open(error)
            raise

    def _fail_open(self, error: Exception) -> None:
        for proposal in self._batch:
            if not proposal.settled:
                proposal.error = error if isinstance(error, PerdureError) else _unknown(error)
            proposal.wake()
        self._batch = []

    def _commit_queued(self) -> None:
        if len(self._ends.tails) > log_ends.KEPT:
            self._ends.clear()
        batch = list(self._queue)
        if self._batch:  # it is a leader's who was interrupted
            batch = list(dict.fromkeys((*self._batch, *batch)))
        self._batch, interrupted = batch, self._batch
        for proposal in batch:
            try:  # noqa: SIM105  (a context manager for each commit is dear)
                self._queue.remove(proposal)
            except ValueError:  # withdrawn at this moment
                pass
        still_open = batch
        if interrupted:  # of what is new, nobody has settled any
            self._take_up([one for one in batch if one.linked is not None and not one.settled])
            still_open = [one for one in batch if not one.settled]
        left: list[Proposal] = []
        for proposal in still_open:
            if proposal.withdrawn:
                proposal.error = WithdrawnError()
            else:
                left.append(proposal)
        if left:
            self._commit(left)
        for proposal in batch:
            proposal.wake()
        self._batch = []

    def _take_up(self, sent: list[Proposal]) -> None:
        """Settles what an interrupted leader may have sent. If it is not in, a server may still be
        writing it. So the same appends are sent again, to the same places in the log: at most one
        of the two gets in, and no third one is linked before that is known."""
        sent = [proposal for proposal in sent if not self._landed(proposal)]
        appends = [proposal.linked for proposal in sent if proposal.linked is not None]
        if not appends:
            return
        for proposal, outcome in zip(sent, self._backend.append(appends), strict=True):
            if isinstance(outcome, Refused) and self._landed(proposal):
                continue
            if isinstance(outcome, Refused):
                proposal.linked = None  # another one has the place: it is linked anew
            else:
                self._settle(proposal, outcome)

    def _commit(self, waiting: list[Proposal]) -> None:
        for _ in range(ROUNDS_MAX):
            now = self._backend.now()
            ends: dict[int | tuple[str, int], LogTail] = {}
            linked: list[Proposal] = []
            appends: list[Append] = []
            for proposal in waiting:
                # Linked to its log's end, or to the one of the same log before it in the batch.
                try:
                    draft, no = proposal.draft, proposal.no
                    log = no if no is not None else (draft.agent, draft.incarnation)
                    tail = self._ends.tails.get(no) or self._ends.find(proposal)
                    if draft.parent_id and draft.parent_id != tail.id:
                        tail = self._ends.behind_parent(proposal, tail)
                    append = proposal.link(ends.get(log) or tail, now)
                except Exception as error:  # its own: the others of the batch go on
                    proposal.error = error
                    continue
                ends[log] = proposal.end
                linked.append(proposal)
                appends.append(append)
            waiting = []
            outcomes = self._backend.append(appends) if appends else ()
            for proposal, outcome in zip(linked, outcomes, strict=True):
                if isinstance(outcome, Appended):
                    self._ends.tails[outcome.no] = proposal.end
                    if outcome.no in self._ends.heads:
                        self._ends.heads[outcome.no][proposal.draft.branch] = proposal.end.id
                    proposal.landed(outcome.no)
                elif not self._settle(proposal, outcome):
                    waiting.append(proposal)
            if not waiting:
                return
        for proposal in waiting:
            proposal.error = StoreUnavailable(
                "could not get a commit in between those of others",
                target=f"agent {proposal.draft.agent!r}",
                hint="make the call again",
            )

    def _settle(self, proposal: Proposal, outcome: Outcome) -> bool:
        """Notes an outcome; returns False if the proposal must be linked and tried again."""
        if isinstance(outcome, Appended):
            self._ends.tails[outcome.no] = proposal.end
            proposal.landed(outcome.no)
            return True
        self._ends.forget(proposal.no)
        if not isinstance(outcome, Refused):
            proposal.error = outcome
        elif outcome.why == "stale":
            return False
        elif outcome.why == "leaves":  # retention removed some: the next one writes them anew
            proposal.snapshot = None
            return False
        else:  # those behind it in the batch were linked to it: they find themselves stale
            proposal.refused = outcome
        return True

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
        proposal.landed(no)
        return True


def _serve(summons: queue.SimpleQueue[Committer | None], owner: weakref.ref[Committer]) -> None:
    """The committer's thread: leads when asked, until None comes."""
    try:
        while (committer := summons.get()) is not None:
            try:
                committer.lead()
            except Exception:  # nobody waits for it; but it may have come before it led at all
                committer.lead_again()
            committer = None
        summons.put(None)  # for the next
    except BaseException:  # it ends the thread: another one does what this was summoned for
        if (committer := owner()) is not None:
            committer._succeed()
        raise


def _unknown(error: Exception) -> StoreUnavailable:
    unknown = StoreUnavailable(
        f"the commit may or may not have happened: {type(error).__name__}: {error}",
        hint="look at the agent's log, or make the same call with an idempotency key",
        outcome="unknown",
    )
    unknown.__cause__ = error
    return unknown


def _is_open(proposal: Proposal) -> bool:
    return not proposal.settled
