"""The one write path: links commits to the log's end and shares transactions between writers.

A lone caller commits on its own thread with no hop. While one commits, others queue; the first of
them then leads, with all that have come, in one transaction and one fsync; each still succeeds or
fails alone. Who cannot wait in a thread, as coroutines, hands a commit over with `submit_soon`; a
thread of the committer leads where no waiting caller does.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import weakref
from collections.abc import Callable

from perdure.core import chain
from perdure.core.chain import START, Tail
from perdure.errors import Corrupt, StoreUnavailable
from perdure.storage.port import Append, Appended, Backend, Outcome, Refused
from perdure.storage.proposals import Committed, Proposal

TAILS_KEPT = 4096
"""Logs whose ends are remembered, for some 400 bytes each; another one's is one look away."""

ROUNDS_MAX = 1000
"""Relinks of one commit before giving up. Each means that somebody else's commit got in."""

CLOSE_MAX_S = 60
"""How long closing waits for what is queued; a disk that hangs must not hang it for ever."""


class Committer:
    """See the module. One per open store."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._closed = False
        self._begin()
        weak = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _begin_anew(weak()))

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._queue: list[Proposal] = []
        self._busy = False
        self._tails: dict[tuple[str, int], Tail] = {}
        self._thread: threading.Thread | None = None
        self._summons: queue.SimpleQueue[Committer | None] = queue.SimpleQueue()
        self._idle: threading.Event | None = None

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
        if leads:
            self._lead()
        else:
            self._wait(proposal)
            if not proposal.settled:
                self._lead()
        return proposal.committed or proposal.outcome()

    def _wait(self, proposal: Proposal) -> None:
        """Wait to be committed, or to lead.

        Raises:
            BaseException: an interrupt; the proposal is withdrawn before, or its batch awaited,
                and those that it would have led go on without it.
        """
        try:
            proposal.wait()
        except BaseException:
            if not self.withdraw(proposal) and not proposal.settled:
                proposal.wait()  # a running batch has it: what it asked for is being done
            raise

    def submit_soon(self, proposal: Proposal, done: Callable[[], None]) -> None:
        """Queue a commit for the next transaction, and return at once.

        Args:
            done: called once, from the thread that leads, when the proposal is settled; must be
                quick, must not raise. Not called for one that was withdrawn.

        Raises:
            StoreUnavailable: the store is closed.
        """
        proposal.call_when_settled(done)
        with self._lock:
            if self._closed:
                raise StoreUnavailable(
                    "the store is closed", target=f"agent {proposal.draft.agent!r}",
                    hint="open it again",
                )  # fmt: skip
            self._queue.append(proposal)
            if not self._busy:
                self._busy = True
                self._summon()

    def withdraw(self, proposal: Proposal) -> bool:
        """Take a queued proposal back; False if a batch has it already, or had."""
        with self._lock:
            if proposal not in self._queue:
                return False
            self._queue.remove(proposal)
            if proposal.waited_for and proposal.woken:  # it was to lead
                self._pass_on()
        return True

    def close(self) -> None:
        """Commit what is queued, and end the thread. Later `submit_soon` are refused."""
        with self._lock:
            self._closed = True
            thread = self._thread
            if thread is None:
                return
            idle = self._idle = self._idle or threading.Event()
            if not self._busy:
                idle.set()
        if idle.wait(CLOSE_MAX_S):
            self._summons.put(None)
            thread.join()

    def _summon(self) -> None:
        """With the lock held: let our own thread lead; made when it is first needed."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=_serve, args=(self._summons,), name="perdure-committer", daemon=True
            )
            # The thread holds no committer between batches: one that nobody has goes, with it.
            weakref.finalize(self, self._summons.put, None)
            self._thread.start()
        self._summons.put(self)

    def _pass_on(self) -> None:
        """With the lock held: let the next one lead, or nobody."""
        if not self._queue:
            self._busy = False
            if self._idle is not None:
                self._idle.set()
            return
        waited_for = [proposal for proposal in self._queue if proposal.waited_for]
        if self._idle is not None and len(waited_for) == len(self._queue):
            self._idle.set()  # our thread has nothing to do any more
        if waited_for:
            waited_for[0].wake()  # it must wake anyway: it finds itself unsettled, and leads
        else:
            self._summon()

    def _lead(self) -> None:
        """Commit all that wait, this thread's own among them, then pass the lead on."""
        with self._lock:
            batch, self._queue = self._queue, []
        interrupt: BaseException | None = None
        try:
            if batch:  # else all that waited were withdrawn
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
            waiting, linked = self._link_all(waiting)
            if not waiting:
                return
            outcomes = self._backend.append(linked)
            left: list[Proposal] = []
            for proposal, outcome in zip(waiting, outcomes, strict=True):
                if not self._settle(proposal, outcome):
                    left.append(proposal)
            if not left:
                return
            waiting = left
        for proposal in waiting:
            proposal.error = StoreUnavailable(
                "could not get a commit in between those of others",
                target=f"agent {proposal.draft.agent!r}",
                hint="make the call again",
            )

    def _link_all(self, waiting: list[Proposal]) -> tuple[list[Proposal], list[Append]]:
        """Link each to its log's end, or to the one of the same log before it in the batch."""
        now = self._backend.now()
        ends: dict[tuple[str, int], Tail] = {}
        linked: list[Proposal] = []
        appends: list[Append] = []
        for proposal in waiting:
            try:
                log = proposal.log
                known = ends.get(log) or (proposal.no is not None and self._tails.get(log))
                tail = known or self._tail(proposal)
                append = proposal.link(tail, now)
            except Exception as error:  # its own: the others of the batch go on
                proposal.error = error
                continue
            ends[log] = proposal.end
            linked.append(proposal)
            appends.append(append)
        return linked, appends

    def _tail(self, proposal: Proposal) -> Tail:
        """The end of its log, where that is not known."""
        if proposal.no is None:
            return START
        last = self._backend.read(proposal.no, 0, 2**40, newest_first=True, limit=1)
        target = f"agent {proposal.draft.agent!r}"
        try:
            tail = chain.tail_of(last[0].header, target) if last else START
        except Corrupt:  # its bytes are what the next one links to, whatever they say
            tail = Tail(last[0].seq, chain.commit_id(last[0].header), self._last_time(proposal.no))
        self._remember(proposal.log, tail)
        return tail

    def _last_time(self, no: int) -> int:
        """That of the last commit whose header says it; 0: none does."""
        last = 2**40
        while rows := self._backend.read(no, 0, last, newest_first=True, limit=32):
            for row in rows:
                with contextlib.suppress(Corrupt):
                    return chain.tail_of(row.header, "").at
            last = rows[-1].seq - 1
        return 0

    def _remember(self, log: tuple[str, int], tail: Tail) -> None:
        if len(self._tails) >= TAILS_KEPT and log not in self._tails:
            self._tails.clear()
        self._tails[log] = tail

    def _settle(self, proposal: Proposal, outcome: Outcome) -> bool:
        """Note an outcome; False where the proposal must be linked and tried again."""
        if isinstance(outcome, Appended):
            self._remember(proposal.log, proposal.end)
            proposal.landed(outcome.no)
            return True
        self._tails.pop(proposal.log, None)
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
        proposal.landed(no)
        return True


def _serve(summons: queue.SimpleQueue[Committer | None]) -> None:
    """The committer's thread: leads when it is asked to, until None comes."""
    while (committer := summons.get()) is not None:
        # What interrupts a leader is its own: here nobody waits for it, and all are settled.
        with contextlib.suppress(BaseException):
            committer._lead()
        del committer


def _begin_anew(committer: Committer | None) -> None:
    """In a forked child: the threads that led or waited are not there."""
    if committer is not None:
        committer._begin()
