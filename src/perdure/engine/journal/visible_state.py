"""The state that a run builds on, and the state that its function sees: it advances with the
outcomes handed over.

A synchronous function sees an edit when that is in the log: none of its code runs before it hears
of that. In an asynchronous one other tasks run; see `ViewedCopy`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Sized
from threading import get_ident
from typing import Any

from perdure.engine.journal.leaving import TornError
from perdure.model import Commit
from perdure.state.run_view import ViewedCopy
from perdure.state.working_copy import WorkingCopy
from perdure.storage.log.reader import SEQ_END
from perdure.system.locks import ReentrantLock


class Seeing:
    """See the module. One per execution.

    Args:
        commits: those of the branch since the run's turn began, oldest first.
        lock: the execution's.
        run: its id.
    """

    def __init__(
        self, working: WorkingCopy[Any], commits: Sequence[Commit], lock: ReentrantLock, run: str
    ) -> None:
        seq = working.seq
        self.behind = [one for one in reversed(commits) if one.seq > seq]
        """The commits in the log that the run does not build on yet; the next one last."""
        self._working = working
        self._viewed = working if isinstance(working, ViewedCopy) else None
        if self._viewed is not None:
            self._viewed.show(SEQ_END)  # what an execution before left unseen
        self._lock = lock
        self.ahead: Collection[object] = () if self._viewed is None else self._viewed.ahead
        """Commits that are in the log, but not seen yet."""
        self._run, self._torn, self._home = run, False, 0
        self.has_looked = False
        """True if the function has had its state: it may change that, though it should not."""

    def tell_lookers(self, lookers: Sized) -> None:
        """Sets the function's tasks and other code that may look at the state concurrently. Their
        event loop runs on this thread."""
        self._home = get_ident()
        if self._viewed is not None:
            self._viewed.lookers = lookers

    @property
    def is_home(self) -> bool:
        """True unless this is a thread beside the event loop of the function: what such a thread
        hears of must not show the tasks what has not reached them yet."""
        return self._home in (0, get_ident())

    def catch_up(self, seq: int = SEQ_END) -> None:
        """Brings the state that the run builds on to where it was when this was recorded, or to the
        head."""
        if self.behind:
            self._go_on(seq, seen=self._viewed is None)

    def show(self, seq: int) -> None:
        """Brings it there, together with the state that the function sees."""
        viewed = self._viewed
        if self.ahead and viewed is not None:
            with self._lock:
                self._begin()
                viewed.show(seq)
                self._torn = False
        if self.behind:
            self._go_on(seq, seen=True)

    def showing(self, *, edit: bool) -> int:
        """Returns what an outcome shows that is handed over now, or was committed just now; see
        `Event`.

        Args:
            edit: True for an edit that is committed.
        """
        viewed = self._viewed
        if viewed is None or not viewed.ahead:
            return 0
        return viewed.newest if edit else viewed.newest - 1

    def _go_on(self, seq: int, *, seen: bool) -> None:
        working, viewed = self._working, self._viewed
        with self._lock:
            self._begin()
            while self.behind and self.behind[-1].seq <= seq:
                commit = self.behind[-1]
                if commit.seq <= working.seq:
                    pass  # it may have gone on meanwhile
                elif viewed is None or (seen and not viewed.ahead):
                    working.advance(commit, in_place=True)
                else:
                    viewed.advance_unseen(commit)
                    if seen:
                        viewed.show(commit.seq)
                self.behind.pop()  # behind it: where that was interrupted, it is found
            self._torn = False

    def _begin(self) -> None:
        """Begins a change, with the lock held; `_torn` until it has ended.

        Raises:
            TornError: an earlier change was not ended. The function may hold the object that was
                being changed, which is replaced by one read from the log: it may not continue.
        """
        if self._torn:
            raise TornError("a change of the state that its function sees", self._run)
        self._torn = True
