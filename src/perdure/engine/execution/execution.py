"""One execution of a run in this process: its place in the journal, its state, and its parts.

`run` and `async_run` have what the function sees of it, `performer` and `async_performer` perform
effects on a thread or in an event loop. The parts know the run by its `RunPosition`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.engine.execution.branch_changes import carry_out
from perdure.engine.execution.current_run import counted
from perdure.engine.execution.performer import Performer
from perdure.engine.execution.run_edits import Edits
from perdure.engine.execution.run_position import RunPosition
from perdure.system.late_imports import loading

if TYPE_CHECKING:
    from perdure.engine.execution.async_performer import AsyncPerformer
    from perdure.engine.execution.loop_resources import LoopResources
    from perdure.engine.execution.open_resources import OpenResources
    from perdure.engine.execution.run_tasks import RunTasks

T = TypeVar("T")


class Execution(RunPosition[T]):
    """See the module."""

    performer: Performer
    tasks: RunTasks | None

    _resources: OpenResources | None = None
    _loop_resources: LoopResources | None = None

    _in_own_loops: dict[int, AsyncPerformer] | None = None
    """The performers in loops that its function runs itself, by their threads."""

    def _make_parts(self) -> None:
        self.edits, self.performer = Edits(self), Performer(self)
        self._async_performer: AsyncPerformer | None = None

    @contextmanager
    def alone(self) -> Iterator[None]:
        self.edits.acquire()
        try:
            yield
        finally:
            self.edits.release()

    def carry_out_moves(self) -> None:
        performer = self._async_performer
        if performer is not None and performer.edit_lock.locked():
            return  # at another boundary, once the block has ended
        if self.edits.try_acquire():
            try:
                for message in [*self.mail.moves.values()]:
                    carry_out(self, message)
            finally:
                self.edits.release()

    def _edit_place(self) -> str:
        return self.edits.place

    @property
    def async_performer(self) -> AsyncPerformer:
        """Performs its effects in the event loop that is running."""
        if self._async_performer is not None:
            return self._async_performer
        with self.asking, loading:
            from perdure.engine.execution.async_performer import performer_of_loop

        with self._lock:
            if self._in_own_loops is None:
                self._in_own_loops = {}
        return performer_of_loop(self, self.tasks, self._in_own_loops)

    def runs_in_loop(self, performer: AsyncPerformer) -> None:
        """Notes that its function is about to be called in the event loop of this thread."""
        self._async_performer, self.loop_thread = performer, threading.get_ident()
        if self.tasks is not None:
            self.seeing.tell_lookers(performer.lookers)

    # -- resources ---------------------------------------------------------------------------

    @property
    def resources(self) -> OpenResources:
        """Returns those that its steps and tools hold open."""
        if self._resources is None:
            with self.asking, loading:
                from perdure.engine.execution.open_resources import OpenResources  # for few

            with self._lock:
                if self._resources is None:
                    self._resources = OpenResources(self, self.journal.tickets)
        return self._resources

    @property
    def loop_resources(self) -> LoopResources:
        """Returns those that they hold open in event loops."""
        if self._loop_resources is None:
            with self.asking, loading:
                from perdure.engine.execution.loop_resources import LoopResources

            shared = self.resources
            with self._lock:
                if self._loop_resources is None:
                    self._loop_resources = LoopResources(shared)
        return self._loop_resources

    def close_resources(self) -> None:
        """Closes what it holds open: its function has ended."""
        self.resources_closed = True
        if self._resources is not None:
            self._resources.close()
        if self._loop_resources is not None:
            self._loop_resources.let_go()

    async def close_resources_in_loop(self) -> None:
        """The same for a function that ran in this event loop."""
        self.resources_closed = True
        if self._loop_resources is not None:
            await self._loop_resources.close()
        if self._resources is not None:
            await self.context.in_thread(self._resources.close)

    @property
    def state(self) -> T:
        self.check()
        self.seeing.has_looked = True
        with self._lock:
            # On replay an edit's block is replayed later than it was made: it sees the state that
            # its draft is based on.
            if (self.seeing.ahead or self.edits.stands_on) and self.inside() == "edit":
                return (self.edits.stands_on or self.working).typed
            return self.working.seen


@contextmanager
def executing(execution: Execution[Any]) -> Iterator[None]:
    """Context manager around the call of a run's function: what that holds open is closed behind
    it."""
    with counted():
        try:
            yield
        finally:
            execution.close_resources()
