"""Edits of a run: blocks that are replayed on a draft that is thrown away."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from perdure.core.draft.draft import Recording
from perdure.core.format.records import Outcome
from perdure.engine.execution.commit_items import Item
from perdure.engine.execution.run_position import RunPosition
from perdure.engine.journal.cancellations import Heard
from perdure.engine.journal.effects import Carried
from perdure.engine.journal.entry import Entry
from perdure.engine.journal.failures import CallCancelled, as_replayed, error_record, rebuild_error
from perdure.engine.journal.journal import changed
from perdure.engine.journal.run_log import lineage
from perdure.engine.journal.scopes import Scope
from perdure.errors import Conflict, NeedsAttention, SchemaError
from perdure.model import Cause
from perdure.state.edit_block import LOCK_MAX_S, key_riders, used_key
from perdure.state.run_view import copy_at
from perdure.storage.appending import Riders
from perdure.storage.keys import find_key
from perdure.storage.log.proposals import asked

if TYPE_CHECKING:
    from perdure.state.working_copy import WorkingCopy


Key = Literal["none", "new", "used", "left"]
"""The use of an edit's idempotency key. There is none; this edit is the first to use it;
another was, and nothing is committed again; or this run was, in a history that it left, or a fork
of it: the edit is made, and the key stays with the first one."""


class OpenEdit(Struct, frozen=True):
    """An edit whose block is running.

    Attributes:
        recorded: what the journal has for it; None: it is new.
        key: of a new one, the use of its idempotency key.
    """

    place: str
    recording: Recording
    recorded: Entry | None
    key: Key = "none"


class Edits:
    """See the module. One at a time: `lock` is for threads, tasks have one of their own."""

    def __init__(self, execution: RunPosition[Any]) -> None:
        self._execution = execution
        self._lock = threading.Lock()
        self._owner = 0
        self.place = ""
        """That of the edit that was opened last."""
        self.points: dict[str, int] = {}
        """The commits that the function had named as checkpoints, by its words for them."""
        self.stands_on: WorkingCopy[Any] | None = None
        """The base of a recorded edit's draft, where the run has gone on from there."""

    def acquire(self) -> None:
        """Waits for the edit of another thread to end.

        Raises:
            RunInterrupted: it is open on this very thread, in another task of an event loop; or for
                too long, as a block is that waits for a thread which wants to edit, too. The
                function may not go on: nothing in the log would take it the same way on replay.
        """
        here = threading.get_ident()
        if self._owner == here or not self._lock.acquire(timeout=LOCK_MAX_S):
            refused = Conflict(
                "another task of the run has an edit open",
                target=f"run {self._execution.id}",
                hint="await nothing inside the block, or make the function an async one: "
                "its edits wait for each other",
            )
            raise self._execution.interrupt(refused)
        self._owner = here

    def try_acquire(self) -> bool:
        """Returns True if no edit is open, and none is until `release`."""
        if self._owner == threading.get_ident() or not self._lock.acquire(blocking=False):
            return False
        self._owner = threading.get_ident()
        return True

    def release(self) -> None:
        self._owner, self._execution.edit_span = 0, None
        self._lock.release()

    def open(self, name: str, scope: Scope, entry: Entry | None, cause: Cause) -> OpenEdit:
        """Opens an edit, when its turn has come; returns it with a draft.

        Raises:
            RunInterrupted: its key was used for something else.
        """
        execution, self.stands_on = self._execution, None
        if entry is None:
            execution.begins_edit(name)
            execution.check_stop()
            execution.seeing.catch_up()
            self.place = execution.new_place(name, scope)
            working = execution.working
            key = "none" if cause.key is None else self._look_up(cause)
            draft = working.throwaway() if key == "used" else working.record()
            return OpenEdit(self.place, draft, None, key)
        self.place = entry.place
        # Its body saw what others had written before it, and must see it again.
        seen = entry.outcome.at if entry.outcome is not None else None
        at = entry.seq - 1 if seen is None else int(seen)
        execution.seeing.catch_up(at)
        working = execution.working
        if working.seq > at:  # of what was recorded behind it, something came to its turn before
            working = self.stands_on = copy_at(working, at)
        return OpenEdit(entry.place, working.throwaway(), entry)

    def _look_up(self, cause: Cause) -> Key:
        """Returns the use of an edit's idempotency key.

        Raises:
            RunInterrupted: it was used for something else; the run needs attention.
        """
        execution = self._execution
        working, backend = execution.working, execution.context.backend
        with execution.asking:
            found = find_key(backend, working.reader.no, cause.key or "")
            if found is None:
                return "new"
            first = working.reader.peek(found[0])
            if execution.journal.has_left(first):
                return "left"
            try:
                used_key(working, cause)
                return "used"
            except Conflict as refused:
                same, other = found[1] == asked(cause.what), first.cause.run
                if same and other and lineage(backend, other) & lineage(backend, execution.id):
                    return "left"
                stopped = NeedsAttention(
                    refused.problem, target=f"run {execution.id}", hint=refused.hint
                )
                raise execution.interrupt(stopped) from refused

    def close(
        self,
        edit: OpenEdit,
        cause: Cause,
        error: BaseException | None,
        heard: Heard | None = None,
        own: tuple[type[Exception], ...] = (Exception,),
    ) -> Item | None:
        """Ends the block; returns what must be committed for it, if anything.

        Args:
            heard: given if its task was cancelled in it; the error says so.
            own: the classes of errors that its code raises: others leave the run.
        """
        execution = self._execution
        edit.recording.close()
        if error is not None and not isinstance(error, own):
            execution.leaving.left(error, f"the block of {edit.place}")
        if edit.recorded is not None:
            try:
                execution.seeing.show(edit.recorded.shows)
                self._close_recorded(edit.recorded, error, own)
                if edit.recording.ephemeral:  # they are in no log: its body says them each time
                    edit.recording.apply_ephemeral(execution.working.seen)
            finally:
                execution.turns.release(edit.recorded)
            return None
        if error is not None:
            if edit.key != "used":
                execution.working.restore(edit.recording)
            if not isinstance(error, own):
                return None
            # The function may catch it and go on: replay must find that it was here.
            return self._failed(edit.place, error_record(error), heard)
        record = Outcome(t="edit", run=execution.id, place=edit.place)
        cause, riders = replace(cause, run=execution.id, step=edit.place), Riders((record,))
        if edit.key == "new":
            riders = replace(riders, key=key_riders(cause, ()).key)
        elif edit.key != "none":
            cause = replace(cause, key=None)  # of two commits it names the first
        if edit.key != "used":
            return Item(cause, riders, edit.recording)
        if edit.recording.ephemeral:
            edit.recording.apply_ephemeral(execution.working.seen)
        return Item(cause, riders)

    def refused(self, edit: OpenEdit, error: SchemaError) -> tuple[Item | None, Exception]:
        """Handles an edit that breaks the schema: returns what must be committed, if anything, and
        the error to raise."""
        failure = error_record(error)
        again = as_replayed(error, failure, f"run {self._execution.id}, {edit.place}")
        return self._failed(edit.place, failure), again

    def _failed(
        self, place: str, failure: Mapping[str, Any], heard: Heard | None = None
    ) -> Item | None:
        execution = self._execution
        record = Outcome(
            t="edit",
            run=execution.id,
            place=place,
            error=failure,
            at=execution.working.seq,
            cancelled=heard is not None,
            **({} if heard is None else heard.record),
        )
        return execution.soon(Cause("edit", run=execution.id, step=place), Riders((record,)))

    def _close_recorded(
        self, recorded: Entry, error: BaseException | None, own: tuple[type[Exception], ...]
    ) -> None:
        execution = self._execution
        failure = recorded.call.error
        if failure is not None:
            if error is None and not recorded.cancelled:
                raise Carried(rebuild_error(failure, f"run {execution.id}, {recorded.place}"))
        elif isinstance(error, CallCancelled):
            return
        elif isinstance(error, MemoryError | RecursionError):  # no word of what the code is
            raise execution.leaving.failed(error)
        elif isinstance(error, own):
            reason = changed(
                f"the block of {recorded.place} raises {error!r:.200}, where it had committed",
                execution.id,
            )
            reason.__cause__ = error
            raise execution.interrupt(reason)
