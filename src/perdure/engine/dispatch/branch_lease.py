"""Holding a branch for one execution of a run: its lease, taken alone or with the run's first
commit, and given back.

An interrupt may come before the lease is given back, or end a coroutine while a thread still takes
it. So a claim can be asked whether the call that has it goes on (`Claim.is_left`), and a lease that
is taken when its call has ended is given back at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from perdure.engine.dispatch.heartbeat import Claim, Heartbeat
from perdure.errors import Conflict, Fenced, NotFound, PerdureError
from perdure.model import Cause
from perdure.state.creation import create_along
from perdure.state.working_copy import WorkingCopy
from perdure.storage.appending import Riders
from perdure.storage.log.proposals import Committed
from perdure.storage.looks import Look
from perdure.system.backoff import chances


class BranchLease:
    """See the module. For one thread at a time; `release` may come from another one.

    Attributes:
        is_left: whether the call that it is for has ended, as that call said when it began.
    """

    def __init__(self, liveness: Heartbeat, working: WorkingCopy[Any], look: Look) -> None:
        self._liveness = liveness
        self._working = working
        self._look = look
        self._claim: Claim | None = None
        self._over = False
        self.is_left: Callable[[], bool] | None = None

    def take(self) -> None:
        """Takes the lease of an agent that is there. The look and the state are then as they are
        under the lease.

        Raises:
            HeldError: a living executor has the lease.
        """
        working = self._working
        working.reader.ref(working.branch)  # or there is nothing to take; its state is read then
        claim = self._new_claim(working.reader.no)
        working.epoch = self._liveness.take(claim, self._look)
        self._check_wanted(claim)
        working.refresh()

    def _new_claim(self, no: int | None, epoch: int | None = None) -> Claim:
        working = self._working
        claim = self._claim = Claim(working.name, no, working.branch, epoch, is_left=self.is_left)
        return claim

    def _check_wanted(self, claim: Claim) -> None:
        """Checks, after the taking, that the lease is still wanted. `release` marks the end before
        it looks at claims, and here it is the other way round: one of the two sees the other."""
        if self._over:
            self._liveness.release(claim)
            raise PerdureError("its caller has ended", target=f"agent {self._working.name!r}")

    def create_with(self, begin: Callable[[], tuple[Cause, Riders]]) -> Committed | None:
        """Takes the lease with the commit with which the run begins and the agent is created, if it
        is not there: the agent is never created alone. Its run may have been deleted at this
        moment, and it with that; nobody would know that it is there again.

        Args:
            begin: asked before each try, which follows a look; raises where the run is not to begin
                any more.

        Returns:
            The commit; None if the agent is there.

        Raises:
            Conflict: others keep being first, and yet the agent is not there.
        """
        for _ in chances():
            if self._working.reader_if_created() is not None:
                return None
            self._look.again()
            made = self.take_with(*begin())
            if made is not None:
                return made
        raise Conflict(
            "others keep writing to what the run begins with",
            target=f"agent {self._working.name!r}",
            hint="call it again",
        )

    def take_with(self, cause: Cause, riders: Riders) -> Committed | None:
        """Takes the lease with a commit, and creates the agent with both if it is not there: in one
        transaction, on condition that the branch has not changed since the look.

        Returns:
            The commit; None if nothing is written, and the lease not taken: another executor has
            it, or wrote to the branch since; or something must be written first.

        Raises:
            StoreUnavailable: the lease may be taken; `release` finds out.
        """
        epoch = self._epoch_to_take()
        if epoch is None:
            return None
        working, context = self._working, self._working.context
        reader = working.reader_if_created()
        claim = self._new_claim(reader.no if reader else None, epoch)
        self._liveness.claim(claim)
        # At "sync", whatever the store's setting: a lease lost in a crash could be given to another
        # executor under the same epoch (I4).
        riders = replace(riders, holder=context.executor, sync=True)
        try:
            made = self._commit(cause, riders, epoch)
        except (Conflict, Fenced, NotFound):
            self._claim, working.epoch = None, None
            self._liveness.unclaim(claim)
            if reader is None:
                self._look.forget()
                working.reopen_if_created_meanwhile()
            return None
        self._liveness.took(claim, made.no)
        self._check_wanted(claim)
        return made

    def _epoch_to_take(self) -> int | None:
        """Returns the epoch for the lease; None if it cannot be taken with a commit now."""
        working, look = self._working, self._look
        reader = working.reader_if_created()
        if reader is None:
            return 1
        if not look.of_one_moment:
            return None
        ref = look.ref(reader.no, working.branch)
        if ref is None or ref.deleted or ref.kind != "branch" or ref.held is not None:
            return None
        working.load()
        return ref.epoch + 1 if working.seq == ref.seq and not working.migration_due else None

    def _commit(self, cause: Cause, riders: Riders, epoch: int) -> Committed:
        working = self._working
        if working.known:
            working.epoch = epoch
            made = working.commit_delta([], cause, riders)
        else:
            created, made = create_along(working, cause, riders, epoch)
            working.epoch = epoch
            self._look.note(created.no, created.linked)
        return made

    def released(self) -> None:
        """The lease was given back with a commit."""
        if self._claim is not None:
            self._liveness.released(self._claim)

    def release(self) -> None:
        """Gives the lease back, however the run ended; it is not taken again."""
        self._over = True
        if self._claim is not None:
            self._liveness.release(self._claim)
            self._claim = None
        self.is_left = None  # it may know the frame that knows this: no circle is left behind
