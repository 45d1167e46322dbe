"""A run that this process drives, as its parts see it: what it records and waits for, and whether
it may go on.

`RunPosition` has where its function is, and `Execution` the parts that perform it.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from perdure.core.format.records import Kept, Placed, WaitBegan
from perdure.engine.execution.activity import Going
from perdure.engine.execution.commit_items import Item
from perdure.engine.execution.interrupts import Asking, Stopping
from perdure.engine.execution.run_inbox import RunInbox
from perdure.engine.execution.run_writer import NewWait, RunWriter
from perdure.engine.execution.undoing_here import UndoingHere
from perdure.engine.execution.wakeups import Wakeups
from perdure.engine.journal.call import Call
from perdure.engine.journal.effects import Await, Came, RecordEffect
from perdure.engine.journal.entry import UNORDERED, Entry
from perdure.engine.journal.journal import Journal, came_short
from perdure.engine.journal.leaving import (
    LATE,
    CancelAsked,
    DeadlinePassed,
    Drained,
    Leaving,
    LeftError,
)
from perdure.engine.journal.prepared_replies import Fakes, PreparedReplies
from perdure.engine.journal.questions import left_open, name_of, too_late
from perdure.engine.journal.release_order import ReleaseOrder
from perdure.engine.journal.scopes import Scope
from perdure.engine.journal.visible_state import Seeing
from perdure.errors import PerdureError, RunInterrupted
from perdure.model import Cause, Message
from perdure.state.context import Context
from perdure.state.working_copy import WorkingCopy
from perdure.storage.appending import NOTHING, Riders
from perdure.system import process_id
from perdure.system.locks import ReentrantLock
from perdure.visible import visible

if TYPE_CHECKING:
    import asyncio

    from perdure.engine.execution.event_pacing import Pace
    from perdure.engine.execution.run_timers import Timers
    from perdure.engine.journal.left_history import Before

T = TypeVar("T")

LOOK_S = 1.0
"""The interval at which a busy run checks by itself whether it is to end."""


class Ends(Struct, frozen=True):
    """The end of a run's time. Moments are in microseconds since 1970; 0: never.

    Attributes:
        at: when its time is up, by its deadline or its time limit; `why`: what to say then.
        deadline: by when the runs that it starts must have ended, too.
    """

    at: int = 0
    why: str = LATE
    deadline: int = 0


NO_END = Ends()


class MakesCalls(Protocol):
    """The performer of a run, as the code of the run knows it."""

    def make(self, call: Call) -> Any:
        """Makes a call of a recorded function, or returns its recorded result."""


class PerformsInLoop(MakesCalls, Protocol):
    """The performer of a run in an event loop, as other parts of the run know it.

    Attributes:
        home: the thread of its loop.
    """

    loop: asyncio.AbstractEventLoop
    home: int
    pace: Pace
    timers: Timers
    new_wait: NewWait


class TasksOfRun(Protocol):
    """The tasks of a run in its event loop, as the run knows them; see `RunTasks`."""

    numbered: bool

    @property
    def is_left(self) -> bool: ...

    def interrupts(self) -> None: ...

    def defers(self, reason: PerdureError | None, *, for_steps: bool = True) -> bool: ...


class CallsHere(Struct):
    """Notes on a run's calls, kept while it executes here.

    Attributes:
        met: see `call_identity.Unsaid`.
        starting: the arguments of the runs that it starts, as digests by their ids: two starts may
            be on their way to the log at once.
        undos: the compensations of tools that it has called, by the tools' names, each once.
        undoing: whether calls are being undone.
    """

    met: dict[int, Any] = {}
    starting: dict[str, str] = {}
    undos: dict[str, dict[int, Any]] = {}
    undoing: UndoingHere = field(default_factory=UndoingHere)


class DrivenRun(Generic[T]):
    """See the module. Its journal and counters may be used by several threads at once."""

    performer: MakesCalls
    tasks: TasksOfRun | None
    """Of the event loop that it runs in, if it does."""

    undoes = ""
    """Set in a turn in which what the run did is undone, before it ends so."""

    resources_closed = False
    """True once its function has ended: nothing more is opened for it."""

    _warned: frozenset[str] = frozenset()
    """The functions of which it was said that they block its loop."""

    def __init__(
        self,
        working: WorkingCopy[T],
        run_id: str,
        journal: Journal,
        wakeups: Wakeups,
        *,
        fakes: Fakes | None = None,
        played: PreparedReplies | None = None,
        ends: Ends = NO_END,
        before: Before | None = None,
        mail: RunInbox | None = None,
    ) -> None:
        self.working, self.id, self.journal = working, run_id, journal
        self.fakes, self.before = fakes or {}, before
        self.wakeups, self.root = wakeups, Scope()
        self.root.home = threading.get_ident()
        self.past_record = False
        """True once the function has come to all that is recorded, and that was all released."""
        self.mail = mail or RunInbox(working.context.backend, run_id)
        self._interrupted: RunInterrupted | None = None
        self._stop: PerdureError | None = None
        self.ends, self.played = ends, played
        self._look_at = time.monotonic() + LOOK_S
        self._pid, self._lock = process_id.pid, ReentrantLock()
        self.seeing = Seeing(working, journal.commits, self._lock, run_id)
        self.turns = ReleaseOrder(journal, self._lock)
        self.leaving = Leaving(self.interrupt, run_id)
        self.writer = RunWriter(working, self.seeing, self.leaving.failed, self._lock)
        self.going = Going(lambda: wakeups.ring(run_id))
        self.calls = CallsHere()
        self.stopping, self.asking = Stopping(self.leaving.passed_on), Asking(self.interrupt)
        self.tasks = None
        self.loop_thread = 0
        self._over: list[WaitBegan] = []
        """The questions that ended here without an answer."""
        self._make_parts()

    def _make_parts(self) -> None:
        """Makes what performs the run's calls and edits, once all that they need is there."""
        raise NotImplementedError

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
    def async_performer(self) -> PerformsInLoop:
        """Performs its effects in the event loop that is running."""
        raise NotImplementedError

    def carry_tickets(self) -> None:
        """Records what openers kept once more, in the commit that begins the next turn: earlier
        turns are not read again."""
        for name, value in self.journal.tickets.items():
            self.writer.later(Riders((Kept(run=self.id, name=name, value=value),)))

    def warn_if_blocking(self, name: str) -> None:
        """Makes a plain call of a synchronous function in asynchronous code; it blocks the loop."""
        if threading.get_ident() == self.loop_thread and name not in self._warned:
            self._warned |= {name}
            warnings.warn(
                f"{visible(name)} is synchronous and holds up the event loop; in asynchronous code "
                f"say `await run.call({visible(name)}, …)`, which calls it on a thread",
                RuntimeWarning,
                stacklevel=3,
            )

    # -- what is recorded ----------------------------------------------------------------------

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

    def _take(self, entry: Entry) -> None:
        """The function has come to it; the lock is held."""
        self.journal.take(entry)
        if self.turns.watching and self.journal.left.first_in(entry.scope) is None:
            self.turns.came_to_all(entry.scope)

    def to_write(self, effect: RecordEffect) -> Item | None:
        """Returns what the writer must commit for an effect now; None if nothing."""
        riders, first = effect.riders, effect.riders.records[0]
        assert isinstance(first, Placed)
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
            self._over.append(over)
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

    def late_answers(self) -> Riders:
        """Returns what refuses the answers to questions that are over without them: an answer may
        come between the last look for it and the commit with the question's end."""
        if self._over:
            self.mail.look()
        if not (answers := self.mail.answers()):
            return NOTHING
        ended = [one for one in self.journal.entries.values() if one.outcome is not None]
        over = [left_open(entry.call, entry.outcome) for entry in ended]
        asked = {name_of(began): began for began in (*over, *self._over) if began is not None}
        late = [answer for answer in answers if answer.name in asked]
        self.mail.take(answer.no for answer in late)
        records = [too_late(self.id, asked[answer.name], answer) for answer in late]
        return Riders(records, consumed=[answer.no for answer in late])

    def scope_ended(self, scope: Scope, error: BaseException | None, *, cancelled: bool) -> None:
        """Handles the end of a task. If it did not reach all that it had recorded, the code has
        changed; nothing waits for the rest any more."""
        with self._lock:
            # Calls of tasks that it made are not its concern: a callback may make them later.
            left = self.journal.left.all_in(scope.path) if self.journal.replaying else []
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

    def came(self, effect: Await) -> Came | int:
        """Returns what a wait waits for, if it is there; see `RunInbox.came`."""
        if self.played is not None:
            return self.played.came(effect)
        with self.asking:
            came = self.mail.came(effect)
            if self.before is None or not isinstance(came, Came):
                return came
            branch = next(one for one in effect.branches if one.label == came.label)
            return replace(came, value=self.before.as_taken(branch, came.value))

    def look_by(self, effect: Await) -> int:
        """Returns the latest time at which a wait must look again; see `RunInbox.look_by`."""
        with self.asking:
            return self.mail.look_by(effect)

    def now(self) -> int:
        """The store's time, in microseconds since 1970."""
        with self.asking:
            return self.context.backend.now()

    # -- telling others ----------------------------------------------------------------------

    def told(self, sent: Sequence[Message]) -> None:
        """Wakes the runs that this one's last commit sent messages to, and ends those of them that
        were asked to end and have not begun."""
        with self.asking:
            self.wakeups.tell(*(message.run for message in sent))
            end = partial(self.wakeups.end_told, sent)
            if self.tasks is None:
                end()
            else:
                self.context.soon(end)  # it commits: its loop is not held up by that

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

    def check_stop(self, *, for_steps: bool = True) -> None:
        """Leaves the function, at a boundary, if it was asked to, or the time is up; see
        `RunTasks.defers`."""
        self.check()
        if self._stop is None and time.monotonic() > self._look_at:
            with self.asking:
                self.look_for_cancel()
        if self.mail.moves and not self.writer.closed:
            self.carry_out_moves()
        reason = self.reason_to_leave()
        if reason is None or (self.tasks and self.tasks.defers(reason, for_steps=for_steps)):
            return
        raise self.interrupt(reason)

    def reason_to_leave(self) -> PerdureError | None:
        """Returns why the function is to be left at a boundary; None if it is not."""
        if self._stop is None and self.ends.at and not self.is_undone:
            self._stop = self.late() if self.now() >= self.ends.at else None
        return self._stop and self.asked_to_stop

    @property
    def is_undone(self) -> bool:
        """True while what the run did is undone: it is not asked to end before."""
        return bool(self.undoes) or self.calls.undoing.is_on

    def late(self) -> DeadlinePassed:
        """Returns the reason to leave a function whose time is up."""
        return DeadlinePassed(self.ends.why, target=f"run {self.id}")

    def carry_out_moves(self) -> None:
        """Does, at a boundary, what others asked of the branch."""
        raise NotImplementedError

    def look_for_cancel(self) -> None:
        """Looks for a request to end this run; called now and then, and on news."""
        self._look_at = time.monotonic() + LOOK_S
        if self.is_undone:
            return
        asked = self.mail.cancels()
        if asked:
            self._stop = CancelAsked(str(asked[0].value or ""), target=f"run {self.id}")

    def news(self) -> None:
        """Notes, from any thread, that a message came: it is looked for at the next boundary."""
        self._look_at = 0.0

    def stop(self, reason: PerdureError) -> None:
        """Makes the function leave at a boundary, or while it waits. From any thread."""
        if self.is_undone and isinstance(reason, CancelAsked | DeadlinePassed):
            return  # it ends so once all is undone
        self._stop = reason
        self.wakeups.ring(self.id)

    @property
    def asked_to_stop(self) -> PerdureError | None:
        stop = self._stop
        if stop is None or not isinstance(stop, CancelAsked | DeadlinePassed):
            return stop
        return None if self.is_undone else stop

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
