"""The parts that all readers and writers of one open store share."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from perdure.core.format.rows import check_message
from perdure.core.schema.digest_keys import NO_KEYS, DigestKeys
from perdure.errors import Conflict, NotFound, StoreUnavailable
from perdure.model import Lease, Message
from perdure.state.checkpoint_policy import CheckpointPolicy
from perdure.state.guards import Guards
from perdure.state.snapshot_policy import SnapshotPolicy
from perdure.storage.appending import Refused
from perdure.storage.capabilities import Backend, Sent
from perdure.storage.log.committer import Committer
from perdure.storage.log.proposals import Committed, Proposal
from perdure.storage.log.refusals import HeldError
from perdure.storage.looks import Look
from perdure.system import process_id
from perdure.system.late_imports import loading
from perdure.system.locks import Lock

if TYPE_CHECKING:
    from perdure.state.event_loop.head_looks import Heads
    from perdure.state.event_loop.loop_waits import Threads

P = ParamSpec("P")
R = TypeVar("R")

THREADS_MAX = 8
"""Threads that read for coroutines, in each open store."""


class Context:
    """One open store: its backend, committer, snapshot policy, and its executor's id in the
    logs."""

    def __init__(self, backend: Backend, committer: Committer, snapshots: SnapshotPolicy) -> None:
        self.backend = backend
        self.committer = committer
        self.snapshots = snapshots
        self.checkpoints: CheckpointPolicy | None = None
        self.digest_keys: DigestKeys = NO_KEYS
        self.guards: Guards | None = None
        self._closed = False
        self.begin_anew()
        process_id.renew_in_children(self)

    def begin_anew(self) -> None:
        """Resets itself in a forked child, which is somebody else: the threads do not exist there,
        and nobody will release the lock."""
        self.executor = os.urandom(6).hex()
        """The id of this opening in this process: unique per start, in every header it writes."""
        self._lock = Lock()
        self._threads: Threads | None = None
        self._heads: Heads | None = None

    @property
    def closed(self) -> bool:
        return self._closed

    async def submit_async(self, proposal: Proposal) -> Committed:
        """Commits a proposal like `Committer.submit`, without holding a thread while it waits.

        On cancellation a queued commit is withdrawn; one that is under way is awaited first, and
        `proposal.committed` says whether it landed.
        """
        with loading:
            from perdure.state.event_loop.loop_waits import (
                commit,  # asyncio: for those only who have it anyway
            )

        while True:
            try:
                return await commit(self.committer, proposal)
            except HeldError as held:
                if not await self.in_thread(self.committer.took_from_the_dead, proposal, held):
                    raise

    def send(self, message: Message) -> Sent | Refused:
        """Puts a message into a run's inbox; see `Backend.send`.

        Raises:
            Unstorable: it could not be read again; nothing was put in.
        """
        check_message(message)
        return self.backend.send(message)

    async def in_thread(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls a blocking function on one of the store's threads, with the caller's contextvars.

        On cancellation a call that has begun is awaited first.

        Raises:
            StoreUnavailable: the store is closed.
        """
        return await self._own_threads().call(fn, *args, **kwargs)

    def soon(self, fn: Callable[[], None]) -> None:
        """Calls a blocking function, which must not raise, on one of the store's threads, without
        waiting for it; not at all if the store is closed first."""
        with suppress(StoreUnavailable):
            self._own_threads().start(fn, lambda: None)

    @property
    def heads(self) -> Heads:
        """The heads of branches, for coroutines.

        Raises:
            StoreUnavailable: the store is closed.
        """
        if self._heads is None:
            with loading:
                from perdure.state.event_loop.head_looks import Heads

            self._heads = Heads(self.backend, self._own_threads())
        return self._heads

    def _own_threads(self) -> Threads:
        if self._threads is not None:
            return self._threads
        with loading:
            from perdure.state.event_loop.loop_waits import Threads

        with self._lock:
            if self._closed:
                raise StoreUnavailable(
                    "the store is closed", target=self.backend.url, hint="open it again"
                )
            if self._threads is None:
                self._threads = Threads(THREADS_MAX)
            return self._threads

    def close(self) -> None:
        """Commits what is queued, ends the threads, closes the backend. Idempotent."""
        with self._lock:
            self._closed = True
        threads = self._threads
        self.committer.close()
        if threads is not None:
            threads.close()
        self.backend.close()

    def take_lease(self, no: int, branch: str, look: Look | None = None) -> Lease:
        """Takes a branch's lease, from a dead owner if need be.

        Args:
            look: renewed along with the lease.

        Raises:
            Conflict: a living executor holds it.
            NotFound: the branch was deleted.
        """
        over: int | None = None
        for _ in range(3):
            answer = (look or self.backend).lease(no, branch, self.executor, over=over)
            if isinstance(answer, Lease):
                return answer
            if answer.deleted:
                raise NotFound(
                    "was deleted",
                    target=f"branch {branch!r}",
                    hint="a late call cannot bring it back; open the agent again for the new one",
                )
            if answer.held is not None and self.backend.alive(answer.holder or ""):
                raise HeldError(
                    f"executor {answer.holder} is running on it",
                    target=f"branch {branch!r}",
                    hint="wait until it ends",
                    branch=branch,
                    holder=answer.holder or "?",
                    held=answer.held,
                )
            over = answer.held
        raise Conflict("its lease changes hands too fast", target=f"branch {branch!r}")
