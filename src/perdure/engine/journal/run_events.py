"""The calls and moments of a run's timeline, and its notes, as people see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Literal

from msgspec import Struct

from perdure.core.format.records import WaitBranch
from perdure.core.values.plain_values import Plain
from perdure.engine.journal.entry import State
from perdure.public_data import PublicData

CallState = Literal[State, "timed out"]


class Event(PublicData, Struct):
    """One call of a run, or one moment of it, in its timeline.

    Attributes:
        kind: ``step``, ``tool``, ``edit``, ``value``, ``patch`` or ``wait``; or an event:
            ``started``, ``turn``, ``unloaded`` (it waits), ``resumed``, ``version`` (from here on
            another version of its function recorded it), ``changed`` (its surroundings, see
            `Guards`), ``to be resumed``, ``stopped``, ``set back``, ``finished``, ``cancelled``,
            ``refused`` (a message); or ``removed``: a call of which retention left only the place.
        at: the time when it began, or happened. For a step only its end is recorded: then the time
            of the record before it in the same task.
        ended: the time when its outcome was recorded; None if not yet.
        exact: True if `at` is exactly when it began; otherwise it began then or later.
        words: its arguments, what it waits for, or the description of a moment.
        value, error: its result: plain data, or the record of an exception. A ``cancelled`` one may
            have a value, which its function did not see.
        attempts: the number of tries; `saved`: the progress of the last attempt.
        branches: for the library itself: the events that it waits for.
        by, who: the source of the outcome, and its author's name.
        again_at: the time of the next try; None if there is none.
        seq: the seq of the commit with its first record.
        made_at: the seq of the commit in which the same call was made before the run was set back,
            or forked; 0 if it was not.
    """

    kind: str
    place: str
    at: datetime
    seq: int
    ended: datetime | None = None
    exact: bool = True
    state: CallState = "done"
    words: str = ""
    value: Plain = None
    error: Mapping[str, Any] | None = None
    attempts: int = 0
    saved: Plain = None
    by: str = ""
    who: str = ""
    again_at: datetime | None = None
    question: str = ""
    branches: Sequence[WaitBranch] = ()
    made_at: int = 0

    hidden_fields: ClassVar[frozenset[str]] = frozenset({"branches"})


class Note(PublicData, Struct, frozen=True):
    """A note of a run by `Run.progress`. `fraction`: of the whole, from 0 to 1."""

    text: str
    fraction: float | None
    at: datetime
