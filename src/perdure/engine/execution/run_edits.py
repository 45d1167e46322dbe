"""Edits of a run: blocks that are replayed on a draft that is thrown away."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from perdure.core.draft.draft import Recording
from perdure.core.format.records import Outcome
from perdure.engine.execution.commit_items import Item
from perdure.engine.execution.run_position import RunPosition
from perdure.engine.journal.cancellations import Heard
from perdure.engine.journal.effects import Carried
from perdure.engine.journal.entry import Entry
from perdure.engine.journal.failures import CallCancelled, as_replayed, error_record, rebuild_error
from perdure.engine.journal.journal import changed
from perdure.engine.journal.scopes import Scope
from perdure.errors import Conflict, SchemaError
from perdure.model import Cause
from perdure.state.edit_block import LOCK_MAX_S
from perdure.state.run_view import copy_at
from perdure.storage.appending import Riders

if TYPE_CHECKING:
    from perdure.state.working_copy import WorkingCopy


class OpenEdit(Struct, frozen=True):
    """An edit whose block is running. `recorded`: what the journal has for it; None: it is new."""

    place: str
    recording: Recording
    recorded: Entry | None


class Edits:
    """See the module. One at a time: `lock` is for threads, tasks have one of their own."""

    def __init__(self, execution: RunPosition[Any]) -> None:
        self._execution = execution
        self._lock = threading.Lock()
        self._owner = 0
        self.place = ""
        """That of the edit that was opened last."""
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

    def release(self) -> None:
        self._owner, self._execution.edit_span = 0, None
        self._lock.release()

    def open(self, name: str, scope: Scope, entry: Entry | None) -> OpenEdit:
        """Opens an edit, when its turn has come; returns it with a draft."""
        execution, self.stands_on = self._execution, None
        if entry is None:
            execution.begins_edit(name)
            execution.check_stop()
            execution.seeing.catch_up()
            self.place = execution.new_place(name, scope)
            return OpenEdit(self.place, execution.working.record(), None)
        self.place = entry.place
        # Its body saw what others had written before it, and must see it again.
        seen = entry.outcome.at if entry.outcome is not None else None
        at = entry.seq - 1 if seen is None else int(seen)
        execution.seeing.catch_up(at)
        working = execution.working
        if working.seq > at:  # of what was recorded behind it, something came to its turn before
            working = self.stands_on = copy_at(working, at)
        return OpenEdit(entry.place, working.throwaway(), entry)

    def close(
        self,
        edit: OpenEdit,
        what: str,
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
            execution.working.restore(edit.recording)
            if not isinstance(error, own):
                return None
            # The function may catch it and go on: replay must find that it was here.
            return self._failed(edit.place, error_record(error), heard)
        record = Outcome(t="edit", run=execution.id, place=edit.place)
        cause = Cause("edit", what, run=execution.id, step=edit.place)
        return Item(cause, Riders((record,)), edit.recording)

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
