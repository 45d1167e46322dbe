"""Halting the runs that execute on a branch, so that it can go back."""

from __future__ import annotations

import os
import time
from typing import Any

from perdure.core.arguments.checks import Seconds, flag, seconds
from perdure.errors import Conflict, TimedOut
from perdure.model import FINISHED, Message
from perdure.state.head_naming import last_place
from perdure.state.time_travel import unfinished_runs
from perdure.state.working_copy import WorkingCopy
from perdure.storage.log.refusals import HeldError, is_race
from perdure.visible import visible

HALT_S = 30.0
"""The time that an executing run has to come to a boundary."""

LOOK_S = 0.05
"""The interval at which is looked whether it has ended."""

WHY = "its branch goes back"


class Halt:
    """The executing runs that a call on a branch asks to end, and how long it waits for that."""

    def __init__(self, working: WorkingCopy[Any], *, cancel_run: bool, timeout: Seconds) -> None:
        self._working = working
        self._may = flag(cancel_run, "cancel_run=")
        self._until = time.monotonic() + seconds(timeout, "timeout=")
        self._asked: set[str] = set()

    def ask(self, refused: Conflict) -> None:
        """Asks the runs of the branch to end, once each; for a caller who then tries again.

        Args:
            refused: what the try before came to.

        Raises:
            Conflict: that, if it is not of runs that execute, or these may not be ended; or if
                nothing says who has the branch, in all that time.
            TimedOut: they have not ended in time, and are still asked to.
        """
        ended = bool(self._asked) and is_race(refused)  # their last commits moved the head
        if not self._may or not (ended or isinstance(refused, HeldError)):
            raise refused
        backend = self._working.context.backend
        runs = [run for run in unfinished_runs(self._working) if run.status not in FINISHED]
        for run in runs:
            if run.id not in self._asked:
                key = os.urandom(12).hex()
                self._working.context.send(Message(run.id, run.agent, "cancel", "", key, WHY))
                backend.notify(run.id)
                self._asked.add(run.id)
        if time.monotonic() < self._until:
            return
        if not runs:
            raise refused
        reader = self._working.reader
        place = last_place(reader, reader.ref(self._working.branch).seq, runs[0])
        raise TimedOut(
            "it has not come to a boundary in time, and is still asked to end"
            + (f"; its last place is {visible(place)}" if place else ""),
            target=f"run {visible(runs[0].id)}",
            hint="make the call again when it has ended; timeout= gives it more time",
        )
