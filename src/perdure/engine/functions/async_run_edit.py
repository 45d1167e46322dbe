"""The block of `AsyncRun.edit`."""

from __future__ import annotations

import asyncio
import time
from typing import Generic, TypeVar

from perdure.engine.execution.async_call import cancels
from perdure.engine.execution.current_run import RunFrame, inside
from perdure.engine.execution.execution import Execution
from perdure.engine.execution.handover import CancelledCall
from perdure.engine.execution.run_edits import OpenEdit
from perdure.engine.journal.cancellations import Heard, alone, as_told, told_of
from perdure.engine.journal.entry import Entry
from perdure.engine.journal.failures import CallCancelled
from perdure.errors import SchemaError
from perdure.model import Cause
from perdure.state.event_loop.delayed_cancel import Told

T = TypeVar("T")


class AsyncRunEdit(Generic[T]):
    """The context manager of `AsyncRun.edit`."""

    def __init__(self, execution: Execution[T], cause: Cause) -> None:
        self._execution = execution
        self._cause = cause
        self._open: OpenEdit
        self._told: Told | None = None
        """On replay: its task was cancelled, before it was its turn."""

    async def __aenter__(self) -> T:
        with self._execution.async_performer.stopping:
            try:
                return await self._enter()
            except asyncio.CancelledError as cancelled:
                error = alone(cancelled)
            raise error

    async def _enter(self) -> T:
        execution = self._execution
        performer = execution.async_performer
        name = f"edit:{self._cause.what}"
        scope = performer.check_place(name)
        entry = execution.find_edit(name, scope)
        while True:
            try:
                await performer.wait_for_turn(entry, scope, name, told=self._told)
                if entry is None:
                    await performer.let_calls_end()
                with performer.resting():  # only who has it, a task of the run, lets it go on
                    await performer.edit_lock.acquire()
                break
            except asyncio.CancelledError as cancelled:
                if entry is not None and not entry.unbegun and performer.goes_on:
                    self._is_told(cancelled)  # it was later: in the block, or behind it
                    continue
                ended_at = entry.seq if entry is not None else None
                execution.journal.take_values(scope.path, ended_at)
                if entry is not None:
                    await performer.cancelled_before_turn(entry, scope, name, cancelled)
                if execution.interrupted is None:
                    place, since = execution.new_place(name, scope), time.monotonic()
                    await performer.cancelled_first(CancelledCall(place, "edit", since), cancelled)
                raise
            except BaseException:
                if entry is not None:
                    execution.turns.release(entry)
                raise
        if entry is not None and entry.unbegun:
            performer.edit_lock.release()
            execution.journal.take_values(scope.path, entry.seq)
            await performer.cancelled_again(entry)
        try:
            self._open = execution.edits.open(name, scope, entry, self._cause)
        except BaseException:
            performer.edit_lock.release()
            raise
        self._since = time.monotonic()
        self._inside = inside(RunFrame(execution, "edit", scope))
        self._inside.__enter__()
        outcome = entry.outcome if entry is not None else None
        if self._told is not None and outcome is not None and outcome.cancelled:
            cancel_once_more(as_told(outcome, Told(self._told.first)))
            if not self._told.several:
                self._told = None
        return self._open.recording.draft  # type: ignore[no-any-return]

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with self._execution.async_performer.stopping:
            try:
                await self._exit(error)
                return
            except asyncio.CancelledError as cancelled:
                left = alone(cancelled)
            raise left

    def _is_cancelled_behind(self, recorded: Entry) -> bool:
        """Returns True if its task was cancelled while the failure of its block was being
        recorded."""
        cancelled, outcome = recorded.cancelled or self._told is not None, recorded.outcome
        failed = outcome is not None and outcome.error is not None
        return cancelled and failed and not (outcome and outcome.cancelled)

    def _is_told(self, cancelled: asyncio.CancelledError) -> Told:
        """Notes the cancellation of its task, on replay."""
        if self._told is None:
            self._told = Told(cancelled)
        self._told.again(cancelled)
        return self._told

    def _check_behind(self, recorded: Entry, cancelled: asyncio.CancelledError) -> None:
        """
        Raises:
            CancelledError: its task was cancelled in the block, and once more behind it.
        """
        if self._told is not None or recorded.told is not recorded.call:
            raise as_told(recorded.told, self._told or Told(cancelled))

    def _leave_recorded(self, recorded: Entry, cancelled: asyncio.CancelledError) -> None:
        """Leaves a recorded edit whose task was cancelled after the commit, before it heard of
        that."""
        execution = self._execution
        if recorded.call.error is None:
            execution.edits.close(self._open, self._cause, None)
        execution.turns.release(recorded)
        if not recorded.cancelled and execution.async_performer.goes_on:
            performer = execution.async_performer
            call = CancelledCall(recorded.place, "edit", self._since)
            performer.note_cancelled(call, cancelled)

    async def _exit(self, error: BaseException | None) -> None:
        self._inside.__exit__(None, None, None)
        execution = self._execution
        cancelled, heard = None, None
        if isinstance(error, asyncio.CancelledError) and execution.interrupted is None:
            # The task was, and not the run: another one may go on.
            cancelled, heard = error, Heard("edit", told_of(error, several=_often()))
            error = CallCancelled("its task was cancelled in the block", target=self._open.place)
        performer, recorded = execution.async_performer, self._open.recorded
        try:
            if recorded is not None and (error is None or self._is_cancelled_behind(recorded)):
                try:
                    await performer.hand_over(None, recorded.place, recorded.shows)
                    if self._told is not None:
                        raise self._told.error
                    if recorded.cancelled:
                        await performer.cancelled_again(recorded)
                except asyncio.CancelledError as latest:
                    self._leave_recorded(recorded, latest)
                    raise as_told(recorded.told, self._is_told(latest)) from None
            item = execution.edits.close(self._open, self._cause, error, heard)
            if recorded is not None and cancelled is not None:
                self._check_behind(recorded, cancelled)
            if recorded is not None or (error is not None and not isinstance(error, Exception)):
                return
            try:
                execution.check()
                await performer.hand_over(item, self._open.place, heard=heard)
            except SchemaError as refused:
                failed, again = execution.edits.refused(self._open, refused)
                await performer.hand_over(failed, self._open.place)
                if again is not refused:
                    raise again from refused
                raise
            except asyncio.CancelledError as unseen:  # it is in, and the function does not see that
                if execution.interrupted is not None:
                    raise execution.interrupted from None
                if heard is None:
                    call = CancelledCall(self._open.place, "edit", self._since)
                    performer.note_cancelled(call, unseen)
                raise
        finally:
            performer.edit_lock.release()


def _often() -> bool:
    """Returns True if this task was cancelled more than once."""
    return cancels(asyncio.current_task()) > 1


def cancel_once_more(cancelled: asyncio.CancelledError) -> None:
    """This task was cancelled, and that was kept from it: where it awaits something next, it is."""
    task = asyncio.current_task()
    assert task is not None
    task.uncancel()
    task.cancel(*cancelled.args[:1])
