"""Starting, resuming and standing by for runs: who executes one, and when."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from perdure.engine.control.unbegun import end_told
from perdure.engine.control.wait_circles import WaitingInPlace
from perdure.engine.dispatch.automatic_points import Watcher
from perdure.engine.dispatch.command import Command
from perdure.engine.dispatch.conclusion import Means
from perdure.engine.dispatch.drive import Drive
from perdure.engine.dispatch.drive_end import BranchTaken, End, FinishedMeanwhileError, RunResult
from perdure.engine.dispatch.heartbeat import LEASE_TTL, Heartbeat
from perdure.engine.execution.current_run import current
from perdure.engine.execution.execution import Execution
from perdure.engine.execution.performer import drive
from perdure.engine.execution.wakeups import POLL_S, Wakeups
from perdure.engine.functions.orders import Order, refuse_branch, refuse_others
from perdure.engine.functions.other_versions import of_another
from perdure.engine.functions.run_lookup import asked_for, is_known
from perdure.engine.journal.leaving import is_drained
from perdure.errors import Fenced, PerdureError, RunFailed
from perdure.missing import MISSING
from perdure.model import MAIN, Message, RunInfo
from perdure.state.checkpoint_policy import CheckpointPolicy
from perdure.state.context import Context
from perdure.state.initial_state import Brought
from perdure.state.runs.run_rows import DELETED, FINISHED
from perdure.storage.capabilities import RunQuery, Sent
from perdure.storage.log.refusals import HeldError
from perdure.system.late_imports import loading
from perdure.system.locks import Lock
from perdure.visible import visible

if TYPE_CHECKING:
    from perdure.engine.dispatch.async_drive import AsyncDrive
    from perdure.storage.looks import Look

BETWEEN_S = 10.0
"""The time for which a caller stands by where the last program has gone that could continue its
run: it may only be restarted."""

STANDBY_S = 0.02
MOVED_S = 0.001
"""The wait before looking again after something moved during a look."""

"""The interval at which a standby checks whether the owner has ended. The lock file's look-up costs
10 µs."""


class _Wait(Struct, frozen=True):
    """There is nothing to do for so long, or until there is news."""

    seconds: float


class _Execute(Struct, frozen=True):
    """The plan to execute the run in this process."""

    drive: Drive


class _Raised(Struct, frozen=True):
    """The end of a run with an error that no generator can raise."""

    error: StopIteration


_Plan = Generator[_Wait | _Execute, Any, Any]


class Runner:
    """Executes runs for one open store."""

    def __init__(self, context: Context, lease_ttl: timedelta = LEASE_TTL) -> None:
        self._context = context
        liveness = Heartbeat(context, lease_ttl)
        self.wakeups = Wakeups(context, liveness.leaked)
        self.wakeups.end_told = partial(end_told, context, self.wakeups)
        self._means = Means(context, liveness, self.wakeups)
        self._going: set[Execution[Any]] = set()
        self._watched: dict[Drive, Watcher] = {}
        self._lock = Lock()

    @property
    def liveness(self) -> Heartbeat:
        """For the worker: how this executor says that it lives."""
        return self._means.liveness

    @property
    def context(self) -> Context:
        """The open store."""
        return self._context

    def drive(self, command: Command, look: Look | None = None) -> Drive:
        """Returns an attempt at executing a run here; for an ``async def`` function, one for
        `execute_async`.

        Args:
            look: a look of just now; None to look.
        """
        if not command.spec.is_async:
            return Drive(self._means, command, look)
        with loading:
            from perdure.engine.dispatch.async_drive import AsyncDrive

        return AsyncDrive(self._means, command, look)

    def close(self) -> None:
        self.wakeups.close()
        self._means.liveness.stop()

    # -- one run, to its end -----------------------------------------------------------------

    def run(self, command: Command) -> Any:
        """Starts the run, resumes it, or stands by while a living executor has it; see
        `Store.run`."""
        self._refuse_waiting_for_itself(command)
        first = self.drive(command)
        plan = self._until_finished(command, first)
        here = WaitingInPlace(self._context, self.wakeups, first.id)
        with self.wakeups.watch(first.id) as watch, here:

            def perform(wanted: _Wait | _Execute) -> End | None:
                if isinstance(wanted, _Execute):
                    return self.execute(wanted.drive)
                here.refuse()
                watch.wait(wanted.seconds)
                return None

            return _result(drive(plan, perform))

    async def run_async(self, command: Command) -> Any:
        """Runs a command in the event loop; see `run`. Blocking work is done on the store's
        threads."""
        with loading:
            from perdure.state.event_loop.loop_waits import (  # asyncio: only for who has it anyway
                LoopWait,
                bell,
            )

        self._refuse_waiting_for_itself(command)
        in_thread = self._context.in_thread
        first = await in_thread(self.drive, command)
        plan = self._until_finished(command, first)
        wait = LoopWait(bell())
        here = WaitingInPlace(self._context, self.wakeups, first.id, alone=False)
        with self.wakeups.watch(first.id, lambda: wait.done()):
            wanted, ended = await in_thread(_step, plan, None, None)
            while not ended:
                outcome, error = None, None
                if isinstance(wanted, _Wait):
                    await in_thread(here.refuse)
                    await wait.rest(wanted.seconds)
                    wait = LoopWait(bell())
                else:
                    try:
                        outcome = await self.execute_async(wanted.drive)
                    except Exception as raised:
                        error = raised
                wanted, ended = await in_thread(_step, plan, outcome, error)
            return _result(wanted)

    def _until_finished(self, command: Command, first: Drive) -> _Plan:
        """Yields the next things to do, until there is a result to return or an error to raise.

        Args:
            first: made before the caller waits for news of its run.
        """
        drive, until = first, 0.0
        self._refuse_branch(command.order, first.id)
        while True:
            info = drive.find() if drive.id == first.id else self._ended_with_agent(first)
            if info is not None and info.status in FINISHED:
                try:
                    return drive.recorded(info)
                except StopIteration as error:
                    return _Raised(error)
            drive.refuse_other_arguments(info)
            self._means.liveness.settle()
            if drive.choose_function(info):
                wait_s = self._must_wait(drive, info)
            elif self._others_can(drive, info):
                wait_s, until = POLL_S, time.monotonic() + BETWEEN_S
            elif time.monotonic() < until:
                wait_s = POLL_S
            else:
                raise of_another(drive.id, command.order.function, drive.version, command.spec)
            if wait_s:
                if drive is not first:  # else there may have been news since
                    yield _Wait(wait_s)
                drive = self.drive(command)
                continue
            self._means.liveness.start()
            try:
                end: End = yield _Execute(drive)
            except (HeldError, Fenced, FinishedMeanwhileError):
                pass  # another executor was faster, or took over: stand by for its result
            except BranchTaken:
                pass  # by a run that began since this one looked: it says what to do about that
            except StopIteration as error:
                return _Raised(error)
            else:
                if isinstance(end, RunResult):
                    return end.result
            drive = self.drive(command)

    def _ended_with_agent(self, drive: Drive) -> RunInfo:
        """Returns the row of a run whose agent was deleted while its caller waited: the next agent
        of that name is another one, on which nobody asked for anything.

        Raises:
            RunFailed: it was purged, too, or the run had not begun.
        """
        rows = self._context.backend.runs(RunQuery(run_id=drive.id))
        if rows and rows[0].status in FINISHED:
            return rows[0]
        raise RunFailed(f"was cancelled: {DELETED}", target=f"run {drive.id}")

    def _must_wait(self, drive: Drive, info: RunInfo | None) -> float:
        """Returns the seconds to wait before the next look, if a living executor has this run, or
        it waits, or another run has the branch; 0 if there is no need to.

        Raises:
            BranchTaken: the other run has no executor.
        """
        if info is not None and info.status == "waiting":
            wait_s = self._until_due(drive, info)
            if wait_s:
                return wait_s
        reader = drive.working.reader_if_created()
        if reader is None:
            return 0.0
        ref = drive.look.ref(reader.no, drive.working.branch)
        live = (
            ref is not None
            and ref.holder is not None
            and not self._means.liveness.leaked(reader.name, reader.no, ref)
            and self._context.backend.alive(ref.holder)
        )
        if live:
            return STANDBY_S
        try:
            drive.refuse_while_another_is_unfinished(info)
        except BranchTaken as taken:
            if taken.run.status == "waiting":
                return POLL_S  # it goes on by itself when what it waits for comes
            if drive.look.again().ref(reader.no, drive.working.branch) != ref:
                return MOVED_S  # it was somebody's, as it was looked at, and has ended since
            raise
        return 0.0

    def _others_can(self, drive: Drive, info: RunInfo | None) -> bool:
        """Returns True if a living executor can continue a run that this program cannot, or has
        it."""
        backend = self._means.context.backend
        if info is None:
            asked = drive.look.inbox("start")
            if not asked:  # it has begun since
                return True
            info = asked_for(asked[0])
        if any(row.runs(info.function, info.queue, info.version) for row in backend.executors()):
            return True
        reader = drive.working.reader_if_created()
        ref = drive.look.ref(reader.no, drive.working.branch) if reader is not None else None
        return ref is not None and ref.holder is not None and backend.alive(ref.holder)

    def _until_due(self, drive: Drive, info: RunInfo) -> float:
        """Returns the seconds that a waiting run must wait at most; 0 if something came."""
        if any(m.no > info.seen or m.kind == "cancel" for m in drive.look.inbox()):
            return 0.0
        if not info.wake_at_micros:
            return POLL_S
        return min(max((info.wake_at_micros - self._context.backend.now()) / 1e6, 0.0), POLL_S)

    def _refuse_waiting_for_itself(self, command: Command) -> None:
        frame = current()
        while frame is not None:
            run = frame.run
            agent = command.order.agent
            if run is not None and run.agent == agent and run.context is self._context:
                raise PerdureError(
                    f"run {visible(run.id)} has the agent, and would wait for itself",
                    target=f"agent {agent!r}",
                    hint="call the function as it is, or run it on another agent",
                )
            frame = frame.outer

    # -- one execution -----------------------------------------------------------------------

    def execute(self, drive: Drive) -> End:
        """Execute a run here until it ends or waits."""
        drive.going = self._note_going(drive)
        try:
            return drive.run()
        finally:
            self._note_gone(drive)
            self._end_watch(drive)

    async def execute_async(self, drive: AsyncDrive) -> End:
        """Executes a drive in the event loop; see `execute`."""
        drive.going = self._note_going(drive)
        try:
            return await drive.run_async()
        finally:
            self._note_gone(drive)
            if drive in self._watched:
                await self._context.in_thread(self._end_watch, drive)

    def _note_going(self, drive: Drive) -> Any:
        def going(execution: Execution[Any]) -> None:
            with self._lock:
                before, drive.execution = drive.execution, execution
                self._going.add(execution)
                if before is not None:
                    self._going.discard(before)
                    execution.going.follow(before.going)
                    if before.asked_to_stop is not None:  # since its turn ended
                        execution.stop(before.asked_to_stop)
            policy = self._context.checkpoints
            if before is None and policy is not None:
                self._watch(drive, policy)

        return going

    def _watch(self, drive: Drive, policy: CheckpointPolicy) -> None:
        working = drive.working
        info = self._context.backend.agent(working.name, working.incarnation)
        if info is not None:
            watcher = self._watched[drive] = Watcher(self._context, policy, info, working.branch)
            if policy.watches:
                watcher.start()

    def _end_watch(self, drive: Drive) -> None:
        """Ends the watch over a run, once that is left."""
        watcher = self._watched.pop(drive, None)
        if watcher is not None:
            execution = drive.execution
            watcher.stop(leaves=execution is not None and is_drained(execution.interrupted))

    def _note_gone(self, drive: Drive) -> None:
        with self._lock:
            if drive.execution is not None:
                self._going.discard(drive.execution)

    def stop_all(self, reason: PerdureError) -> int:
        """Asks all runs that are executed here to leave their functions at the next boundary.

        Returns:
            How many there are.
        """
        with self._lock:
            for execution in self._going:
                execution.stop(reason)
            return len(self._going)

    # -- without executing -------------------------------------------------------------------

    def start(self, order: Order, first: Callable[[], Brought]) -> str:
        """Requests a run, durably; a worker picks it up. A repeated request has no effect.

        Args:
            first: makes the state to create the agent with, if that is not there.

        Returns:
            Its id.

        Raises:
            Conflict: it was asked for with other arguments; or a run of this key would begin on
                another branch than its key names. NotFound: its branch is not there.
            SchemaError: from `first`.
        """
        backend = self._context.backend
        while True:
            info = backend.agent(order.agent)
            is_there = info is not None and not info.deleted
            plain = replace(order, first=None if is_there else first()).to_plain()
            run = order.run_id_beside(info)
            self._refuse_branch(order, run)
            sent = self._context.send(Message(run, order.agent, "start", order.function, "", plain))
            if isinstance(sent, Sent):
                break  # else its agent was deleted meanwhile: it is asked for of the next one
        if not sent.fresh:
            begun = sent.message.value is MISSING
            rows = backend.runs(RunQuery(run_id=run)) if begun else []
            refuse_others(order, run, rows[0] if rows else None, [] if begun else [sent.message])
        self.wakeups.tell(run)
        return run

    def _refuse_branch(self, order: Order, run: str) -> None:
        """Refuses a run that nobody knows, on a branch that is not there; see `refuse_branch`."""
        named = "@" in order.key or order.branch != MAIN
        if named and not is_known(self._context.backend, run):
            refuse_branch(order, self._context.backend)


def _result(found: Any) -> Any:
    """Returns what a plan came to, or raises it."""
    if isinstance(found, _Raised):
        raise found.error
    return found


def _step(plan: _Plan, outcome: Any, error: BaseException | None) -> tuple[Any, bool]:
    """Sends a plan the outcome of the last thing; returns the next one, or the plan's result and
    True."""
    try:
        if error is not None:
            return plan.throw(error), False
        return plan.send(outcome), False
    except StopIteration as stop:
        return stop.value, True
