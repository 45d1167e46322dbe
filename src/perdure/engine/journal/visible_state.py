"""What a run builds on, and what its function sees: the state goes on with what is handed over.

A synchronous function sees an edit when that is in the log: nothing of it goes on before it is told
so. Of an asynchronous one, other tasks do; see `ViewedCopy`.
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
        """What is in the log, and the run does not build on yet; the next one last."""
        self._working = working
        self._viewed = working if isinstance(working, ViewedCopy) else None
        if self._viewed is not None:
            self._viewed.show(SEQ_END)  # what an execution before left unseen
        self._lock = lock
        self.ahead: Collection[object] = () if self._viewed is None else self._viewed.ahead
        """Commits that are in the log, but not seen yet."""
        self._run, self._torn, self._home = run, False, 0

    def tell_lookers(self, lookers: Sized) -> None:
        """Those of the function, which may look at the state side by side: its tasks, and more.
        Their event loop runs on this thread."""
        self._home = get_ident()
        if self._viewed is not None:
            self._viewed.lookers = lookers

    @property
    def is_home(self) -> bool:
        """Whether this is no thread beside the event loop of the function: what such a one hears
        of must not show the tasks what is on its way to them, and not with them yet."""
        return self._home in (0, get_ident())

    def catch_up(self, seq: int = SEQ_END) -> None:
        """Bring what the run builds on to where it was when this was recorded, or to the head."""
        if self.behind:
            self._go_on(seq, seen=self._viewed is None)

    def show(self, seq: int) -> None:
        """Bring it there, and what the function sees along with it."""
        viewed = self._viewed
        if self.ahead and viewed is not None:
            with self._lock:
                self._begin()
                viewed.show(seq)
                self._torn = False
        if self.behind:
            self._go_on(seq, seen=True)

    def showing(self, *, edit: bool) -> int:
        """For what is handed over now, or was committed just now: what it shows, as of an `Event`.

        Args:
            edit: whether it is an edit, and in.
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
        """With the lock held: something is about to change; `_torn` until it has.

        Raises:
            TornError: that was begun before, and not ended. The function may hold the object that
                was being changed, in whose place another is read from the log: it may not go on.
        """
        if self._torn:
            raise TornError("a change of the state that its function sees", self._run)
        self._torn = True
