"""The jobs of a worker: a run in each of its places."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct, field

from perdure.engine.dispatch.drive import Drive
from perdure.engine.dispatch.picking import Pick
from perdure.engine.execution.execution import Execution
from perdure.engine.journal.leaving import Drained


class WorkerJob(Struct, eq=False):
    """A run that a worker is at. Once it is `begun`, it has the lease."""

    pick: Pick
    since: float
    untaken: list[None] = field(default_factory=lambda: [None])
    drive: Drive | None = None
    begun: bool = False
    end: Any = None
    error: BaseException | None = None

    def take(self) -> bool:
        """Returns True for the first who takes it: the thread or task that executes it; or the
        worker, where an exception came before one was started."""
        try:
            self.untaken.pop()
        except IndexError:
            return False
        return True

    @property
    def execution(self) -> Execution[Any] | None:
        """The run's execution; None if its function is not called yet."""
        return self.drive.execution if self.drive is not None else None


def ask_to_leave(jobs: dict[str, WorkerJob]) -> None:
    """Asks the runs to leave: the worker is ending. Drops those that nobody executes, nor will:
    there would be no word of their end."""
    for run, job in [*jobs.items()]:
        execution = job.execution
        if job.take():
            del jobs[run]
        elif execution is not None and execution.asked_to_stop is None:
            execution.stop(Drained("this worker is ending", target=f"run {run}"))


def give_way(jobs: Iterable[WorkerJob], due: Iterable[Pick]) -> None:
    """Lets as many runs be unloaded that wait for moments as others are due: a short time is waited
    for in place, and one that waits for one after the other would keep that for ever."""
    waiting = [
        execution
        for job in sorted(jobs, key=lambda job: job.since)
        if (execution := job.execution) is not None
        and execution.going.has_waited
        and not execution.going.gives_way
    ]
    for execution, _ in zip(waiting, due, strict=False):  # so nobody looks where none waits
        execution.going.gives_way = True
        execution.wakeups.ring(execution.id)
