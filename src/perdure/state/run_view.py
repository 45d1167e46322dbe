"""The working copy of a run whose tasks see the log's content only when the run hears of it.

Between the commit of an edit and its hand-over other tasks run, and look at the state. A replay
shows them the same only if what they see follows from what was handed over, not from what is
committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sized
from typing import Any, TypeVar

from msgspec import Struct

from perdure.core.draft.draft import Recording
from perdure.core.format.chain import LogTail
from perdure.core.live.drift import Drift
from perdure.core.schema.schema import TypedPlan
from perdure.core.values.plain_values import Plain
from perdure.missing import MISSING
from perdure.model import Commit
from perdure.state.others_commits import MOVES
from perdure.state.working_copy import WorkingCopy
from perdure.storage.log.reader import Folded

T = TypeVar("T")


class _Ahead(Struct):
    """A commit that the tasks do not see yet.

    Attributes:
        before: seq of the one before it on the branch.
        commit: the commit in the log; None for an edit of this run, which was not read again.
        recording: the recording of such an edit.
        plan: its change of the live object `seen`; None: another object takes that one's place.
    """

    seq: int
    before: int
    commit: Commit | None = None
    recording: Recording | None = None
    seen: Any = MISSING
    plan: TypedPlan | None = None


class ViewedCopy(WorkingCopy[T]):
    """A working copy with two views. `typed` is the newest state, which drafts stand on; `seen` is
    what the run's tasks have. They are one object unless commits are `ahead`: the seen one is moved
    over these in place, for tasks that hold on to it.

    Not for two threads at once: callers take the execution's lock.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.lookers: Sized | None = None
        """Who may look: if there is one only, nobody does while an edit is on its way to it. None:
        that is not known."""
        self.ahead: deque[_Ahead] = deque()
        self._kept: _Ahead | None = None
        """The first that is ahead, if that is an edit whose change of the live object is prepared,
        and made when it is seen."""
        self._apart: WorkingCopy[T] | None = None
        """The seen copy, if more than one kept edit is ahead: it follows the log."""

    @property
    def seen(self) -> T:
        if not self.ahead:
            return self.typed
        return self._kept.seen if self._kept is not None else self._follower().typed

    @property
    def newest(self) -> int:
        """The last known `seq`; nothing is looked up."""
        return self._seq

    @property
    def in_memory(self) -> bool:
        # While commits are ahead, the newest object is built only when a draft is to stand on it.
        return super().in_memory or (self._plain is not MISSING and bool(self.ahead))

    def changed_outside(self, *, whole: bool = False) -> Drift | None:
        return None if self.ahead else super().changed_outside(whole=whole)

    def show(self, seq: int) -> None:
        """Moves what is seen on to the state of this commit, if it is not there yet."""
        while self.ahead and self.ahead[0].seq <= seq:
            self._show_next()

    def advance_unseen(self, commit: Commit) -> None:
        """Advances over a commit in place; the tasks see it at the next `show`."""
        if commit.delta or commit.cause.kind in MOVES:
            if self.ahead:
                self._follower()
            else:
                self._apart = copy_at(self, self._seq, self._live.value)
            self.ahead.append(_Ahead(commit.seq, self._seq, commit))
            self._live.drop()
        self.advance(commit, in_place=True)

    def rewind(self, folded: Folded) -> None:
        self.ahead.clear()
        self._kept = self._apart = None
        super().rewind(folded)

    def _land(self, end: LogTail, root: Plain, plan: TypedPlan | None) -> None:
        if plan is None or (not self.ahead and self.lookers is not None and len(self.lookers) < 2):
            WorkingCopy._land(self, end, root, plan)
            return
        recording = self._open if isinstance(self._open, Recording) else None
        ahead = _Ahead(end.seq, self._seq, recording=recording)
        if self.ahead:
            self._follower()  # the plan is one for the newest object, and not for what is seen
            self.ahead.append(ahead)
            WorkingCopy._land(self, end, root, plan)
            return
        ahead.seen, ahead.plan = self._live.value, plan
        self._kept = ahead
        self.ahead.append(ahead)
        self._live.drop()
        WorkingCopy._land(self, end, root, None)

    def _show_next(self) -> None:
        # While it is changed it belongs to nobody: after an exception in between it is read again
        # from the log.
        ahead = self.ahead[0]
        kept, self._kept = self._kept, None
        if kept is not None and kept.plan is not None and self._live.value is MISSING:
            value = kept.plan.apply()
            if ahead.recording is not None:
                ahead.recording.apply_ephemeral(value)
            self._live.rejoin(value)
            self.ahead.popleft()
            return
        apart, self._apart = self._apart, None
        if apart is None:
            apart = copy_at(self, ahead.before, kept.seen if kept is not None else MISSING)
        if apart.seq < ahead.seq:
            apart.advance(ahead.commit or self.reader.commit(ahead.seq), in_place=True)
        if ahead.recording is not None:
            ahead.recording.apply_ephemeral(apart._live.value)
        if len(self.ahead) > 1:
            self._apart = apart
        elif apart._live.value is not MISSING:
            self._live.rejoin(apart._live.value)
        self.ahead.popleft()

    def _follower(self) -> WorkingCopy[T]:
        """Returns what is seen, as a copy of its own."""
        if self._apart is None:
            kept = self._kept
            seen = kept.seen if kept is not None else MISSING
            self._apart = copy_at(self, self.ahead[0].before, seen)
        self._kept = None
        return self._apart


def copy_at(working: WorkingCopy[T], seq: int, live: Any = MISSING) -> WorkingCopy[T]:
    """Returns another copy of the branch, at an earlier commit, with this live object."""
    copy: WorkingCopy[T] = WorkingCopy(
        working.context,
        working.name,
        working.schema,
        working.branch,
        incarnation=working.reader.incarnation,
    )
    copy._adopt(working.reader.fold(seq))
    copy._live.value = live
    return copy
