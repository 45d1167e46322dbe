"""The worker: it runs what `start` requested, and resumes runs that waited or lost their
executor."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from perdure.core.arguments.checks import count, flag, function, iterable
from perdure.core.arguments.exact_types import is_a
from perdure.core.arguments.names import check_name, shown, words_of
from perdure.engine.dispatch.backoff import AGAIN_MAX_S, UNAVAILABLE_MAX_S, Troubles
from perdure.engine.dispatch.drive import Drive
from perdure.engine.dispatch.drive_end import BranchTaken, FinishedMeanwhileError, RunResult
from perdure.engine.dispatch.lifespans import Lifespan, Lifetime
from perdure.engine.dispatch.pending_orders import LOOKING_MAX
from perdure.engine.dispatch.picking import NeedsCallerError, Pick, Picker
from perdure.engine.dispatch.runner import Runner
from perdure.engine.dispatch.worker_events import WorkerEvent
from perdure.engine.dispatch.worker_jobs import WorkerJob, ask_to_leave, give_way
from perdure.engine.dispatch.worker_signals import heeding
from perdure.engine.execution.wakeups import POLL_S
from perdure.engine.functions.agent_functions import AgentFunctions, AgentSpec, spec_of
from perdure.engine.functions.decorators import MARK
from perdure.engine.journal.leaving import Drained
from perdure.errors import Fenced, NeedsAttention, PerdureError, StoreUnavailable
from perdure.model import FINISHED, RunInfo
from perdure.storage.capabilities import RunQuery
from perdure.storage.log.refusals import HeldError
from perdure.storage.standing import ClosedError
from perdure.system import logs
from perdure.system.late_imports import loading
from perdure.system.threads import begin

if TYPE_CHECKING:
    from perdure.engine.dispatch.loop_thread import OwnLoop

DEATH_S = 0.05
"""The interval at which an idle worker checks whether another executor has died: a look-up of a
lock file and of a row for each. A takeover waits this long."""

OTHERS_MAX = 32
TRIES = 5
"""The number of tries to record a run's end before a person is asked."""

TAKE_UP_S = 60.0
_log = logs.logger("perdure.worker")


_News = Literal["begun", "over"]


class OpenStore(Protocol):
    """A store that is open, as `perdure.open` returns one."""

    @property
    def runner(self) -> Runner: ...


class Worker:
    """Runs agent functions for a store: runs requested by `Store.start`, waiting runs that are due,
    and runs left by executors that died.

    Any number of workers may share a store, in any number of processes: a run is executed by the
    worker that has the lease of its branch. Runs of one branch are executed one after the other. A
    waiting run takes no memory in any worker.

    Args:
        store: an open store; it is not closed.
        functions: the agent functions that the worker can run. It takes the runs of all versions
            of them that this program has, and of those that these replay.
        queues: the queues that it serves.
        limit: the number of runs that it executes at a time. Each run of a plain function has a
            thread; those of ``async def`` functions share one event loop, on one thread.
        on_event: called with each event, on the thread of `run`.
        lifespan: makes a context manager, asynchronous or not, that is entered as `run` begins, and
            left once it has drained; `perdure.lifespan` is its value in the runs.

    Raises:
        TypeError: one is not an agent function.
        ValueError: there are no functions or no queues, two functions have the same name and
            version, or the limit is below 1.
    """

    def __init__(
        self,
        store: OpenStore,
        functions: Iterable[Callable[..., Any]],
        queues: Sequence[str] = ("default",),
        limit: int = 8,
        *,
        on_event: Callable[[WorkerEvent], None] | None = None,
        lifespan: Callable[[], Lifetime] | None = None,
    ) -> None:
        runner = getattr(store, "runner", None)
        if not is_a(runner, Runner):
            raise TypeError(f"store is one from perdure.open, not {shown(store)}")
        known = AgentFunctions(iterable(functions, "functions"))
        if not known.names:
            raise ValueError("functions: there must be one at least")
        if isinstance(queues, str) or not (queues := words_of(queues, "queues")):
            raise ValueError(f"queues={shown(queues)}: must be names of queues, one at least")
        queues = [check_name(name, "a queue") for name in queues]
        limit = count(limit, "limit=", least=1)
        if on_event is not None:
            function(on_event, "on_event=")
        if lifespan is not None:
            function(lifespan, "lifespan=, what makes a context manager,")
        self._runner = store.runner
        self._context = store.runner.context
        self._functions, self._queues = known, queues
        self._troubles = Troubles()
        self._picker = Picker(store.runner, known, queues, self._troubles.hold_off)
        self._limit = limit
        self._on_event = on_event
        self._jobs: dict[str, WorkerJob] = {}
        self._shut: ClosedError | None = None
        # Not an Event: a signal handler may put into this queue whatever it interrupted.
        self._news: queue.SimpleQueue[tuple[_News, WorkerJob] | None] = queue.SimpleQueue()
        self._stopping = False
        self._loop: OwnLoop | None = None
        self._lifespan = Lifespan(lifespan)
        self._others: list[str] = []
        self._take_up_at = self._give_way_at = 0.0
        self._end_serving: Callable[[], None] = lambda: None

    @staticmethod
    def can_run(function: object) -> bool:
        """Returns True if it is an agent function."""
        return isinstance(getattr(function, MARK, None), AgentSpec)

    @property
    def functions(self) -> list[str]:
        """Names of the functions that it runs."""
        return self._functions.names

    @property
    def running(self) -> list[str]:
        """Ids of the runs that it is at."""
        return list(self._jobs)

    # -- from begin to end -----------------------------------------------------------------------

    def run(self, *, signals: bool = True) -> None:
        """Works until `stop` is called, or SIGTERM or SIGINT comes; then drains: picks up nothing
        more, and leaves each run at its next step or tool call, for others to resume at once.

        Args:
            signals: on the main thread, handle those signals; a second one ends the process at
                once, as a crash would.

        Raises:
            Corrupt: the store cannot be read. While it is merely unavailable, this keeps trying.
            Exception: that of its lifespan.
        """
        flag(signals, "signals=")
        with (
            heeding(self.stop, lambda: self._stopping, wanted=signals),
            self._runner.wakeups.watch(None, self._ring),
        ):
            back_s, served = 0.0, False
            try:
                self._lifespan.begin(self._own_loop)
                while not self._stopping and not self._context.closed:
                    try:
                        if not served:
                            self._begin()
                            served = True
                        wait_s = self._look()
                    except StoreUnavailable as error:
                        if not back_s and not self._context.closed:  # else it just ends
                            self._say(WorkerEvent("unavailable", words=str(error)))
                        back_s = wait_s = min(back_s * 2 or DEATH_S, UNAVAILABLE_MAX_S)
                    else:
                        if back_s:
                            self._say(WorkerEvent("available"))
                        back_s = 0.0
                    self._wait(wait_s)
            finally:
                self._drain()

    def stop(self) -> None:
        """Asks it to drain, and returns at once; `run` returns when it has. Callable from any
        thread, and from a signal handler."""
        self._stopping = True
        self._news.put(None)

    def _begin(self) -> None:
        self._end_serving = self._runner.liveness.serve(self._functions.served(self._queues))
        self._take_up_at = 0.0
        self._say(WorkerEvent("ready", words=", ".join(self._functions.words)))

    def _drain(self) -> None:
        """Waits until all runs are left; then records that nothing is served here any more."""
        if self._jobs:
            self._say(WorkerEvent("draining", words=f"{len(self._jobs)} running"))
        self._stopping = True
        while self._jobs:
            ask_to_leave(self._jobs)
            self._wait(DEATH_S)
        try:
            self._lifespan.end()
        finally:
            self._end()

    def _end(self) -> None:
        if self._loop is not None:
            self._loop.stop()
            self._loop = None
        self._end_serving()
        self._end_serving = lambda: None
        try:
            if not self._context.closed:
                self._context.backend.maintain("flush")
        except PerdureError as error:
            _log.warning("flushing the store: %s", error)
        self._stopping = False
        self._say(WorkerEvent("stopped"))

    # -- waiting for something to do -------------------------------------------------------------

    def _ring(self) -> None:
        self._news.put(None)

    def _wait(self, wait_s: float) -> None:
        """Waits until there is news, an executor died, or the time is over."""
        until = time.monotonic() + wait_s
        while True:
            left_s = max(until - time.monotonic(), 0.0)
            try:
                news = self._news.get(timeout=min(left_s, DEATH_S) if self._others else left_s)
            except queue.Empty:
                if left_s <= DEATH_S or self._somebody_died():
                    return
                continue
            look = False
            with contextlib.suppress(queue.Empty):
                while True:
                    look |= news is None or news[0] == "over"
                    if news is not None:
                        self._take_news(*news)
                    news = self._news.get_nowait()
            if look:  # that one of its runs has begun leaves nothing new to begin
                return

    def _somebody_died(self) -> bool:
        try:
            return not all(map(self._context.backend.alive, self._others))
        except PerdureError:
            return True  # the next look says what is the matter

    def _take_news(self, what: _News, job: WorkerJob) -> None:
        if what == "begun":
            self._picker.note_begun(job.pick)
            row = job.pick.row
            words = "it had no executor" if row is not None and row.status == "running" else ""
            self._say(WorkerEvent("resumed" if row else "started", job.pick.run, words))
        else:
            self._jobs.pop(job.pick.run, None)
            self._conclude(job)

    # -- picking up --------------------------------------------------------------------------------

    def _look(self) -> float:
        """Begins the runs that can be begun; returns the seconds until there is more to do."""
        backend = self._context.backend
        self._runner.liveness.start()
        self._runner.liveness.settle()
        self._check_open()
        if time.monotonic() >= self._take_up_at:
            self._picker.settle_left()
            self._take_up_at = time.monotonic() + TAKE_UP_S
        ours, living = self._context.executor, [row for row in backend.executors() if row.alive]
        self._others = [row.id for row in living if row.id != ours][:OTHERS_MAX]
        self._picker.see(living)
        if not self._free():
            if time.monotonic() >= self._give_way_at:
                give_way(self._jobs.values(), self._picker.picks(self._taken, self._free, False))
                self._give_way_at = time.monotonic() + POLL_S
            return POLL_S  # one that ends is news
        began, read_s, now = time.monotonic(), self._picker.read_s, backend.now()
        self._troubles.forget_old()
        for pick in self._picker.picks(self._taken, self._free, bool(self._others)):
            self._start(pick)
            if not self._free() or self._stopping:
                break
        for row in self._picker.note_unknown():
            self._tell_status(row.id, 0.0)
        read_s = self._picker.read_s - read_s  # which has a bound of its own
        wait_s = max(POLL_S, (time.monotonic() - began - read_s) / LOOKING_MAX)
        if (wake_at := backend.next_wake()) > now:  # else none; or one that is due for others
            wait_s = min(max((wake_at - backend.now()) / 1e6, 0.0), wait_s)
        return min([wait_s, *self._troubles.waits_s()])

    def _free(self) -> int:
        return self._limit - len(self._jobs)

    def _taken(self, run: str, agent: str, branch: str) -> bool:
        return self._troubles.holds_off(run) or any(
            job.pick.agent == agent and job.pick.branch == branch for job in self._jobs.values()
        )

    # -- executing ---------------------------------------------------------------------------------

    def _start(self, pick: Pick) -> None:
        job = self._jobs[pick.run] = WorkerJob(pick, time.monotonic())
        try:
            if spec_of(pick.function).is_async:
                self._own_loop().start(self._execute_async(job))
            else:  # a daemon: one in the middle of a long step must not hold up the second signal
                name = f"perdure-run {pick.run}"
                begin(threading.Thread(target=self._execute, args=(job,), name=name, daemon=True))
        except (RuntimeError, StoreUnavailable) as error:  # the system gives no more threads
            job.error = error
            self._news.put(("over", job))

    def _own_loop(self) -> OwnLoop:
        if self._loop is None:
            with loading:  # asyncio: for who needs it
                from perdure.engine.dispatch.loop_thread import OwnLoop
            self._loop = OwnLoop("perdure-worker-loop")
        return self._loop

    def _execute(self, job: WorkerJob) -> None:
        if not job.take():
            return
        self._lifespan.enter()
        try:
            drive = self._prepare(job)
            job.end = self._runner.execute(drive) if drive is not None else "gone"
        except BaseException as error:  # also SystemExit: it ends the run's thread, not the worker
            job.error = error
        self._news.put(("over", job))

    async def _execute_async(self, job: WorkerJob) -> None:
        if not job.take():
            return
        self._lifespan.enter()
        try:
            drive: Any = await self._context.in_thread(self._prepare, job)
            job.end = await self._runner.execute_async(drive) if drive is not None else "gone"
        except BaseException as error:
            job.error = error
        self._news.put(("over", job))

    def _prepare(self, job: WorkerJob) -> Drive | None:
        command = self._picker.command(job.pick)
        if command is None:
            self._picker.tell_gone(job.pick)
            return None
        drive = self._runner.drive(command, job.pick.look)

        def wanted(info: RunInfo | None) -> bool:
            return not self._stopping and self._picker.still(drive.look, info)

        def begun() -> None:
            job.begun = True
            self._news.put(("begun", job))

        drive.wanted, drive.begun = wanted, begun
        job.drive = drive
        return drive

    # -- how it ended ------------------------------------------------------------------------------

    def _conclude(self, job: WorkerJob) -> None:
        run, seconds = job.pick.run, time.monotonic() - job.since
        error = job.error
        if not job.begun and isinstance(error, NeedsCallerError):
            words = "its arguments were not stored: run it where it was called from"
            self._say(WorkerEvent("trouble", run, words))
        elif isinstance(error, Fenced):
            self._say(WorkerEvent("lost", run, error.problem, seconds))
        elif isinstance(error, HeldError | BranchTaken | FinishedMeanwhileError):
            # Another worker was faster; or the run had been asked to end.
            self._troubles.hold_off(run, DEATH_S)
            if job.begun:
                self._tell_status(run, seconds, job.pick.row, error)
        elif isinstance(error, Drained):
            self._runner.wakeups.tell(run)
            self._say(WorkerEvent("left", run, "", seconds))
        elif job.end == "gone":
            self._troubles.hold_off(run, AGAIN_MAX_S)
        elif error is None:
            self._troubles.end(run)
            if isinstance(job.end, RunResult):
                self._say(WorkerEvent("done", run, "", seconds))
            else:
                self._tell_status(run, seconds)
        elif isinstance(error, ClosedError):
            self._closed(run, error)
        elif not self._tell_status(run, seconds, job.pick.row, error):
            self._trouble(job, error, seconds)

    def _closed(self, run: str, error: ClosedError) -> None:
        """Handles a store, or an agent, that refuses writes: it follows another store, or was moved
        there."""
        known = run in self._troubles
        self._troubles.hold_off(run, UNAVAILABLE_MAX_S)
        with contextlib.suppress(PerdureError):  # the next look says what is the matter
            if self._is_closed():
                self._shut = error
                self._troubles.end(run)
            elif not known:
                self._say(WorkerEvent("trouble", run, str(error)))

    def _is_closed(self) -> bool:
        standing = self._context.backend.standing()
        return standing is not None and standing.closed

    def _check_open(self) -> None:
        """Raises ClosedError if the store took no writes when last tried, and still takes none."""
        if self._shut is not None and self._is_closed():
            raise self._shut
        self._shut = None

    def _tell_status(
        self,
        run: str,
        seconds: float,
        before: RunInfo | None = None,
        error: BaseException | None = None,
    ) -> bool:
        """Reports the outcome of the run; returns False if it has none.

        Args:
            before: its row as it was picked up.
            error: what its execution raised: one that says that it waits did not.
        """
        try:
            found = self._context.backend.runs(RunQuery(run_id=run))
        except PerdureError:
            return False
        over = (*FINISHED, "needs_attention")
        ends = over if error else (*over, "waiting")
        if not found or found[0].status not in ends:
            return False
        if before is not None and found[0].changed_at_micros == before.changed_at_micros:
            return False
        words = found[0].waits or found[0].problem or ""
        failed = error if found[0].status == "failed" else None
        self._say(WorkerEvent(found[0].status, run, words, seconds), failed)
        return True

    def _trouble(self, job: WorkerJob, error: BaseException, seconds: float) -> None:
        """Handles a run that ended without a recorded outcome: it is tried again, later and later;
        in the end a person is asked (I8)."""
        run = job.pick.run
        problem = f"{type(error).__name__}: {error}"
        store = isinstance(error, StoreUnavailable)
        if not store and (count := self._troubles.count(run)) >= TRIES:
            reason = NeedsAttention(
                f"it was tried {count} times without an outcome, with {problem}",
                target=f"run {run}",
                hint="put that right and resume the run, or cancel it",
            )
            try:
                self._picker.give_up(job.pick, reason)
            except PerdureError as refused:
                problem += f" (and this cannot be noted: {refused.problem})"
            else:
                self._troubles.end(run)
                self._tell_status(run, seconds)
                return
        troubles = self._troubles
        again_s = troubles.blame_the_store(run) if store else troubles.try_later(run)
        if troubles.is_news(run, problem):  # else its log would hold nothing but that
            again = f"{problem} (tried again in {again_s:g} s, then later and later)"
            self._say(WorkerEvent("trouble", run, again, seconds), None if store else error)

    def _say(self, event: WorkerEvent, error: BaseException | None = None) -> None:
        warn = event.kind in ("failed", "needs_attention", "trouble", "unavailable", "lost")
        level = logging.WARNING if warn else logging.INFO
        subject = f"run {event.run}" if event.run else "worker"
        colon = ": " if event.words else ""
        _log.log(level, "%s %s%s%s", subject, event.kind, colon, event.words, exc_info=error)
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception as failed:  # e.g. nobody reads what is printed: the runs go on
            ours = None if isinstance(failed, OSError) else failed
            _log.warning("telling of %s: %s", event.kind, failed, exc_info=ours)
