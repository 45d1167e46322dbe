"""One execution of a run in this process: its place in the journal, its state, and its end.

`run` and `async_run` have what the function sees of it, `performer` and `async_performer` perform
effects on a thread or in an event loop.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from sys import exception
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from perdure.core.format.records import Valued, WaitBegan
from perdure.core.values.plain_values import Plain
from perdure.engine.execution.activity import Going
from perdure.engine.execution.commit_items import Item
from perdure.engine.execution.current_run import Inside, current
from perdure.engine.execution.interrupts import Asking, Stopping
from perdure.engine.execution.performer import Performer
from perdure.engine.execution.run_edits import Edits
from perdure.engine.execution.run_inbox import RunInbox
from perdure.engine.execution.run_writer import RunWriter
from perdure.engine.execution.wakeups import Wakeups
from perdure.engine.journal.call import Call, is_settled_as
from perdure.engine.journal.effects import Arrive, Arrived, Await, Came, RecordEffect
from perdure.engine.journal.entry import UNORDERED, Entry
from perdure.engine.journal.journal import Journal, OthersFirstError, came_short
from perdure.engine.journal.leaving import Cancelled, DeadlinePassed, Drained, Leaving, LeftError
from perdure.engine.journal.prepared_replies import Fakes, PreparedReplies
from perdure.engine.journal.questions import left_open, name_of, too_late
from perdure.engine.journal.release_order import ReleaseOrder, Waiter
from perdure.engine.journal.scopes import Scope
from perdure.engine.journal.visible_state import Seeing
from perdure.errors import PerdureError, RunInterrupted
from perdure.model import Cause
from perdure.state.context import Context
from perdure.state.working_copy import WorkingCopy
from perdure.storage.appending import Riders
from perdure.system import process_id
from perdure.system.locks import ReentrantLock
from perdure.visible import visible

if TYPE_CHECKING:
    from perdure.engine.execution.async_performer import AsyncPerformer
    from perdure.engine.execution.run_tasks import RunTasks
    from perdure.engine.journal.left_history import Before

T = TypeVar("T")

LOOK_S = 1.0
"""The interval at which a busy run checks by itself whether it is to end."""


class Execution(Generic[T]):
    """See the module. Its journal and counters may be used by several threads at once."""

    def __init__(
        self, working: WorkingCopy[T], run_id: str, journal: Journal, wakeups: Wakeups, *,
        fakes: Fakes | None = None, played: PreparedReplies | None = None, deadline: int = 0,
        before: Before | None = None, mail: RunInbox | None = None,
    ) -> None:  # two lines, for the limit of the file  # fmt: skip
        self.working, self.id, self.journal = working, run_id, journal
        self.fakes, self._before = fakes or {}, before
        self.wakeups, self.root = wakeups, Scope()
        self.root.home = threading.get_ident()
        self.past_record = False
        """True once the function has come to all that is recorded, and that was all released."""
        self.mail = mail or RunInbox(working.context.backend, run_id)
        self._interrupted: RunInterrupted | None = None
        self._stop: PerdureError | None = None
        self._deadline, self.played = deadline, played
        self._look_at = time.monotonic() + LOOK_S
        self._pid, self._lock = process_id.pid, ReentrantLock()
        self.seeing = Seeing(working, journal.commits, self._lock, run_id)
        self.catch_up, self.show = self.seeing.catch_up, self.seeing.show
        self.turns = ReleaseOrder(journal, self._lock)
        self.leaving = Leaving(self.interrupt, run_id)
        self.writer = RunWriter(working, self.seeing, self.leaving.failed, self._lock)
        self.edits = Edits(self)
        self.going = Going(lambda: wakeups.ring(run_id))
        self.met: dict[int, Any] | None = None if journal.older else {}  # see identity.Unsaid
        self.stopping, self.asking = Stopping(self.leaving.passed_on), Asking(self.interrupt)
        self.performer = Performer(self)
        self.tasks: RunTasks | None = None
        """Of the event loop that it runs in, if it does."""
        self._async_performer: AsyncPerformer | None = None
        self._in_own_loops: dict[int, AsyncPerformer] = {}  # by their threads
        self._loop_thread, self._warned = 0, set[str]()

    @property
    def agent(self) -> str:
        """Name of the agent that this runs on."""
        return self.working.name

    @property
    def context(self) -> Context:
        """The open store that this runs in."""
        return self.working.context

    @property
    def epoch(self) -> int:
        """The fencing token of the lease that this executes under."""
        return self.working.epoch or 0

    @property
    def async_performer(self) -> AsyncPerformer:
        """Performs its effects in the event loop that is running."""
        if self._async_performer is not None:
            return self._async_performer
        from perdure.engine.execution.async_performer import performer_of_loop

        return performer_of_loop(self, self._in_own_loops)

    def runs_in_loop(self, performer: AsyncPerformer) -> None:
        """Notes that its function is about to be called in the event loop of this thread."""
        self._async_performer, self._loop_thread = performer, threading.get_ident()
        if self.tasks is not None:
            self.seeing.tell_lookers(performer.lookers)

    def warn_if_blocking(self, name: str) -> None:
        """Makes a plain call of a synchronous function in asynchronous code; it blocks the loop."""
        if threading.get_ident() == self._loop_thread and name not in self._warned:
            self._warned.add(name)
            warnings.warn(
                f"{visible(name)} is synchronous and holds up the event loop; in asynchronous code "
                f"say `await run.call({visible(name)}, …)`, which calls it on a thread",
                RuntimeWarning,
                stacklevel=3,
            )

    @property
    def state(self) -> T:
        self.check()
        with self._lock:
            # On replay an edit's block is replayed later than it was made: it sees the state that
            # its draft is based on.
            if (self.seeing.ahead or self.edits.stands_on) and self.inside() == "edit":
                return (self.edits.stands_on or self.working).typed
            return self.working.seen

    # -- where the function is ---------------------------------------------------------------

    def inside(self) -> Inside:
        """Returns the part of this run that the calling code is in."""
        frame = current()
        return frame.inside if frame is not None and frame.run is self else "function"

    def scope(self) -> Scope:
        """Returns the task of this run that the calling code is."""
        if (frame := current()) is None or frame.run is not self or frame.scope is None:
            return self.root
        return frame.scope

    def check_place(self, name: str, *, edit_too: bool = False) -> Scope:
        """Returns the task in which something can be recorded here.

        Raises:
            PerdureError: inside a step or tool, whose body is not replayed, or inside an
                open edit.
        """
        if (error := exception()) is not None:
            self.leaving.behind(error)
        self.check()
        frame = current()
        if frame is None or frame.run is not self:
            return self.root
        if (where := frame.inside) == "edit":
            self.edits.check_lost()
        if where != "function" and not (edit_too and where == "edit"):
            within = "an open edit" if where == "edit" else f"a {where}"
            problem = f"{name.partition(':')[0]} cannot be recorded inside {within}"
            hint = "do it in the agent function, before or after it"
            raise PerdureError(problem, target=f"run {self.id}", hint=hint)
        return frame.scope or self.root

    def find(self, effect: Arrive, scope: Scope, *, patient: bool = False) -> Entry | None:
        """Returns the entry that a call belongs to; it is taken.

        Args:
            patient: others of this scope may have to reach what is recorded before.

        Raises:
            OthersFirstError: they must.
            RunInterrupted: the function differs from its record.
        """
        self.check_place(effect.name)
        if not self.journal.replaying:
            return None
        with self._lock, self.stopping:
            name = scope.named(effect.name)
            entry = self.journal.find(name, effect.args)
            if patient:
                self._let_others(entry, effect, scope)
            if entry is None:
                self.journal.check_new(name, scope.path, effect.kind)
                return None
            self.journal.check_call(entry, effect.kind, effect.args, effect.preview, effect.before)
            self._take(entry)
            return entry

    def comes_past_record(self) -> bool:
        """True if nothing recorded is left to come to, or to release. That stays so."""
        if self.turns.next_entry() is not None or self.journal.replaying:
            return False
        self.past_record = True
        return True

    @property
    def tells_time(self) -> bool:
        """True if its function may see a time that is not recorded."""
        return self.past_record or self._interrupted is not None or self.comes_past_record()

    def next_recorded(self, call: Call) -> Entry | None:
        """Returns the next recorded entry in the most frequent case of a replay: the function's own
        thread makes exactly the call whose outcome is the log's next. It is taken and released.
        None if an `Arrive` must find out (also while the function may be on its way out)."""
        if (entry := self.turns.next_entry()) is None:
            return None
        frame = current()
        if entry.scope or self._interrupted is not None or exception() is not None:
            return None
        if frame is None or frame.run is not self or frame.inside != "function":
            return None
        if frame.scope not in (None, self.root) or threading.get_ident() != self.root.home:
            return None
        if not is_settled_as(call, entry):
            return None
        with self._lock:
            if self.journal.find(self.root.named(call.name)) is not entry:
                return None
            self.check_process()
            self._take(entry)
            self.show(entry.seq - 1)
            woken = self.turns.pass_on(entry)
        for waiter in woken:
            waiter.wake()
        return entry

    def recorded_in(self, scope: Scope, call: Call) -> Entry | None:
        """Returns an entry as `next_recorded` does, for any task of a run, whose turn may be still
        to come: it is taken, and the caller must release it."""
        frame = current()
        if frame is None or frame.inside != "function" or exception() is not None:
            return None
        with self._lock:
            entry = self.journal.find(scope.named(call.name), call.digests)
            if entry is None or self._interrupted is not None or not is_settled_as(call, entry):
                return None
            self.check_process()
            self._take(entry)
        return entry

    def _take(self, entry: Entry) -> None:
        """The function has come to it; the lock is held."""
        self.journal.take(entry)
        if self.turns.watching and self.journal.left_in(entry.scope) is None:
            self.turns.came_to_all(entry.scope)

    def watch_others(self, scope: Scope, wake: Callable[[], None]) -> Waiter | None:
        """Wakes a waiter, after `OthersFirstError`, when the scope has reached all its records.
        None if it has."""
        with self._lock:
            if self.journal.left_in(scope.path) is None:
                return None
            return self.turns.watch(scope.path, wake)

    def _let_others(self, entry: Entry | None, effect: Arrive, scope: Scope) -> None:
        if entry is not None:
            other = entry.call.args != dict(effect.args)
        else:
            other = self.journal.left_in(scope.path) is not None
        if other:
            raise OthersFirstError

    def find_edit(self, name: str, scope: Scope) -> Entry | None:
        """The entry of an edit that the function has come to; it is taken."""
        return self.find(Arrive(name, "edit", {}, str), scope)

    def begins_edit(self, name: str) -> None:
        """Begins an edit that is not recorded; it is its turn."""

    def arrived(self, effect: Arrive, scope: Scope, entry: Entry | None) -> Arrived:
        """Handles the turn of a call: a recorded one is released, another begins."""
        if entry is not None and entry.outcome is not None:
            if entry.hands and self.seeing.is_home:  # else it is made again: no event before that
                self.show(entry.seq - 1)  # an edit of the same commit is still to come
            self.turns.release(entry)
            if not entry.outcome.not_done:
                return Arrived(entry.place, entry, "")  # it is not made, and needs no key
        self.check_stop()
        if self.seeing.behind:
            self.catch_up()
        if entry is not None and not entry.cut:
            key = str(entry.call.key or self.journal.key(entry.place, effect.args))
            return Arrived(entry.place, entry, key)  # the key that the world has seen
        named = scope.named(effect.name)
        place = entry.place if entry is not None else self.journal.new_place(named)
        key = self.journal.key(place, effect.args) if effect.keyed else ""
        if self._before is None or not effect.outside:
            return Arrived(place, None, key)
        name = named[len(scope.path) :]
        with self._lock:
            made = self._before.made(name, scope.path, effect.args, entry, effect.before)
        return Arrived(place, None, key, made, self._before.effects)

    def new_place(self, name: str, scope: Scope) -> str:
        """Returns the place of a call that is not recorded."""
        return self.journal.new_place(scope.named(name))

    def value(self, kind: str, make: Callable[[], Plain]) -> Plain:
        """Returns a value that varies; it is recorded with the next commit."""
        if self.inside() in ("step", "tool"):
            self.check()
            return make()  # part of what the call's outcome records
        name = f"run.{kind}"
        scope = self.check_place(name, edit_too=True)
        with self._lock, self.stopping:
            entry = self.journal.find(scope.named(name))
            if entry is not None:
                self._take(entry)
                return entry.call.value
            self.journal.check_new(scope.named(name), scope.path)
            place = self.journal.new_place(scope.named(name))
            record = Valued(t="value", run=self.id, place=place, value=make())
            self.writer.later(Riders([record]))
            return record.value

    def patched(self, name: str) -> bool:
        """See `Run.patched`."""
        name = f"patch:{name}"
        scope = self.check_place(name)
        with self._lock:
            new, record = self.journal.patched(scope.named(name), scope.path)
            if record is not None:
                self.writer.later(Riders([record]))
            return new

    # -- recording ---------------------------------------------------------------------------

    def to_write(self, effect: RecordEffect) -> Item | None:
        """Returns what the writer must commit for an effect now; None if nothing."""
        riders, first = effect.riders, effect.said(0)
        cause = Cause(kind := first.t, run=self.id, step=first.place)
        if not effect.wait:
            if kind == "wait-ended":
                asked = left_open(effect.began, first)
                return self.soon(cause, riders, asked)
            self.mail.take(riders.consumed)
            self.writer.later(riders)
            return None
        stopped = self._interrupted
        if kind == "outcome" or (stopped is not None and self.leaving.lets_record(kind, stopped)):
            self.check_process()  # what is known to have taken effect must not be left in doubt
        else:
            self.check()
        return Item(cause, riders)

    def soon(self, cause: Cause, riders: Riders, over: WaitBegan | None = None) -> Item | None:
        """Records something with the run's next commit. If one is under way, it must be behind that
        in the log, and must not be handed over before it: then an item to write is returned. The
        same holds if it ends the question `over`: the sender of an answer must hear of that."""
        if over is not None:
            with self.asking:
                late = self.mail.answers_to(str(name_of(over)))
            records = [*riders.records, *(too_late(self.id, over, answer) for answer in late)]
            consumed = [*riders.consumed, *(answer.no for answer in late)]
            riders = Riders(records, consumed=consumed)
        self.mail.take(riders.consumed)
        with self._lock:
            if self.writer.busy or over is not None:
                return Item(cause, riders)
            self.writer.later(riders)
            return None

    def scope_ended(self, scope: Scope, error: BaseException | None, *, cancelled: bool) -> None:
        """Handles the end of a task. If it did not reach all that it had recorded, the code has
        changed; nothing waits for the rest any more."""
        with self._lock:
            # Calls of tasks that it made are not its concern: a callback may make them later.
            left = self.journal.all_left_in(scope.path) if self.journal.replaying else []
            # If it was cancelled at the function's end, the block of an edit is not replayed.
            wrong = [one for one in left if not cancelled or one.kind not in UNORDERED]
            if wrong and self._interrupted is None:
                short = came_short(scope.path, wrong[0], error, self.id, cancelled=cancelled)
                self.interrupt(short)
            for entry in left:
                self._take(entry)
        for entry in left:
            self.turns.release(entry)
        if self.journal.timers:
            self.async_performer.timers.scope_ended(scope.path)

    # -- waiting -----------------------------------------------------------------------------

    def came(self, effect: Await) -> Came | None:
        """Returns what a wait waits for, if it is there."""
        if self.played is not None:
            return self.played.came(effect)
        with self.asking:
            return self.mail.came(effect)

    def look_by(self, effect: Await) -> int:
        """Returns the latest time at which a wait must look again; see `RunInbox.look_by`."""
        with self.asking:
            return self.mail.look_by(effect)

    def now(self) -> int:
        """The store's time, in microseconds since 1970."""
        with self.asking:
            return self.context.backend.now()

    # -- ending ------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises the error that ended this execution.

        Raises:
            RunInterrupted: again and again.
            PerdureError: in a forked child.
        """
        interrupted = self._interrupted
        if interrupted is None and self.tasks is not None and self.tasks.is_left:
            interrupted = self.interrupted  # from now on
        if interrupted is not None:
            if self.tasks is not None:
                self.tasks.interrupts()
            if isinstance(interrupted.reason, LeftError):
                interrupted.reason.hears()
            raise interrupted.again()
        if process_id.pid != self._pid:
            self.check_process()  # raises

    def check_process(self) -> None:
        """Raises PerdureError in a forked child."""
        # I4: a forked child has its parent's epoch, and could write under it.
        if process_id.pid != self._pid:
            problem, hint = "used from another process than its function's", "pass values instead"
            raise PerdureError(problem, target=f"run {self.id}", hint=hint)

    def check_stop(self) -> None:
        """Leaves the function, at a boundary, if it was asked to, or the time is up."""
        self.check()
        if self._stop is None and time.monotonic() > self._look_at:
            with self.asking:
                self.look_for_cancel()
        if self._stop is not None and not (self.tasks and self.tasks.defers(self._stop)):
            raise self.interrupt(self._stop)
        if self._deadline and self.now() >= self._deadline:
            raise self.interrupt(DeadlinePassed("its deadline has passed", target=f"run {self.id}"))

    def look_for_cancel(self) -> None:
        """Looks for a request to end this run; called now and then, and on news."""
        self._look_at = time.monotonic() + LOOK_S
        asked = self.mail.cancels()
        if asked:
            self._stop = Cancelled(str(asked[0].value or ""), target=f"run {self.id}")

    def news(self) -> None:
        """Notes, from any thread, that a message came: it is looked for at the next boundary."""
        self._look_at = 0.0

    def stop(self, reason: PerdureError) -> None:
        """Makes the function leave at a boundary, or while it waits. From any thread."""
        self._stop = reason
        self.wakeups.ring(self.id)

    @property
    def asked_to_stop(self) -> PerdureError | None:
        return self._stop

    @property
    def interrupted(self) -> RunInterrupted | None:
        """The interruption after which this execution may not continue, if there is one."""
        if self._interrupted is None and self.tasks is not None and self.tasks.is_left:
            # Its function's tasks may hear of that before the driver does: it is not their doing.
            self.interrupt(Drained("what ran it was cancelled, or has ended"))
        return self._interrupted and self._interrupted.again()

    def interrupt(self, reason: PerdureError) -> RunInterrupted:
        """Interrupts the function, and keeps interrupting it, whatever it catches."""
        with self._lock:
            first = self._interrupted is None
            interrupted = self._interrupted = self._interrupted or RunInterrupted(reason)
        if self.tasks is not None:
            self.tasks.interrupts()
        if first:
            self.turns.wake_all()
            self.wakeups.ring(self.id)
        return interrupted.again()

    def check_finished(self, error: Exception | None = None) -> None:
        """The function returned, or raised: was everything recorded come to?"""
        self.edits.check_lost()
        with self.stopping:
            self.journal.check_finished(error)
