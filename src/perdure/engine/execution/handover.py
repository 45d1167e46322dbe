"""The handover of outcomes to a run's function: each in its turn, one after the other.

See docs/decisions/0039-time-is-an-event-of-the-run.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator, Sized
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perdure.core.format.records import NOTHING, Cancelled, Record
from perdure.engine.execution.activity import Counting
from perdure.engine.execution.commit_items import Item
from perdure.engine.execution.event_pacing import Pace, PacedEvent
from perdure.engine.execution.loops import clock_of
from perdure.engine.execution.run_position import RunPosition
from perdure.engine.execution.run_tasks import RunTasks, ready_of
from perdure.engine.execution.run_timers import Timers
from perdure.engine.execution.run_writer import NewWait
from perdure.engine.execution.standstill import Rest, Standstill
from perdure.engine.journal import release_order
from perdure.engine.journal.cancellations import Heard, as_told, told_of
from perdure.engine.journal.effects import Arrive
from perdure.engine.journal.entry import Entry
from perdure.engine.journal.failures import CallCancelled, error_record
from perdure.engine.journal.journal import changed
from perdure.engine.journal.questions import left_open
from perdure.engine.journal.scopes import Scope
from perdure.errors import Conflict, PerdureError
from perdure.model import Cause
from perdure.state.event_loop.delayed_cancel import Deaf, Told
from perdure.state.event_loop.loop_waits import LoopWait, bell
from perdure.state.runs.unused_signals import renewed, signal_of
from perdure.storage.appending import Riders

OfWait = tuple[Record | None, Record | None]
"""The records of the begin of a wait, and of its end, as far as there are any."""

NO_WAIT: OfWait = (None, None)

DEFERRED_S = 0.02
"""The interval at which a task that begins nothing more checks whether the calls of others have
ended."""


class CancelledCall(Struct, frozen=True):
    """A call whose task was cancelled, so that the function does not see its outcome.

    Attributes:
        kind: as that of `Entry`.
        since: when it began, or was come to again, by `time.monotonic`.
        arrive: with which the function came to it; None: of an edit, or of one that is recorded.
    """

    place: str
    kind: str
    since: float
    arrive: Arrive | None = None
    wait: OfWait = NO_WAIT


class Lookers:
    """The tasks that may look at the state of an asynchronous function's run; its `len` is their
    number."""

    def __init__(self, tasks: RunTasks, timers: Timers, ready: Sized | None, home: int) -> None:
        self._tasks, self._scopes = tasks, tasks.scopes
        self._timers, self._ready, self._home = timers, ready, home

    def __len__(self) -> int:
        if threading.get_ident() != self._home:
            # A thread of the run's commits for all. The loop may be calling anything meanwhile.
            return len(self._scopes) + 1
        # Checked at each edit: usually there are no timers, and the loop is idle.
        timers = self._timers.plain and self._timers.call_back
        due = self._ready and self._tasks.function_due()
        return len(self._scopes) + (1 if timers or due else 0)


class Handing:
    """See the module. One per execution, for the event loop that its function runs in."""

    def __init__(self, execution: RunPosition[Any], tasks: RunTasks) -> None:
        self._execution = execution
        self._tasks = tasks
        self._in_threads, self._to_be_cancelled = Counting(), Counting()
        self.edit_lock = asyncio.Lock()
        self.loop, self.home = asyncio.get_running_loop(), threading.get_ident()
        self._loop_ready = ready_of(self.loop)
        self.new_wait: NewWait = partial(LoopWait, bell())
        self.pace = Pace(self._function_due, self._show)
        self.timers = Timers(
            execution,
            self.pace,
            clock_of(self.loop),
            lambda: self._in_threads.number > 0 or self.edit_lock.locked(),
            lambda scope: self._standstill.has_before(scope),
        )
        self.lookers = Lookers(tasks, self.timers, self._loop_ready, self.home)
        self._standstill = Standstill(
            execution.turns,
            tasks,
            self._all_rest,
            lambda: self._to_be_cancelled.number > 0,
            self._lets_go_on,
        )

    def check_place(self, name: str) -> Scope:
        """Returns the task that something is recorded in here; see `RunPosition.check_place`.

        Raises:
            Conflict: it is called in another loop, which nothing of this one would wake.
        """
        if asyncio.get_running_loop() is not self.loop:
            raise Conflict(
                f"{name.partition(':')[0]} is awaited in another event loop than its run's",
                target=f"run {self._execution.id}",
                hint="await it where the agent function is; what runs on a thread may call a "
                "synchronous step or tool",
            )
        return self._execution.check_place(name)

    def _lets_go_on(self) -> bool:
        """Removes an obstacle of all others that need not be one; returns True if there was one."""
        execution = self._execution
        return self.timers.pass_over() or execution.going.lend(execution.turns.next_entry())

    def _function_due(self) -> bool | None:
        """Returns True if the loop is about to continue the function, as its tasks show; called at
        each event, when the loop is mostly idle."""
        ready, tasks = self._loop_ready, self._tasks
        return tasks.is_over if not ready and ready is not None else tasks.function_due()

    # -- recorded outcomes ---------------------------------------------------------------------

    async def wait_for_turn(
        self, entry: Entry | None, scope: Scope, name: str, *, gives_way: bool = False,
        cancelled: bool = False, told: Told | None = None,
    ) -> bool:  # two lines, for the limit of a function  # fmt: skip
        """Waits until everything recorded before this entry has been released.

        Args:
            cancelled: the function hears of the cancellation, whatever is recorded.
            told: its task was cancelled already, and hears it then: it is not woken to hear it
                again. Holds the latest cancellation.
            gives_way: returns False if all others wait for this one.
        """
        if self._tasks.is_over:
            await asyncio.get_running_loop().create_future()  # this task is about to be cancelled
        order = self._execution.turns
        pace, shows, place = None, 0, ""
        if entry is not None:
            place = entry.place if cancelled else entry.hands
        if entry is not None and entry.order >= 0:
            pace = self.pace
            # A call that is made again shows nothing; an edit does at the end of its block.
            if place and (entry.kind != "edit" or entry.unbegun):
                shows = entry.shows_in_turn
        # Tasks without scopes of their own wait for all: their first actions lead to calls that are
        # distinguished by their order.
        own = scope.path if self._tasks.numbered else None
        while not order.is_ready(entry, own):
            turn = self._deaf(told) if told is not None else None
            rest = Rest(self._paced(scope), place, pace, shows, patient=True, turn=turn)
            waiter = order.ready(entry, own, rest.over)
            if waiter is None:
                break
            rest.waiter = waiter
            task = asyncio.current_task()
            assert task is not None
            self._tasks.waiting.add(task)
            self._standstill.begin(rest)
            try:
                await rest.turn
            except asyncio.CancelledError as once_more:  # it may have come all the same
                if told is None or not rest.turn.done() or rest.turn.cancelled():
                    raise
                told.again(once_more)
            finally:
                self._standstill.end(rest)
                self._tasks.waiting.discard(task)
                order.forget(waiter)
            self._execution.check()
            if rest.stood and not order.is_ready(entry, scope.path):
                if gives_way:
                    return False
                raise self._execution.interrupt(order.stalled(scope.named(name)))
            if rest.stood:
                own = scope.path  # one after the other in one task: the code has another order now
            if rest.paced:
                return True
        if pace is not None:
            event = PacedEvent(self._paced(scope), place, shows=shows)
            pace.comes(event)
            try:
                await pace.turn(event, self._deaf(told) if told is not None else None)
            except asyncio.CancelledError as once_more:
                if told is None or not event.over:
                    raise
                told.again(once_more)
            finally:
                pace.drop(event)
        return True

    def _deaf(self, told: Told) -> asyncio.Future[None]:
        return Deaf(told, lambda: self.goes_on)

    async def is_come_to(self, scope: Scope, name: str, told: Told) -> bool:
        """Returns True for a call without a record, whose task is cancelled there, if it was
        reached before. Then it ended behind everything recorded, and this returns after that.
        Otherwise the recorded entries wait for its task."""
        while self.goes_on:
            try:
                return await self.wait_for_turn(None, scope, name, gives_way=True, told=told)
            except asyncio.CancelledError as once_more:
                told.again(once_more)
        return False

    async def let_calls_end(self) -> None:
        """Waits, at a boundary, if the run will be left once the calls under way have ended:
        nothing begins before that."""
        execution = self._execution
        while self._tasks.defers(execution.reason_to_leave()) and execution.interrupted is None:
            await LoopWait(bell()).rest(DEFERRED_S)  # it is no timer of the function's

    @property
    def several(self) -> bool:
        """True if there are tasks whose order could matter."""
        return not self._tasks.numbered or len(self._tasks.scopes) > 1

    def _paced(self, scope: Scope) -> str:
        """Returns the scope within which events come one after the other anyway."""
        return scope.path if self._tasks.numbered else f"{scope.path}{id(asyncio.current_task())}/"

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """Context manager around work that continues only when other tasks of the run do."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.waiting.add(task)
        try:
            yield
        finally:
            self._tasks.waiting.discard(task)

    def _all_rest(self) -> bool:
        going = self._execution.going
        idle = not going.calls and not self.pace.has_waiting
        due = self.timers.has_due
        return idle and not due and self._tasks.all_wait()

    async def cancelled_again(self, entry: Entry) -> None:
        """Waits for the recorded cancellation of this task to happen again. Everything recorded
        behind it waits for that, too.

        Raises:
            CancelledError: it happened.
            NeedsAttention: it did not happen in the recorded time plus a margin.
        """
        execution = self._execution
        try:
            with self._to_be_cancelled:
                await LoopWait(bell()).rest(
                    (entry.cancelled_after_s or 0.0) + release_order.PROVEN_S
                )
            execution.turns.release(entry)  # then it may be that others are to do it
            await LoopWait(bell()).rest(release_order.STALL_S)
        except asyncio.CancelledError as cancelled:
            raise as_told(entry.told, Told(cancelled)) from None
        finally:
            execution.turns.release(entry)
        execution.check()
        raise changed(
            f"the task of {entry.place} was cancelled there, and now it is not",
            self._execution.id,
        )

    def _show(self, seq: int) -> None:
        """Makes the state visible that belongs to what the function is about to hear of."""
        execution = self._execution
        try:
            execution.seeing.show(seq)
        except PerdureError as error:
            execution.interrupt(error)
        except BaseException as error:
            execution.leaving.failed(error)
            if not isinstance(error, Exception):
                raise

    @property
    def goes_on(self) -> bool:
        """True if the function continues, or has ended: then it cancels its tasks itself."""
        return self._execution.interrupted is None

    async def cancelled_before_turn(
        self, entry: Entry, scope: Scope, name: str, cancelled: asyncio.CancelledError
    ) -> None:
        """Handles the cancellation of a task before the turn of its recorded outcome: the task
        hears of the cancellation at that turn, as before; or of the outcome, if the call had caught
        the cancellation.

        Raises:
            CancelledError: the call had not caught it.
        """
        execution, told = self._execution, Told(cancelled)
        try:
            while self.goes_on:
                try:
                    await self.wait_for_turn(entry, scope, name, cancelled=True, told=told)
                    break
                except asyncio.CancelledError as once_more:
                    told.again(once_more)
        finally:
            execution.turns.release(entry)
        if execution.interrupted is not None:
            raise execution.interrupted from None
        if entry.kept_on:
            return
        if entry.cancelled:
            raise as_told(entry.told, told)
        wait = (entry.call, entry.outcome) if entry.kind == "wait" else NO_WAIT
        call = CancelledCall(entry.place, entry.kind, time.monotonic(), wait=wait)
        self.note_cancelled(call, told.error)
        raise told.error

    # -- new outcomes --------------------------------------------------------------------------

    async def cancelled_first(self, call: CancelledCall, cancelled: asyncio.CancelledError) -> None:
        """The task of a call was cancelled before that had an outcome: it goes on from there when
        the function has heard of all that is recorded, as of anything else that is not.

        Raises:
            CancelledError: then.
        """
        told, place = Told(cancelled), call.place
        scope = self._execution.scope()
        while self.goes_on:
            try:
                await self.wait_for_turn(None, scope, place[len(scope.path) :], told=told)
                break
            except asyncio.CancelledError as once_more:
                told.again(once_more)
        heard = told.error
        item = self.cancelled_item(call, heard, several=told.several)
        await self.hand_over(item, place, heard=Heard(call.kind, told_of(heard)))
        raise heard

    def note_cancelled(
        self, call: CancelledCall, cancelled: asyncio.CancelledError, *, several: bool = False
    ) -> None:
        """Records that the function does not see the outcome that is recorded already.

        Args:
            several: that is recorded, too, and it was cancelled once more since.
        """
        item = self.cancelled_item(call, cancelled, several=several)
        if item is not None:
            self._execution.writer.post(item)

    def cancelled_item(
        self, call: CancelledCall, cancelled: asyncio.CancelledError, *, several: bool = False
    ) -> Item | None:
        """Returns the item to commit for a cancelled call: the function does not see its outcome,
        and must not on replay, either.

        The signal that a wait took is given back, as its sender was told that it arrived: it is for
        the next wait. An answer is only for its question, and that is over.
        """
        execution, place, arrive = self._execution, call.place, call.arrive
        gone = CallCancelled("its task was cancelled", target=place)
        record = Cancelled(
            run=execution.id,
            place=place,
            kind=call.kind,
            error=error_record(gone),
            after=round(time.monotonic() - call.since, 3),
            args=NOTHING if arrive is None else arrive.args,
            preview="" if arrive is None else arrive.preview(),
            **told_of(cancelled, several=several),
        )
        if not self._tasks.numbered:
            # It may be that the function's own loop is being ended, and the function left: then
            # nothing follows from it, and it is not to be in the log.
            execution.writer.later(Riders((record,)))
            return None
        cause = Cause("cancelled", run=execution.id, step=place)
        began, ended = call.wait
        took = signal_of(began, ended) if began is not None and ended is not None else None
        with execution.asking:
            lost = took is not None and not execution.mail.has(took.name, took.key)
        if took is not None and lost:
            key = renewed(took.key, execution.working.seq)
            back = replace(took, run=execution.id, agent=execution.agent, key=key)
            record = replace(record, gave_back=[took.name, took.key])
            landing = partial(execution.wakeups.ring, execution.id)
            return Item(cause, Riders((record,), sends=(back,)), landing=landing)
        # What ends the function is committed in a moment, and this with it.
        over = left_open(began, ended) if not self._tasks.ending else None
        return execution.soon(cause, Riders((record,)), over)

    async def hand_over(
        self, item: Item | None, place: str, shows: int = 0, *, heard: Heard | None = None
    ) -> None:
        """Commits what settles a call, if anything, and returns when the function may hear of it.
        If the task is cancelled in the meantime, it hears of that at the same place: an outcome
        keeps its order.

        Args:
            shows: the state that a recorded outcome shows; see `PacedEvent`.
            heard: given if the record says that its task was cancelled, and that the function hears
                this; if it hears something else, that is recorded, too.
        """
        execution = self._execution
        event = PacedEvent(execution.scope().path, place)
        seeing = execution.seeing
        edit = item is not None and item.changes
        told: Told | None = None

        def landed() -> None:  # it knows nothing of the item, which knows it
            if seeing.ahead:
                event.shows = seeing.showing(edit=edit)
            self.pace.comes(event)

        handing = execution.going.handing
        try:
            handing.marks.append(None)
            if item is None:
                if not shows:  # the run's next commit has it, and what is there now is before that
                    seeing.catch_up()
                    shows = seeing.showing(edit=True)
                event.shows = shows
                self.pace.comes(event)
            else:
                item.landing = landed
                try:
                    await execution.writer.write_async(item, self.new_wait)
                except asyncio.CancelledError as error:
                    if item.error is not None or execution.interrupted is not None:
                        raise
                    told = Told(error)
            while not event.over:
                try:
                    await self.pace.turn(event, self._deaf(told) if told is not None else None)
                except asyncio.CancelledError as error:
                    if execution.interrupted is not None:
                        raise
                    if told is None:
                        told = Told(error)
                    told.again(error)
        finally:
            handing.marks.pop()
            self.pace.drop(event)
        if told is None:
            return
        if heard is not None and (told.several or not heard.is_as(told.error)):
            call = CancelledCall(place, heard.kind, time.monotonic())
            self.note_cancelled(call, told.error, several=True)
        raise told.error
