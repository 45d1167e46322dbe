"""Checkpoints and moves of its branch by a run: planned and committed while no edit is open."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import UNSET, convert
from msgspec.structs import replace

from perdure.core.format.records import Outcome
from perdure.core.undo.undo_plan import RunChanges
from perdure.engine.execution.commit_items import Item
from perdure.engine.execution.run_position import RunPosition
from perdure.engine.journal.effects import Change, Changed, RecordEffect
from perdure.engine.journal.failures import as_replayed, error_record
from perdure.errors import (
    Conflict,
    NotFound,
    PerdureError,
    RunInterrupted,
    SchemaError,
    TimedOut,
)
from perdure.model import Cause, Checkpoint, Message
from perdure.state.checkpoints import record_of
from perdure.state.run_moves import (
    PlannedMove,
    planning_back,
    planning_point,
    planning_rollback,
)
from perdure.state.working_copy import Flow, drive, drive_async
from perdure.storage.appending import Riders
from perdure.storage.log.proposals import Committed

if TYPE_CHECKING:
    import asyncio

    from perdure.engine.execution.async_call import Calling
    from perdure.engine.execution.run_writer import NewWait


class Settles(Protocol):
    """The performer on a thread, as a change needs it."""

    def settle(self, item: Item | None, place: str) -> None: ...


class HandsOver(Protocol):
    """The performer in an event loop, as a change needs it."""

    edit_lock: asyncio.Lock
    new_wait: NewWait

    def resting(self) -> AbstractContextManager[None]: ...

    async def hand_over(self, item: Item | None, place: str) -> None: ...


REFUSALS = (Conflict, NotFound, SchemaError)
"""Errors of a plan, or of its commit, that are outcomes: the function may catch them, and go on."""


class Attempt:
    """One change: its item to commit, and what came of it."""

    def __init__(self, execution: RunPosition[Any], effect: Change) -> None:
        self._execution = execution
        self._effect = effect
        self._outcome = Outcome(t="move", run=execution.id, place=effect.place)
        self._made: Committed | None = None
        self._error: Exception | None = None

    def item(self, planned: PlannedMove) -> Item:
        """Returns what commits it.

        Raises:
            RunInterrupted: the run was interrupted in the meantime.
        """
        execution = self._execution
        execution.check()
        self._outcome = replace(self._outcome, value=planned.value)
        cause = replace(planned.cause, run=execution.id, step=self._effect.place)

        def committing(along: Riders) -> Flow[Committed]:
            self._made = yield from planned.committing(execution.working, cause, along)
            if (point := planned.riders.checkpoint) is not None:
                execution.journal.surroundings.note(record_of(point))
            return self._made

        return Item(cause, Riders((self._outcome,)), change=committing)

    def refused(self, error: Exception) -> Item | None:
        """Returns what must be committed for a refusal, if anything; see `Edits`."""
        execution, place = self._execution, self._effect.place
        failure = error_record(error)
        self._error = as_replayed(error, failure, f"run {execution.id}, {place}")
        self._outcome = replace(self._outcome, value=UNSET, error=failure)
        cause = Cause("move", run=execution.id, step=place)
        return execution.soon(cause, Riders((self._outcome,)))

    @property
    def settled(self) -> RecordEffect:
        """The record, as a call notes it that is cancelled while it is made."""
        return RecordEffect(Riders((self._outcome,)))

    @property
    def changed(self) -> Changed:
        commit = self._made.read() if self._made is not None else None
        return Changed(self._outcome, commit, self._error)


def record_named(execution: RunPosition[Any], effect: RecordEffect, item: Item) -> None:
    """Records something on this thread, along with a name for the state before it."""
    with execution.alone():
        try:
            point = drive(execution.context, _planning(execution, effect))
        except PerdureError as error:
            raise _passed_on(execution, error) from error
        execution.check()
        execution.writer.write(_with_point(item, point))


async def record_named_in_loop(
    performer: HandsOver, execution: RunPosition[Any], effect: RecordEffect, item: Item
) -> None:
    """Records something in a task, along with a name for the state before it."""
    with performer.resting():
        await performer.edit_lock.acquire()
    try:
        try:
            point = await drive_async(execution.context, _planning(execution, effect))
        except PerdureError as error:
            raise _passed_on(execution, error) from error
        execution.check()
        await execution.writer.write_async(_with_point(item, point), performer.new_wait)
    finally:
        performer.edit_lock.release()


def _planning(execution: RunPosition[Any], effect: RecordEffect) -> Flow[Checkpoint]:
    place = effect.last.place
    return planning_point(execution.working, effect.point, None, (), execution.id, place)


def _with_point(item: Item, point: Checkpoint) -> Item:
    """Returns the item with a checkpoint of its own commit, whose state is the one before."""
    riders = item.riders
    records = [record_of(point), *riders.records]
    return Item(item.cause, replace(riders, records=records, checkpoint=point))


def carry_out(execution: RunPosition[Any], message: Message) -> None:
    """Moves the branch as others asked, at a boundary, while no edit is open: a commit between
    those of the run, which its function meets like one of others. What is refused is answered."""
    execution.seeing.catch_up()
    asked: Any = message.value if type(message.value) is dict else {}
    record = Outcome(t="move", run=execution.id, place="", key=message.key)
    execution.mail.take([message.no])
    consumed = (message.no,)
    try:
        planned = drive(execution.context, _plan_of(execution, asked))
        record = replace(record, value=planned.value)
        riders = Riders((record,), consumed=consumed)
        cause = replace(planned.cause, run=execution.id)

        def committing(along: Riders) -> Flow[Committed]:
            return planned.committing(execution.working, cause, along)

        execution.writer.write(Item(cause, riders, change=committing))
    except (*REFUSALS, TimedOut) as error:
        answer = replace(record, value=UNSET, error=error_record(error))
        refused = Riders((answer,), consumed=consumed)
        execution.writer.write(Item(Cause("move", run=execution.id), refused))
    except PerdureError as error:
        raise _passed_on(execution, error) from error


def _plan_of(execution: RunPosition[Any], asked: Mapping[str, Any]) -> Flow[PlannedMove]:
    """
    Raises:
        TimedOut: it was asked for too long ago.
    """
    working, kind, until = execution.working, asked.get("kind"), asked.get("until")
    if type(until) is not int or execution.now() >= until:
        raise TimedOut("the run came to no boundary in time", target=f"run {execution.id}")
    if kind == "rollback":
        to = int(asked["to"])
        return planning_rollback(working, str(asked.get("what", to)), lambda: to)
    of = convert(asked["of"], RunChanges) if "of" in asked else None
    return planning_back(working, "redo" if kind == "redo" else "undo", of)


def _passed_on(execution: RunPosition[Any], error: PerdureError) -> RunInterrupted:
    """Leaves the function, so that the run is resumed: what cannot be read is no outcome."""
    return execution.interrupt(error)


def change(performer: Settles, execution: RunPosition[Any], effect: Change) -> Changed:
    """Performs a change on this thread."""
    attempt = Attempt(execution, effect)
    with execution.alone():
        try:
            planned = drive(execution.context, effect.plan())
            performer.settle(attempt.item(planned), effect.place)
        except REFUSALS as error:
            performer.settle(attempt.refused(error), effect.place)
        except PerdureError as error:
            raise _passed_on(execution, error) from error
    return attempt.changed


async def change_in_loop(
    performer: HandsOver, execution: RunPosition[Any], effect: Change, calling: Calling
) -> Changed:
    """Performs a change in a task; the log is read on a thread of the store's."""
    attempt = Attempt(execution, effect)
    with performer.resting():  # only who has it, a task of the run, lets it go on
        await performer.edit_lock.acquire()
    try:
        try:
            planned = await drive_async(execution.context, effect.plan())
            item: Item | None = attempt.item(planned)
            calling.settled = attempt.settled
            await performer.hand_over(item, effect.place)
        except REFUSALS as error:
            item = attempt.refused(error)
            calling.settled = attempt.settled
            await performer.hand_over(item, effect.place)
        except PerdureError as error:
            raise _passed_on(execution, error) from error
    finally:
        performer.edit_lock.release()
    return attempt.changed
