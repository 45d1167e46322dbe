"""`with agent.edit(…) as draft`: one block, one commit, once for each idempotency key."""

from __future__ import annotations

from functools import partial
from sys import _getframe
from typing import Any, Generic, TypeVar

from msgspec import Struct

from perdure.core.arguments.bounds import index_key
from perdure.core.arguments.not_entered import ToEnter
from perdure.core.draft.draft import Recording
from perdure.errors import Conflict
from perdure.model import Cause, Commit
from perdure.state.working_copy import Flow, WorkingCopy, drive
from perdure.storage.appending import NOTHING, Riders
from perdure.storage.keys import find_key
from perdure.storage.log.proposals import Committed, asked
from perdure.storage.log.reader import LogReader
from perdure.system.locks import End, Holder, ends_block, holder_of_block, is_over, span_of

T = TypeVar("T")

LOCK_MAX_S = 60
"""The time that an edit waits for another one of the same handle to end."""


class Block(Struct, Generic[T], eq=False):
    """The begin and the end of a block of `edit`, without its locks.

    Attributes:
        made: the commit that it made, or that its key made before.
    """

    _working: WorkingCopy[T]
    _cause: Cause
    _declared: tuple[object, ...] = ()
    made: Commit | Committed | None = None
    _recording: Recording | None = None
    _throwaway: bool = False

    @property
    def begun(self) -> bool:
        return self._recording is not None

    def begin(self, *, reads: bool = True) -> T:
        """Returns the draft; reads the log, unless the head is known to be as it was."""
        working = self._working
        if reads:
            working.refresh()
        if reads and self._cause.key is not None:
            self.made = used_key(working, self._cause, self._declared)
            self._throwaway = self.made is not None
        self._recording = working.throwaway() if self._throwaway else working.record()
        working.editing = True
        return self._recording.draft  # type: ignore[no-any-return]

    @property
    def untouched(self) -> bool:
        """True if the draft is as it was given out."""
        return self._recording is None or not self._recording.done

    @property
    def state(self) -> T:
        """The state before the edit; it must not be changed."""
        return self._working.typed

    @property
    def place(self) -> tuple[int, str] | None:
        """The agent's number and the branch, if their head is all that has to be read and may not
        have moved: see `begin_at`. None if more has to be read."""
        working = self._working
        known = working.in_memory and working.known and working.seq
        if not known or working.editing or working.migration_due or self._cause.key is not None:
            return None
        return working.reader.no, working.branch

    def begin_at(self, head: int) -> T | None:
        """Returns the draft like `begin`, without reading, given the head that was just found at
        `place`; None where it has moved."""
        return self.begin(reads=False) if head == self._working.seq else None

    def abandon(self) -> None:
        """Ends a block that raised: nothing is committed."""
        recording = self._close()
        if not self._throwaway:
            self._working.restore(recording)

    def ending(self) -> Flow[None]:
        """Ends the block: validates and commits."""
        recording, working = self._close(), self._working
        if self._throwaway:
            return
        cause, riders = self._cause, NOTHING
        if cause.key is not None:
            riders = key_riders(cause, self._declared)
        if riders.key is None and not recording.changed and working.seq:
            given = recording.ephemeral
            working.restore(recording)
            recording.check_handed_out()
            recording.apply_ephemeral(working.typed, given)
            return
        self.made = yield from working.committing_recording(recording, cause, riders)

    def _close(self) -> Recording:
        recording = self._recording
        assert recording is not None
        self._working.editing = False
        self._working.edit_lost = None
        recording.close()
        return recording

    @property
    def commit(self) -> Commit | None:
        made = self.made
        return made.read() if isinstance(made, Committed) else made


class Edit(ToEnter, Generic[T]):
    """The context manager that `edit` returns. `commit` is the commit that it made, once the block
    ended."""

    __slots__ = ("_block", "_end", "_holder", "_working")

    _entered = "with agent.edit(…) as draft: draft.x = 1"

    def __init__(
        self, working: WorkingCopy[T], cause: Cause, declared: tuple[object, ...] = ()
    ) -> None:
        self._end: End | None = None
        self._working = working
        self._block = Block(working, cause, declared)

    def __enter__(self) -> T:
        working = self._working
        frame = holder_of_block(_getframe(1))
        self._holder: Holder = span_of(self, frame) or frame
        holder = self._holder
        if not working.lock.take(_getframe(), LOCK_MAX_S):
            raise Conflict(
                "another thread has an edit of this handle open",
                target=f"agent {working.name!r}",
                hint="open a handle per thread: store.agent(…)",
            )
        try:
            if working.editing:
                working.refuse_inside_edit()
            working.edit_lost = partial(is_over, holder)
            draft = self._block.begin()
            working.lock.pass_on(_getframe(), holder)
            return draft
        except BaseException:
            if self._block.begun:
                self._block.abandon()
            if not working.editing:
                working.edit_lost = None
            working.lock.give_back(_getframe())
            working.lock.give_back(holder)
            raise

    @ends_block
    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        lock = self._working.lock
        lock.pass_on(self._holder, _getframe())
        try:
            if kind is not None:
                self._block.abandon()
            else:
                drive(self._working.context, self._block.ending())
        finally:
            lock.give_back(_getframe())
            del self._holder  # the frame of a caller who may hold this edit: no cycle is left

    @property
    def commit(self) -> Commit | None:
        """The commit that the block made; the recorded one if its key was used before; None if
        nothing changed."""
        return self._block.commit


def key_riders(cause: Cause, declared: tuple[object, ...]) -> Riders:
    if cause.key is None:
        return NOTHING
    return Riders(key=(index_key(cause.key), asked(cause.what, *declared)))


def used_key(
    working: WorkingCopy[Any], cause: Cause, declared: tuple[object, ...] = ()
) -> Commit | None:
    """Returns the commit that an idempotency key made before; None if there is none.

    Raises:
        Conflict: the key was used for something else, or on a branch that this one does not come
            from: what was done there was not done here.
    """
    if cause.key is None:
        return None
    reader = working.reader_if_created()
    if reader is None:
        return None
    found = find_key(working.context.backend, reader.no, cause.key)
    if found is None:
        return None
    seq, before = found
    if before != asked(cause.what, *declared):
        raise Conflict(
            f"the idempotency key {cause.key!r} was used for something else, at commit {seq}",
            target=f"agent {working.name!r}",
            hint="a key names one command: repeat it with the same words, or use another key",
        )
    commit = reader.commit(seq)
    if commit.branch != working.branch and not _is_past(reader, working.branch, seq):
        raise Conflict(
            f"the idempotency key {cause.key!r} was used on branch {commit.branch!r}, at commit "
            f"{seq}, which is not in the past of this one",
            target=f"agent {working.name!r}, branch {working.branch!r}",
            hint="a key belongs to the agent, on all of its branches: use another one here, say "
            f"{working.branch + ':' + cause.key!r}",
        )
    return commit


def _is_past(reader: LogReader, branch: str, seq: int) -> bool:
    """True if a commit is in a branch's past."""
    ancestors = reader.ancestors(reader.ref(branch).seq, damaged="all")
    return next((one.seq for one in ancestors if one.seq <= seq), 0) == seq
