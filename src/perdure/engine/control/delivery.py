"""Undo, redo and rollback of an agent whose run executes: delivered to the run, which has the
branch, and done at its next boundary."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, Literal

from msgspec.structs import asdict

from perdure.core.arguments.checks import Seconds, seconds
from perdure.core.format.records import Outcome
from perdure.core.undo.undo_plan import RunChanges
from perdure.engine.execution.current_run import current
from perdure.engine.journal.failures import rebuild_error
from perdure.errors import Conflict, TimedOut
from perdure.model import Commit, Message, RunInfo
from perdure.state.head_naming import last_place
from perdure.state.run_moves import answer_of
from perdure.state.runs.unused_signals import MOVE
from perdure.state.time_travel import BranchMove, unfinished_runs
from perdure.state.working_copy import WorkingCopy
from perdure.storage.appending import Ref
from perdure.storage.log.refusals import HeldError
from perdure.visible import visible

GRACE_S = 1.0
"""The time behind its limit for which a commit that was under way then is waited for; and for which
a run is looked at again that begins to execute, or ceases to, at the moment of a call."""

Back = Literal["undo", "redo", "rollback"]


def is_own(working: WorkingCopy[Any]) -> bool:
    """Returns True for code of a run that executes on this very agent: it would wait for itself,
    and each replay would do it once more. `Run.rollback` and the like are its ways."""
    frame = current()
    while frame is not None:
        run = frame.run
        if run is not None and run.agent == working.name:
            return run.context.backend.url == working.context.backend.url
        frame = frame.outer
    return False


class Delivery:
    """One request to the run that executes on a branch, and the wait for what came of it.

    Args:
        target: gives the commit to go back to; the others go by what is there then.
        what: the caller's words for it.
        of: gives what an undo takes back; default: the latest change.
    """

    def __init__(
        self,
        working: WorkingCopy[Any],
        kind: Back,
        timeout: Seconds,
        target: Callable[[], int] = lambda: 0,
        what: str = "",
        of: Callable[[], RunChanges] | None = None,
    ) -> None:
        self._working, self._kind = working, kind
        self._target, self._what, self._of = target, what, of
        self._timeout_s = seconds(timeout, "timeout=")
        self._key = os.urandom(12).hex()
        self._run: RunInfo | None = None
        self._since = 0
        self._changes_until = 0.0
        self._until = time.monotonic() + self._timeout_s + GRACE_S

    @property
    def pending(self) -> bool:
        """True while the run is asked: nobody else may do it meanwhile, or it would be done twice.
        False where it was not asked, or has ended without it."""
        return self._run is not None

    def look(self) -> BranchMove | None:
        """Returns what the run that was asked has done; None: nothing yet, or nothing at all.

        Raises:
            Conflict, NotFound, SchemaError: its answer is a refusal.
            TimedOut: it has not come to a boundary in time. It will not do it later.
        """
        run = self._run
        assert run is not None
        backend = self._working.context.backend
        waits = any(one.key == self._key for one in backend.inbox(run.id, kind="signal", name=MOVE))
        if waits:
            if time.monotonic() >= self._until:
                raise self._late(run)
            return None
        done = self._find(run)
        if done is None:  # it has ended, and took its inbox along
            self._run = None
        return done

    def ask(self, refused: Conflict) -> None:
        """Asks the run that executes; for a caller who tries again if none was asked.

        Args:
            refused: what the caller's own try came to.

        Raises:
            Conflict: that, if no run executes, and none has just begun to, or ceased to.
        """
        working = self._working
        reader, backend = working.reader, working.context.backend
        ref = reader.ref(working.branch)
        unfinished = unfinished_runs(working)
        running = [run for run in unfinished if run.status == "running"]
        if not running or ref.holder is None or not backend.alive(ref.holder):
            if not unfinished or not self._changes(bool(running), ref, refused):
                raise refused
            return
        until = backend.now() + round(self._timeout_s * 1e6)
        value: dict[str, Any] = {
            "kind": self._kind,
            "to": self._target(),
            "what": self._what,
            "until": until,
        }
        if self._of is not None:
            value["of"] = asdict(self._of())
        self._since, self._run = ref.seq, running[0]
        message = Message(running[0].id, working.name, "signal", MOVE, self._key, value)
        working.context.send(message)
        backend.notify(running[0].id)

    def _changes(self, executes: bool, ref: Ref, refused: Conflict) -> bool:
        """Returns True if a run of the branch has begun to execute, or ceased to, since the
        caller's try: then the next one may succeed. Not for long."""
        changes = isinstance(refused, HeldError) or (executes and ref.holder is None)
        if self._kind != "rollback":  # that does not look at the head's state
            changes = changes or ref.seq != self._working.seq
        self._changes_until = self._changes_until or time.monotonic() + GRACE_S
        return changes and time.monotonic() < self._changes_until

    def _find(self, run: RunInfo) -> BranchMove | None:
        # Wherever the branch is now: others may have moved it since the run did what was asked.
        for commit in self._working.reader.commits(self._since + 1, damaged_too=True):
            for record in commit.typed:
                if isinstance(record, Outcome) and record.t == "move" and record.key == self._key:
                    return self._answer(run, commit, record)
        return None

    def _answer(self, run: RunInfo, commit: Commit, record: Outcome) -> BranchMove:
        if record.error is not None:
            raise rebuild_error(record.error, f"agent {self._working.name!r}, run {run.id}")
        return answer_of(commit, record.value)

    def _late(self, run: RunInfo) -> TimedOut:
        reader = self._working.reader
        place = last_place(reader, reader.ref(self._working.branch).seq, run)
        return TimedOut(
            "it has not come to a boundary in time, and does not do it any more"
            + (f"; its last place is {visible(place)}" if place else ""),
            target=f"run {visible(run.id)}",
            hint="timeout= gives it more time; cancel_run=True ends it first",
        )
