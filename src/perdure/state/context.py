"""What everything that reads and writes one open store shares."""

from __future__ import annotations

import os

from perdure.errors import Conflict
from perdure.model import Lease
from perdure.state.policy import SnapshotPolicy
from perdure.storage.committer import Committed, Committer, HeldError, Proposal
from perdure.storage.port import Backend


class Context:
    """One open store: its backend, committer, snapshot policy, and who we are in its logs."""

    def __init__(self, backend: Backend, committer: Committer, snapshots: SnapshotPolicy) -> None:
        self.backend = backend
        self.committer = committer
        self.snapshots = snapshots
        self._executor = ""
        self._pid = 0

    @property
    def executor(self) -> str:
        """The id of this opening in this process: unique per start, in every header it writes."""
        if self._pid != os.getpid():  # a forked child is somebody else
            self._pid = os.getpid()
            self._executor = os.urandom(6).hex()
        return self._executor

    def submit(self, proposal: Proposal) -> Committed:
        """Commit; a lease whose owner is dead or expired does not stand in the way of writers.

        Raises:
            As `Committer.submit`.
        """
        try:
            return self.committer.submit(proposal)
        except HeldError as held:
            if proposal.epoch is not None or self.backend.alive(held.holder):
                raise
            assert proposal.no is not None
            branch = proposal.drop_branch or proposal.draft.branch
            # The epoch grows with it: if the owner was only paused, it is fenced (I4).
            self.backend.lease(proposal.no, branch, None, over=held.held)
        proposal.refused = None
        return self.committer.submit(proposal)

    def take_lease(self, no: int, branch: str) -> Lease:
        """Take a branch's lease, from a dead owner if need be.

        Raises:
            Conflict: a living executor holds it.
        """
        over: int | None = None
        for _ in range(3):
            answer = self.backend.lease(no, branch, self.executor, over=over)
            if isinstance(answer, Lease):
                return answer
            if answer.held is not None and self.backend.alive(answer.holder or ""):
                raise HeldError(
                    f"executor {answer.holder} is running on it", target=f"branch {branch!r}",
                    hint="stand by until it ends", holder=answer.holder or "?", held=answer.held,
                )  # fmt: skip
            over = answer.held
        raise Conflict("its lease changes hands too fast", target=f"branch {branch!r}")
