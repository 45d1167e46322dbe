"""The one write path: links commits to the log's end and shares transactions between writers.

A lone caller commits on its own thread with no hop. While one commits, others queue; the first of
them then leads, with all that have come, in one transaction and one fsync; each still succeeds or
fails alone. Who cannot wait in a thread, as coroutines, hands a commit over with `submit_soon`; a
thread of the committer leads where no waiting caller does.
"""

from __future__ import annotations

import queue
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from sys import _getframe
from types import FrameType

from perdure.core.format import chain
from perdure.core.format.chain import START, Tail
from perdure.errors import Corrupt, PerdureError, StoreUnavailable, UnsupportedFormat
from perdure.storage.appending import Append, Appended, Outcome, Refused
from perdure.storage.capabilities import Backend
from perdure.storage.log.proposals import Committed, Proposal
from perdure.system import process_id
from perdure.system.locks import LOOK_FIRST_S, LOOK_MAX_S, Lock
from perdure.system.threads import Servants

TAILS_KEPT = 4096
"""Logs whose ends are remembered, for some 400 bytes each; another one's is one look away."""

ROUNDS_MAX = 1000
"""Relinks of one commit before giving up. Each means that somebody else's commit got in."""

CLOSE_MAX_S = 60
"""How long closing waits for what is queued; a disk that hangs must not hang it for ever."""


AGAIN_S = 0.01
"""How long our own thread rests where it could not even begin to lead."""


class WithdrawnError(PerdureError):
    """Whoever wanted it committed does not any more; nothing was written."""

    def __init__(self) -> None:
        super().__init__("was withdrawn", hint="make the call again")


class Committer:
    """See the module. One per open store.

    Who leads holds `_lead`, which names the call that does (`system.locks`): no exception leaves it
    behind. A proposal stays in the queue or the batch until it is settled. So whoever leads next
    finds all that is open, also what a leader who was interrupted had under way: that has its
    place, and is looked up in the log before it is written, for it may be in.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._closed = False
        self.begin_anew()
        process_id.renew_in_children(self)

    def begin_anew(self) -> None:
        """In a forked child: the threads that led or waited are not there."""
        self._lead, self._making = Lock(), Lock()
        self._queue: deque[Proposal] = deque()
        self._batch: list[Proposal] = []
        self._tails: dict[int | None, Tail] = {}
        self._servants = Servants("perdure-committer")
        self._summons: queue.SimpleQueue[Committer | None] = queue.SimpleQueue()

    def submit(self, proposal: Proposal) -> Committed:
        """Commit, and return when that is durable as far as was asked.

        Raises:
            Conflict, Fenced, NotFound: nothing was written.
            StoreUnavailable: its outcome says whether it may have been.
            BaseException: an interrupt; the proposal is withdrawn before, or its batch awaited.
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
        return proposal.committed or proposal.outcome()

    def _wait(self, proposal: Proposal, here: FrameType) -> None:
        """Until it is settled; lead, where nobody does any more."""
        pause_s = LOOK_FIRST_S
        # It is in the queue: whoever leads until now looks there when he leaves.
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
        """Its caller was interrupted, and is told nothing: it must not get in later. Where it is
        under way, it is seen home."""
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
        """The call does not lead any more; those who are open still need somebody who does."""
        self._lead.give_back(here)
        if (self._queue or self._batch) and not self._lead.held:
            self._pass_on()

    def submit_soon(self, proposal: Proposal, done: Callable[[], None]) -> None:
        """Queue a commit for the next transaction, and return at once.

        Args:
            done: called from the thread that leads when the proposal is settled; must be quick,
                must not raise. Not called for one that was withdrawn.

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
        """For who waits in an event loop, every now and then: see to it that somebody leads. Who
        was at it may have been interrupted before he passed that on."""
        if (self._queue or self._batch) and (not self._lead.held or self._lead.is_left):
            self._summon()

    def has(self, proposal: Proposal) -> bool:
        """Whether it is queued or under way: whoever handed it over will hear of it."""
        # A leader names its batch before it empties the queue: so it is seen in one of them.
        return proposal in self._queue or proposal in self._batch

    def withdraw(self, proposal: Proposal) -> bool:
        """Take a queued proposal back; False if a batch has it already, or had."""
        if proposal.settled:
            return False
        # A leader names its batch first and looks for this mark then; here it is the other way
        # round. So one of the two sees the other, if not both: then the leader drops it.
        proposal.withdrawn = True
        if proposal in self._batch:
            return False
        with suppress(ValueError):
            self._queue.remove(proposal)
        return True

    def close(self) -> None:
        """Commit what is queued, and end the thread. Later `submit_soon` are refused."""
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
        """Let our own thread lead; made when it is first needed."""
        if not self._servants.any_lives:
            self._make_thread()
        self._summons.put(self)

    def _make_thread(self) -> None:
        with self._making:
            if self._servants.any_lives:
                return
            summons = self._summons
            # The thread holds no committer between batches: one that nobody has goes, with it.
            weakref.finalize(self, summons.put, None)
            self._servants.begin(_serve, summons, weakref.ref(self))

    def _succeed(self) -> None:
        """Another thread than the calling one, which ends."""
        self._servants.leave()
        if self._queue or self._batch:
            self._summon()

    def _pass_on(self) -> None:
        """Let one of those who are open lead."""
        for proposal in (*self._batch, *self._queue):
            if proposal.waited_for and not proposal.settled and not proposal.withdrawn:
                proposal.wake()  # it must wake anyway: it finds itself unsettled, and leads
                return
        self._summon()

    def lead(self) -> None:
        """For our own thread: commit what is queued, unless somebody is at it."""
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
        """For our own thread, which could not: somebody must see to those who are open."""
        if (self._queue or self._batch) and not self._lead.held:
            time.sleep(AGAIN_S)  # it may last
            self._summon()

    def _lead_on(self) -> None:
        """Commit all that is queued, in one batch. Interrupted, see it through before."""
        try:
            self._commit_queued()
        except PerdureError as error:  # the backend's word, for all of them
            self._tails.clear()
            self._fail_open(error)
        except BaseException:
            self._tails.clear()
            # Where an interrupt ends this, too, the next leader finds the batch as it is.
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
        if len(self._tails) > TAILS_KEPT:
            self._tails.clear()
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
        """What an interrupted leader may have sent. Where it is not in, a server may be at it, or
        have yet to hear of it. So the very same is sent once more, to the same place in the log:
        of the two, one gets in at most, and no third one is linked before that is known."""
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
            ends: dict[int | tuple[str, int], Tail] = {}
            linked: list[Proposal] = []
            appends: list[Append] = []
            for proposal in waiting:
                # Linked to its log's end, or to the one of the same log before it in the batch.
                try:
                    draft, no = proposal.draft, proposal.no
                    log = no if no is not None else (draft.agent, draft.incarnation)
                    tail = ends.get(log) or self._tails.get(no) or self._tail(proposal)
                    append = proposal.link(tail, now)
                except Exception as error:  # its own: the others of the batch go on
                    proposal.error = error
                    continue
                ends[log] = proposal.end
                linked.append(proposal)
                appends.append(append)
            waiting = []
            outcomes = self._backend.append(appends) if appends else ()
            for proposal, outcome in zip(linked, outcomes, strict=True):
                if not self._settle(proposal, outcome):
                    waiting.append(proposal)
            if not waiting:
                return
        for proposal in waiting:
            proposal.error = StoreUnavailable(
                "could not get a commit in between those of others",
                target=f"agent {proposal.draft.agent!r}",
                hint="make the call again",
            )

    def _tail(self, proposal: Proposal) -> Tail:
        """The end of its log, where that is not known."""
        if proposal.no is None:
            return START
        last = self._backend.read(proposal.no, 0, 2**40, newest_first=True, limit=1)
        target = f"agent {proposal.draft.agent!r}"
        try:
            tail = chain.tail_of(last[0].header, target) if last else START
        except (Corrupt, UnsupportedFormat):
            # Its bytes are what the next one links to, whatever they say.
            tail = Tail(last[0].seq, chain.commit_id(last[0].header), self._last_time(proposal.no))
        self._tails[proposal.no] = tail
        return tail

    def _last_time(self, no: int) -> int:
        """That of the last commit whose header says it; 0: none does."""
        last = 2**40
        while rows := self._backend.read(no, 0, last, newest_first=True, limit=32):
            for row in rows:
                with suppress(Corrupt, UnsupportedFormat):
                    return chain.tail_of(row.header, "").at
            last = rows[-1].seq - 1
        return 0

    def _settle(self, proposal: Proposal, outcome: Outcome) -> bool:
        """Note an outcome; False where the proposal must be linked and tried again."""
        if isinstance(outcome, Appended):
            self._tails[outcome.no] = proposal.end
            proposal.landed(outcome.no)
            return True
        self._tails.pop(proposal.no, None)
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
    """The committer's thread: leads when it is asked to, until None comes."""
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
