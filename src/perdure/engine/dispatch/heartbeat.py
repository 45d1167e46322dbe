"""The heartbeat of one executor: one row and one thread, however many runs it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

from msgspec import Struct, field
from msgspec.structs import astuple

from perdure.errors import NotFound, PerdureError, StoreUnavailable
from perdure.model import Lease
from perdure.state.context import Context
from perdure.storage.answers import Served
from perdure.storage.appending import Ref
from perdure.storage.log.refusals import HeldError
from perdure.storage.looks import Look
from perdure.system import logs, process_id
from perdure.system.flag import Flag
from perdure.system.locks import Lock
from perdure.system.threads import Servants

LEASE_TTL = timedelta(seconds=10)
"""The time after its last heartbeat for which an executor counts as alive, if its lock does not
tell."""


_log = logs.logger("perdure.engine")


class Claim(Struct, eq=False):
    """The claim of one execution to a lease that it has, or is about to take.

    Attributes:
        no: the agent's number; None: it is created along with the lease.
        epoch: None until known.
        taken: True once it is known to have the lease.
        released: True once the lease is given back.
        pid: the process that has it: a forked child has no claims.
        is_left: returns True if its call has ended, and was interrupted before it gave the lease
            back.
    """

    agent: str
    no: int | None
    branch: str
    epoch: int | None = None
    taken: bool = False
    released: bool = False
    pid: int = field(default_factory=lambda: process_id.pid)
    is_left: Callable[[], bool] | None = None


class Heartbeat:
    """Says that this executor lives, from its first run until the store is closed.

    The thread is its own, so that a busy agent function cannot make its owner look dead.
    """

    def __init__(self, context: Context, ttl: timedelta = LEASE_TTL) -> None:
        self._context = context
        self._ttl_ms = round(ttl / timedelta(milliseconds=1))
        self.begin_anew()
        process_id.renew_in_children(self)
        self._stop = Flag()
        self._servants = Servants("perdure-heartbeat")
        self._executor = ""
        self._serving: Counter[Served] = Counter()
        self._serves: Sequence[Served] = ()

    def begin_anew(self) -> None:
        """Starts afresh in a forked child: its parent's leases and activities are not its own."""
        self._owed: list[Claim] = []
        self._claims: set[Claim] = set()
        self._claims_lock = Lock()
        self._owed_lock = Lock()
        self._lock = Lock()

    def start(self) -> None:
        """Be alive; returns once that is durable."""
        with self._lock:
            if self._is_beating:
                return
            self._executor = self._context.executor
            self._say(self._executor)
            self._stop.set()  # whatever began before, and was interrupted
            self._stop = Flag()
            self._servants.begin(self._beat, self._executor, self._stop)

    @property
    def _is_beating(self) -> bool:
        """True if the heartbeat runs. An executor without one would silently lose its leases; in a
        forked child there is none."""
        return (
            self._servants.any_lives
            and not self._stop.is_set()
            and self._executor == self._context.executor
        )

    def _beat(self, executor: str, stop: Flag) -> None:
        while True:
            try:
                if stop.wait(self._ttl_ms / 3000):
                    return
                self._say(executor)
                self._release_left()
                self.settle()
            except Exception as error:  # a moment's MemoryError, too: nobody would make another
                # Not fatal here: if it lasts, others take over, and our appends are fenced.
                _warn("heartbeat: %s", error)

    def _say(self, executor: str) -> None:
        self._context.backend.heartbeat(executor, self._ttl_ms, self._serves)

    def serve(self, served: Iterable[Served]) -> Callable[[], None]:
        """Be alive, and say that this executor runs these functions for others; returns once that
        is durable.

        Returns:
            What ends it. That is said in time: it may be a little late, or fail.

        Raises:
            StoreUnavailable: nothing is said.
        """
        names = Counter(served)
        self._count(self._serving + names)
        try:
            self.start()
            self._say(self._executor)
        except PerdureError:
            self._count(self._serving - names)
            raise
        return lambda: self._end_serving(names)

    def _count(self, serving: Counter[Served]) -> None:
        serves = sorted(serving, key=astuple)
        with self._lock:
            self._serving, self._serves = serving, serves

    def _end_serving(self, names: Counter[Served]) -> None:
        self._count(self._serving - names)
        with self._lock:
            if not self._is_beating:
                return
            try:
                self._say(self._executor)
            except PerdureError as error:
                _warn("heartbeat: %s", error)

    def beat(self, more: timedelta) -> None:
        """Live for so much longer than usual, before a test's clock is moved by that."""
        with self._lock:
            if self._is_beating:
                more_ms = round(more / timedelta(milliseconds=1))
                ttl_ms = self._ttl_ms + more_ms
                self._context.backend.heartbeat(self._executor, ttl_ms, self._serves)

    def take(self, claim: Claim, look: Look) -> int:
        """Takes the lease; from a dead owner if need be, and from this process where it leaked:
        where it was left in the middle of taking it, nobody here knows of it.

        Args:
            look: sees what there is under it.

        Returns:
            The epoch.

        Raises:
            HeldError: a living executor has it.
        """
        no = claim.no
        assert no is not None
        with self._claims_lock:
            try:
                lease = self._context.take_lease(no, claim.branch, look)
            except HeldError as held:
                if held.holder != self._context.executor or self._claimed(
                    claim.agent, no, claim.branch, held.held
                ):
                    raise
                answer = look.lease(no, claim.branch, held.holder, over=held.held)
                if not isinstance(answer, Lease):
                    raise
                lease = answer
            self._claims.add(claim)
            claim.epoch, claim.taken = lease.epoch, True
            return lease.epoch

    def claim(self, claim: Claim) -> None:
        """Notes a claim before a commit that takes the lease under its epoch: threads of this
        process that see it taken must not think that it leaked."""
        with self._claims_lock:
            self._claims.add(claim)

    def took(self, claim: Claim, no: int) -> None:
        """The commit is in."""
        claim.no, claim.taken = no, True

    def unclaim(self, claim: Claim) -> None:
        """The commit was refused: the lease was not taken."""
        with self._claims_lock:
            self._claims.discard(claim)

    def leaked(self, agent: str, no: int, ref: Ref) -> bool:
        """Returns True if the branch's lease is this process's, and no execution in it knows of
        it."""
        if ref.holder != self._context.executor:
            return False
        with self._claims_lock:
            return not self._claimed(agent, no, ref.name, ref.held)

    def _claimed(self, agent: str, no: int, branch: str, epoch: int | None) -> bool:
        for one in self._claims:
            if (
                one.epoch == epoch
                and one.branch == branch
                and (one.no == no if one.no is not None else one.agent == agent)
                and not (one.is_left is not None and one.is_left())
            ):
                return True
        return False

    def release(self, claim: Claim) -> None:
        """Gives a lease back, now or as soon as the store takes it: while this process lives nobody
        else could have the branch. Also one of which it is not known whether it was taken."""
        if claim.released or claim.pid != process_id.pid:
            return
        self.unclaim(claim)  # first: interrupted behind it, it is found as one that leaked
        with self._owed_lock:
            self._owed.append(claim)
        self.settle()

    def _release_left(self) -> None:
        """Releases the leases of calls that will never do so themselves: their event loop was
        broken off, for example. Other executors wait for as long as this one lives."""
        with self._claims_lock:
            left = [one for one in self._claims if one.is_left is not None and one.is_left()]
        for claim in left:
            self.release(claim)

    def released(self, claim: Claim) -> None:
        """Notes that a commit gave the lease back, along with its content."""
        claim.released = True
        self.unclaim(claim)

    def settle(self) -> None:
        """Gives back the leases that could not be given back before."""
        with self._owed_lock:
            for _ in range(len(self._owed)):
                claim = self._owed[0]
                try:
                    self._give_back(claim)
                except NotFound:
                    pass  # its agent was deleted and purged: there is no lease any more
                except PerdureError as error:
                    _warn("giving back the lease of %s: %s", claim.branch, error)
                    if isinstance(error, StoreUnavailable):
                        return
                    self._owed.append(claim)  # the others need not wait for it
                self._owed.pop(0)

    def _give_back(self, claim: Claim) -> None:
        backend, no = self._context.backend, claim.no
        if claim.taken and no is not None:
            backend.lease(no, claim.branch, None, release=claim.epoch)
            return
        if no is None:
            info = backend.agent(claim.agent)
            if info is None:
                return
            no = info.no
        ref = backend.ref(no, claim.branch)
        if ref is not None and ref.held is not None and self.leaked(claim.agent, no, ref):
            backend.lease(no, claim.branch, None, release=ref.held)

    def stop(self) -> None:
        """Ends the heartbeat; a standby may take over at once. If interrupted, it may be called
        again."""
        with self._lock:
            if self._executor != self._context.executor:
                return
            self._stop.set()
            self._servants.join()
            try:
                self._context.backend.heartbeat(self._executor, None)
            except PerdureError as error:
                _warn("ending the executor: %s", error)
            self._executor = ""  # last: what was interrupted is gone on with by the next call


def _warn(text: str, *parts: object) -> None:
    _log.warning(text, *parts)
