"""The writer of one run: one commit at a time; requests in the meantime share the next one.

Concurrent steps of a run would otherwise queue for an fsync each. Callers are threads and tasks of
any event loop; none of them waits for another's code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sys import _getframe
from types import FrameType
from typing import TYPE_CHECKING, Any

from perdure.core.format.records import Fired
from perdure.engine.execution.commit_items import Flight, Item, is_this_threads, next_items
from perdure.engine.journal.deferred_records import PutOff
from perdure.engine.journal.leaving import TornError
from perdure.engine.journal.visible_state import Seeing
from perdure.errors import PerdureError, RunInterrupted, SchemaError, Unstorable
from perdure.state.working_copy import next_proposal
from perdure.storage.appending import Riders, together
from perdure.storage.log.refusals import OvertakenError
from perdure.system.flag import Flag
from perdure.system.locks import LOOK_MAX_S, ReentrantLock, is_over

if TYPE_CHECKING:
    from perdure.state.event_loop.loop_waits import LoopWait
    from perdure.state.working_copy import WorkingCopy

COMMIT = "its commit"
Wakes = list[Callable[[], None]]
NewWait = Callable[[Callable[[], None]], "LoopWait"]
"""Makes a wait in the event loop at hand, with what is called while it takes long."""


class RunWriter:
    """The writer of one run. Any failure here fails the run: `on_failure` hears of it first."""

    def __init__(
        self,
        working: WorkingCopy[Any],
        seeing: Seeing,
        on_failure: Callable[[BaseException], BaseException],
        lock: ReentrantLock,
    ) -> None:
        self._working = working
        self._seeing = seeing
        self._on_failure = on_failure
        self._lock = lock  # the execution's: `seeing` and `on_failure` take it, too
        self._queue: list[Item] = []
        self._flight: Flight | None = None
        self._waiting = PutOff()
        self._closed = False
        self._torn: BaseException | None = None
        """Nobody knows whether a commit happened that had records which others stand on."""

    def later(self, riders: Riders) -> None:
        """Records that nothing outside depends on yet: they join the next commit."""
        with self._lock:
            self._waiting.add(riders)

    def post(self, item: Item, instead: Item | None = None) -> None:
        """Commits it soon; no caller waits for that. If it fails, so does the run. It replaces
        `instead`, if that is not under way yet. Raises exceptions from outside."""
        try:
            with self._lock:
                if self._closed:  # by a call that was left to itself, and has outlived its run
                    return
                if instead is not None and instead in self._queue:
                    self._queue[self._queue.index(instead)] = item
                else:
                    self._queue.append(item)
                flight = self._start(_getframe())
            if flight is not None:
                self._submit_soon(flight)
        except BaseException as error:
            if (failure := self._on_failure(error)) is not error:
                raise failure from error
            raise

    def close(self) -> None:
        """Closes the writer, after the function has ended: posted items are committed, or fail, and
        no more are taken. The commit that ends the run must not race with one that is under way."""
        while True:
            news = Flag()
            with self._lock:
                self._closed = True
                flight = self._flight
                if flight is None:
                    return
                if flight.landed:
                    news.set()
                else:
                    flight.waiters.append(news.set)
            if news.wait(LOOK_MAX_S):
                self._finish(flight)
            else:
                self._go_on_without(None)

    def adds(self, record: Fired, key: str, one: object) -> bool:
        """Adds to one of a record's lists, if that record is the last that waits for a commit."""
        with self._lock:
            waiting = self._waiting.records
            if not waiting or waiting[-1] is not record:
                return False
            getattr(record, key).append(one)
            return True

    @property
    def closed(self) -> bool:
        """True once the function has ended."""
        return self._closed

    @property
    def waiting(self) -> int:
        """The number of records that wait for a commit."""
        return len(self._waiting.records)

    @property
    def busy(self) -> bool:
        """True if a commit is under way: put-off records come behind it in the log, and outside."""
        return self._flight is not None

    def drop_unordered(self) -> None:
        """Forgets values that wait with nothing recorded behind them: stray code's, perhaps."""
        with self._lock:
            self._waiting.drop_unordered()

    def take_back(self) -> bool:
        """Forgets all that waits, if that has the function's version; returns True if so."""
        with self._lock:
            return bool(self._waiting.rows) and bool(self._waiting.take())

    def take_waiting(self) -> PutOff:
        """Takes what waits for a commit, for the caller to commit."""
        with self._lock:
            return self._waiting.take() if self._torn is None else PutOff()

    def put_back(self, taken: PutOff) -> None:
        """Puts back what `take_waiting` took for a commit that failed."""
        with self._lock:
            self._waiting.put_back(taken)

    # -- from threads ------------------------------------------------------------------------

    def write(self, item: Item) -> None:
        """Commits it with all that waits; on the calling thread where no other commit is under way.

        Raises:
            SchemaError: an edit breaks the schema; nothing else of the commit is lost.
            Unstorable: it is too big for one commit. OvertakenError: of a run that it speaks of.
            RunInterrupted: from `on_failure`.
        """
        news: Flag | None = None
        try:
            with self._lock:
                if self._closed:
                    self._refuse_when_closed()  # raises
                if self._flight is not None or self._queue:
                    news = Flag()  # costs more than all else here: made only to wait
                    item.wake = news.set
                self._queue.append(item)
                flight = self._start(_getframe())
            if flight is not None:
                self._fly(flight)
            if not item.settled:
                self._stand_by(item, news)
            if item.error is not None:
                raise item.error
        except BaseException as error:
            # An error that is not the item's own comes from outside, between any two instructions:
            # the run hears of that, not of its consequences for the commit.
            failure = error if error is item.error else self._on_failure(error)
            if failure is not error:
                raise failure from error
            raise

    def _stand_by(self, item: Item, news: Flag | None) -> None:
        """Waits until an item is settled, finishing what has landed: the owner of the commit under
        way may be a task of an event loop that this very thread blocks."""
        news = news or Flag()
        item.wake = news.set
        while not item.settled:
            with self._lock:
                under_way = self._flight
                if under_way is not None and not under_way.landed:
                    under_way.waiters.append(news.set)
            if under_way is not None and under_way.landed:
                self._finish(under_way)
                continue
            if not item.settled:
                if not news.wait(LOOK_MAX_S):
                    self._go_on_without(item)
                news.clear()

    def _fly(self, flight: Flight) -> None:
        """Completes a commit on this thread."""
        submit = self._working.context.committer.submit
        while True:
            try:
                outcome: Any = submit(flight.proposal)
            except BaseException as error:
                with self._lock:
                    done = self._go_on(flight, error)
                if not isinstance(error, Exception):
                    raise
            else:
                with self._lock:
                    done = self._go_on(flight, outcome)
            if done:
                return

    # -- from tasks --------------------------------------------------------------------------

    async def write_async(self, item: Item, new_wait: NewWait) -> None:
        """Writes an item without blocking the event loop; see `write`. If the task is cancelled in
        the meantime, it hears of that once the commit is in or has failed."""
        wait = self._wait_for(item, new_wait)
        item.wake = wait.done
        self._queue_up(item)
        cancelled: BaseException | None = None
        while True:
            try:
                await wait.wait(lambda: False)
            except GeneratorExit:
                raise
            except BaseException as error:  # it goes on once it is known what became of the commit
                cancelled = error
            if item.settled:
                break
            again = self._wait_for(item, new_wait)
            settled, under_way = self._wait_again(item, again.done)
            if settled:
                again.wake()  # it knows itself: no circle is left behind
                break
            wait = again
            # It waits to be woken even if this settles it: those of one commit go on in its order.
            if under_way is not None:
                self._finish(under_way)
        if cancelled is not None:
            raise cancelled
        if item.error is not None:
            raise item.error

    def _wait_for(self, item: Item, new_wait: NewWait) -> LoopWait:
        def look() -> None:  # while that takes long: it may be lost, or that it is settled
            if item.settled:
                wait.wake()
            else:
                self._go_on_without(item)

        wait = new_wait(look)
        return wait

    def _queue_up(self, item: Item) -> None:
        with self._lock:
            self._refuse_when_closed()
            self._queue.append(item)
            flight = self._start(_getframe())
        if flight is not None:
            self._submit_soon(flight)

    def _wait_again(self, item: Item, wake: Callable[[], None]) -> tuple[bool, Flight | None]:
        """Returns True if an item is settled; otherwise sets what wakes its waiter. Also returns
        the commit under way."""
        with self._lock:
            if not item.settled:
                item.wake = wake
            return item.settled, self._flight

    def _refuse_when_closed(self) -> None:
        if self._closed:  # by code that its function left behind
            raise RunInterrupted(PerdureError("its function has ended"))

    def _submit_soon(self, flight: Flight) -> None:
        committer = self._working.context.committer
        flight.call, flight.handed_over = _getframe(), True
        while True:
            try:
                committer.submit_soon(flight.proposal, lambda: self._landed(flight))
                return
            except Exception as error:  # the store is closed
                with self._lock:
                    if self._go_on(flight, error):
                        return

    def _landed(self, flight: Flight) -> None:
        """Handles the store's answer, on the committer's thread."""
        woken: Wakes = []
        done = True
        try:
            with self._lock:
                flight.landed = True
                if not flight.items[-1].changes:
                    done = self._take_in(flight, _getframe(), woken)
                else:  # it changes the state that its task's thread may be reading
                    woken, flight.waiters = flight.waiters, []
                    if flight.items[-1].wake is not None:
                        woken.append(flight.items[-1].wake)
            if not done:
                self._submit_soon(flight)
        finally:
            for wake in woken:  # without the lock, for which its loop would have to wait
                wake()

    # -- either way --------------------------------------------------------------------------

    def _go_on_without(self, item: Item | None) -> None:
        """Checks, for a caller that waited long, that the commit it waits for still has an owner.

        An exception may have ended the owner, between any two instructions: then the outcome of its
        commit is unknown, and the run ends here. Its log tells the outcome, when it is resumed.
        """
        with self._lock:
            flight = self._flight
            if flight is not None:
                if self._is_left(flight):
                    self._give_up(flight, flight.items)
            elif item is not None and not item.settled and item not in self._queue:
                self._give_up(None, [item])
            elif self._queue and (flight := self._start()) is not None:
                self._submit_soon(flight)
        if flight is not None and flight.landed:  # an edit's, whose task was to take it in
            self._finish(flight)
        elif flight is not None:  # it may be queued, with nobody who was asked to lead
            self._working.context.committer.look_after()

    def _is_left(self, flight: Flight) -> bool:
        if flight.landed or (flight.call is not None and not is_over(flight.call)):
            return False
        return not (flight.handed_over and self._working.context.committer.has(flight.proposal))

    def _give_up(self, flight: Flight | None, items: list[Item]) -> None:
        self._flight = None
        failure = self._on_failure(TornError(COMMIT, items[0].cause.run))
        if flight is not None:
            self._failed(flight, failure)
        self._settle(items, failure)
        for wake in flight.waiters if flight is not None else ():
            wake()

    def _failed(
        self, flight: Flight, failure: BaseException, error: BaseException | None = None
    ) -> None:
        """Handles a failed commit, with the lock held. The function has heard of the records that
        waited for this commit: nothing of the run may be in the log without them, so the next
        commit has them. If it is unknown whether this commit failed, there is no next one."""
        if not flight.waited:
            return
        if isinstance(error, PerdureError) and getattr(error, "outcome", "") != "unknown":
            self._waiting.put_back(flight.waited)
        else:
            self._torn = failure

    def _start(self, call: FrameType | None = None) -> Flight | None:
        """Starts the next commit, with the lock held, of everything that waits up to the first
        change of the state; None if one is under way, or nothing waits.

        Args:
            call: the call that owns it; None: the committer's thread will.
        """
        if self._flight is not None:
            return None
        while self._queue:
            if self._torn is not None:
                left, self._queue = self._queue, []
                self._settle(left, self._torn)
                break
            queue = self._queue  # mostly there is one
            flight = self._prepare([queue.pop()] if len(queue) == 1 else next_items(queue))
            if flight is not None:
                flight.call = call
                return flight
        return None

    def _prepare(self, items: list[Item]) -> Flight | None:
        """A commit up to the point where the store is to take it; None: all of it failed before."""
        last = items[-1]
        waiting, along = self._waiting, last.riders
        waits = bool(waiting.records or waiting.consumed)
        if waits or len(items) > 1:
            along = together([waiting.riders, *(item.riders for item in items)])
        working = self._working
        try:
            if self._seeing.behind:
                self._seeing.catch_up()
            if last.recording is not None:
                flow = working.committing_recording(last.recording, last.cause, along)
            elif last.change is not None:
                flow = last.change(along)
            else:
                flow = working.committing_delta([], items[0].cause, along)
            proposal = next_proposal(flow, None)
            # The flight's own from here on: what is put off while it is under way comes behind it.
            waited = waiting.take() if waits else None
            self._flight = Flight(items, flow, proposal, waited)
        except Unstorable as too_big:
            if len(items) > 1:  # it may be one of them, or all together: one after the other
                self._queue[:0] = items[1:]
                return self._prepare(items[:1])
            self._settle(items, too_big)
            return None
        except SchemaError as refused:
            # The change alone is wrong; what came before it goes its way.
            self._settle([last], refused)
            self._queue[:0] = items[:-1]
            return None
        except BaseException as error:
            self._settle(items, self._on_failure(error))
            if is_this_threads(error):
                raise
            return None
        return self._flight

    def _finish(self, flight: Flight) -> None:
        """Takes in the store's answer, once, on whichever thread comes first; continues with the
        next commit."""
        with self._lock:
            done = self._take_in(flight, _getframe())
        if not done:
            self._submit_soon(flight)

    def _take_in(self, flight: Flight, call: FrameType, woken: Wakes | None = None) -> bool:
        """Continues a commit as `_go_on` does, with the lock held, if none has taken it in; this
        call owns it then."""
        if self._flight is not flight or not flight.landed:
            return True
        # It is that call's now, and nobody else goes on with it.
        flight.call, flight.landed = call, False
        try:
            outcome: Any = flight.proposal.outcome()
        except BaseException as error:
            outcome = error
        return self._go_on(flight, outcome, woken)

    def _go_on(self, flight: Flight, outcome: Any, woken: Wakes | None = None) -> bool:
        """Sends the store's answer to a commit's logic, with the lock held; returns False if it
        proposed another commit.

        Args:
            woken: gets the waiters, for the caller to wake; None: they are woken here.
        """
        came: BaseException | None = None
        failure: BaseException | None = None
        refused: OvertakenError | None = None
        try:
            flight.proposal = next_proposal(flight.flow, outcome)
            return False
        except StopIteration:
            if flight.proposal.committed is None:  # I5: its logic was interrupted before
                failure = self._on_failure(TornError(COMMIT, flight.items[0].cause.run))
        except OvertakenError as error:
            refused = error
        except BaseException as error:
            failure, came = self._on_failure(error), error
        if failure is not None:
            self._failed(flight, failure, came)
        self._flight = flight.call = None
        settled = flight.items
        if refused is not None:  # for one of its items: the others go their way
            settled, self._queue[:0] = flight.overtaken(refused)
            if flight.waited:
                self._waiting.put_back(flight.waited)
        self._settle(settled, failure or refused, woken)
        if woken is not None:
            woken += flight.waiters
        else:
            for wake in flight.waiters:
                wake()
        following = self._start() if self._queue else None
        if following is not None:
            self._submit_soon(following)
        if came is not None and is_this_threads(came):
            try:
                raise came
            finally:
                came = failure = refused = None  # or the error would hold itself
        return True

    def _settle(
        self, items: Sequence[Item], error: BaseException | None, woken: Wakes | None = None
    ) -> None:
        for item in items:
            item.error = error
            item.settled = True
        for item in items if error is None else ():
            if item.landing is not None:
                item.landing()
        for item in items:
            if item.wake is not None:
                if woken is None:
                    item.wake()
                else:
                    woken.append(item.wake)
