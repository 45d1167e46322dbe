"""Why a run is not moving, as data."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from perdure.engine.control.ways_out import WayOut
from perdure.engine.journal.run_events import Event
from perdure.model import RunStatus
from perdure.public_data import PublicData

Situation = Literal[
    "executing", "abandoned", "waiting", "due", "pending", "queued", "stopped", "finished"
]


class Explanation(PublicData, Struct, frozen=True):
    """The reason why a run is not moving, or that it is.

    Attributes:
        situation: ``executing``; ``abandoned``: its executor is gone, and none took over;
            ``waiting`` for something; ``due``: it came, and no executor has resumed the run;
            ``pending``: no executor began, or resumed, it; ``queued`` behind another run;
            ``stopped``: it needs a person, runs wait in a circle, or it was moved to another
            store; ``finished``.
        why: the answer in words, a sentence or more.
        since: the start of the situation; None if that is not recorded.
        executor: the living executor that has it, or the former one of an abandoned run.
        behind: the run that it is queued behind.
        workers: living executors that run its function for others.
        calls: calls of its current turn that have no outcome, oldest first.
        last: the last call that has an outcome; None if its turn has none.
        asked_to_end: the time when it was asked to end, if it has not ended.
        deadline: the moment by which it must have ended; None: there is none, it has ended, or that
            will be counted from its begin.
        time_limit: its time limit, if it has one and has not ended; `time_left`: what it has not
            taken of that.
        ways: what to do, best first; never empty.
    """

    run: str
    status: RunStatus
    situation: Situation
    why: str
    since: datetime | None
    executor: str | None = None
    behind: str | None = None
    workers: tuple[str, ...] = ()
    calls: tuple[Event, ...] = ()
    last: Event | None = None
    asked_to_end: datetime | None = None
    deadline: datetime | None = None
    time_limit: timedelta | None = None
    time_left: timedelta | None = None
    ways: tuple[WayOut, ...] = ()
