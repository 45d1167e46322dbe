"""Going back on an agent's branch, from outside: undo, redo, rollback, adoption."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from perdure.core.arguments.checks import Seconds, count
from perdure.core.arguments.names import check_words, shown
from perdure.core.undo.undo_plan import RunChanges
from perdure.engine.control.delivery import Delivery, is_own
from perdure.engine.execution.performer import drive as perform
from perdure.engine.functions.run_lookup import find_run
from perdure.errors import Conflict, NotFound
from perdure.model import Cause, RunInfo
from perdure.state import time_travel
from perdure.state.commit_lookup import Where, place_of, resolve
from perdure.state.context import Context
from perdure.state.halting import HALT_S, LOOK_S, Halt
from perdure.state.time_travel import BranchMove
from perdure.state.working_copy import Flow, WorkingCopy, drive
from perdure.visible import visible

T = TypeVar("T")
R = TypeVar("R")

Step = Flow[Any] | Callable[[], Any] | float
"""A flow to drive with the handle's lock; a call that may block; seconds to pause."""
Steps = Generator[Step, Any, BranchMove]
"""A way back, for the driver of either face."""


class HasRunId(Protocol):
    """A run's handle, or its row."""

    @property
    def id(self) -> str: ...


def id_of(run: HasRunId | str) -> str:
    """Returns the id of a run.

    Raises:
        TypeError: it is neither an id nor something that has one.
    """
    given: Any = run if isinstance(run, str) else getattr(run, "id", None)
    if not isinstance(given, str):
        raise TypeError(f"a run must be its id or its handle, not {shown(run)}")
    return check_words(given, "a run's id")


def _going_back(
    working: WorkingCopy[Any],
    flow: Callable[[], Flow[BranchMove]],
    cancel_run: bool,
    timeout: Seconds,
    asked: Delivery | None = None,
) -> Steps:
    """Goes back by `flow`; where a run executes, has it do that, or ends it first."""
    halt = Halt(working, cancel_run=cancel_run, timeout=timeout)
    while True:
        if asked is not None and asked.pending:
            done: BranchMove | None = yield asked.look
            if done is not None:
                # What keeps this program from reading the state, as a schema that is too new for
                # it, is said by the next look, as behind a move of its own: this one is done.
                with suppress(Conflict):
                    yield _forgetting(working)
                return done
        else:
            try:
                moved: BranchMove = yield flow()
                return moved
            except Conflict as refused:
                if not refused.retry or is_own(working):
                    raise
                ask = halt.ask if cancel_run or asked is None else asked.ask
                again = partial(ask, refused)
            yield again
        yield LOOK_S


def _forgetting(working: WorkingCopy[Any]) -> Flow[None]:
    """Drops the state in memory: the next look reads the log."""
    yield working.forget


class GoingBack(Generic[T]):
    """The ways back of an agent's branch, for its handles."""

    _context: Context
    _working: WorkingCopy[T]

    def _resolve(self, where: Where) -> int:
        return resolve(self._working.reader, self._working.branch, where)

    def _do(self, flow: Flow[R]) -> R:
        with self._working.lock:
            return drive(self._context, flow)

    def _take(self, steps: Steps) -> BranchMove:
        """Takes the steps of a way back, on this thread."""

        def does(step: Step) -> Any:
            if isinstance(step, float):
                return time.sleep(step)
            return self._do(step) if isinstance(step, Generator) else step()

        with closing(steps):
            moved: BranchMove = perform(steps, does)
        return moved

    def rollback(
        self, to: Where, *, cancel_run: bool = False, timeout: Seconds = HALT_S
    ) -> BranchMove:
        """Moves this branch to an earlier commit, as a new commit; nothing is rewritten (I7).

        Works also from a head that cannot be read; the changes since then are lost.

        A run that executes does it at its next boundary, and goes on.

        Args:
            cancel_run: ends the branch's unfinished run, and those that it started; one that
                executes is halted first.
            timeout: how long the run may take for that, in seconds or as a timedelta.

        Raises:
            Conflict: the branch has an unfinished run that does not execute.
            TimedOut: the run has not come to a boundary in time. It is still asked to end; or, if
                it was to go on, does not do it any more.
        """
        return self._take(self._rolling_back(to, cancel_run, timeout))

    def _rolling_back(self, to: Where, cancel_run: bool, timeout: Seconds) -> Steps:
        def cause(seq: int) -> Cause:
            return Cause("rollback", str(to), refers=(seq,))

        target = partial(self._resolve, place_of(to))
        flow = partial(time_travel.moving, self._working, target, cause, cancel_run=cancel_run)
        asked = Delivery(self._working, "rollback", timeout, target, str(to))
        return _going_back(self._working, flow, cancel_run, timeout, asked)

    def adopt(
        self, branch: str, *, cancel_run: bool = False, timeout: Seconds = HALT_S
    ) -> BranchMove:
        """Makes another branch's head the state of this one, as a commit. See `rollback`."""
        return self._take(self._adopting(branch, cancel_run, timeout))

    def _adopting(self, branch: str, cancel_run: bool, timeout: Seconds) -> Steps:
        def cause(seq: int) -> Cause:
            return Cause("adopt", branch, refers=(seq,))

        target = partial(self._resolve, branch)
        flow = partial(time_travel.moving, self._working, target, cause, cancel_run=cancel_run)
        return _going_back(self._working, flow, cancel_run, timeout)

    def undo(
        self,
        *,
        run: HasRunId | str | None = None,
        turns: int | None = None,
        cancel_run: bool = False,
        timeout: Seconds = HALT_S,
    ) -> BranchMove:
        """Takes back the latest commit (or group) that changed the state and is not taken back; or
        all that a run changed.

        Beside a run that waits this is a commit like any other writer's. A run that executes does
        it at its next boundary, and goes on.

        Args:
            run: the run, or its id: all that it changed on this branch and that is not taken back
                yet is taken back, with one commit.
            turns: only what it changed in so many of its turns, the last ones that changed
                something.

        Raises:
            Conflict: later commits touched what it would restore (naming the paths), or it is of an
                older major version of the schema.
            NotFound: nothing is left to undo, there is no such run, or retention removed it.
            SchemaError: an invariant forbids the way back, e.g. one of `transitions`; `rollback`
                works, because it makes no new state.
            TimedOut: the run that executes has not come to a boundary in time.
        """
        return self._take(self._undoing(run, turns, cancel_run, timeout))

    def _undoing(
        self, run: HasRunId | str | None, turns: int | None, cancel_run: bool, timeout: Seconds
    ) -> Steps:
        of = self._changes_of(run, turns)
        flow = partial(time_travel.undoing, self._working, cancel_run=cancel_run, of=of)
        asked = Delivery(self._working, "undo", timeout, of=of)
        return _going_back(self._working, flow, cancel_run, timeout, asked)

    def _changes_of(
        self, run: HasRunId | str | None, turns: int | None
    ) -> Callable[[], RunChanges] | None:
        """Returns what gives the changes of a run that are to be taken back; None: not of a run."""
        if turns is not None and (run is None or count(turns, "turns=") == 0):
            raise ValueError("turns= is how many turns of a run, one or more: say run=, too")
        if run is None:
            return None
        name = id_of(run)
        return lambda: RunChanges(name, self._began(name).started, turns or 0)

    def _began(self, run: str) -> RunInfo:
        """Returns the row of a run of this agent.

        Raises:
            NotFound: there is none, or it has not begun.
        """
        info = find_run(self._context.backend, run)
        if info.started and info.agent_no == self._working.reader.no:
            return info
        what = "has not begun" if not info.started else f"is one of agent {info.agent!r}"
        raise NotFound(what, target=f"agent {self._working.name!r}, run {visible(run)}")

    def redo(self, *, cancel_run: bool = False, timeout: Seconds = HALT_S) -> BranchMove:
        """Takes back the latest undo. Raises as `undo` does."""
        return self._take(self._redoing(cancel_run, timeout))

    def _redoing(self, cancel_run: bool, timeout: Seconds) -> Steps:
        flow = partial(time_travel.redoing, self._working, cancel_run=cancel_run)
        asked = Delivery(self._working, "redo", timeout)
        return _going_back(self._working, flow, cancel_run, timeout, asked)
