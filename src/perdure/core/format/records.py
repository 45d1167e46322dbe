"""What a commit's records must look like, kind by kind, for those who go by them.

A log is hashed, not typed: one that somebody else wrote, or that was made up, may verify and hold
anything. Here it is refused where it is read (I11), and not by whoever stumbles over it. Kinds and
fields that are not named here are nobody's business: newer versions add some, frameworks have their
own. Field by field in docs/format.md ("Records").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, convert, field
from msgspec.structs import force_setattr

from perdure.core.values.plain_values import Plain
from perdure.model import MICROS_MAX

Number = Annotated[int, Meta(ge=0, le=2**62)]
Moment = Annotated[int, Meta(ge=0, le=MICROS_MAX)]
Digests = Mapping[str, str]
NONE: Digests = MappingProxyType({})
R = TypeVar("R", bound="Record")


class Error(Struct, frozen=True, kw_only=True):
    """Of an error what is checked. The records hold the whole map, by which it is rebuilt."""

    type: str
    text: str
    args: list[Any] = []


if TYPE_CHECKING:
    ErrorMap = Mapping[str, Any]
else:
    ErrorMap = Error
"""What a record has of an error: checked as one, and kept as the map that it is."""


class WentBack(Struct, frozen=True, kw_only=True, gc=False):
    runs: list[str]
    untils: list[Number]
    effects: Literal["ask", "reuse", "live"]
    at: Number = 0
    until: Number = 0
    step: str = ""


class Child(Struct, frozen=True, kw_only=True, gc=False):
    run: str
    agent: str = ""
    let_live: Any = False


class Branch(Struct, frozen=True, gc=False):
    """One of the things that a wait waits for.

    Attributes:
        kind, name: a ``signal`` and its name; an ``ask`` and the name of its question; a
            ``child`` and the id of its run; a ``timer`` and nothing.
        until: of a timer: when it is due, in microseconds since 1970 by the store's clock.
    """

    label: str
    kind: Literal["signal", "ask", "child", "timer"]
    name: str = ""
    until: Moment = 0


class Record(Struct, frozen=True, kw_only=True, gc=False):
    """Any record. What one has not is empty; what is of any type nobody has checked.

    Attributes:
        error: None: it has none.
        made_at: 0: it does not say that its call was made before.
    """

    t: str
    run: str = ""
    place: str = ""
    args: Digests = NONE
    preview: str = ""
    error: ErrorMap | None = None
    child: Child | None = None
    again: WentBack | None = None
    made: str = ""
    made_at: Number = 0
    attempt: Number | UnsetType = UNSET
    again_at: Moment = 0
    told: list[str] | None = None
    several: bool = False
    key: Any = None
    value: Any = None


class Fired(Record, frozen=True, kw_only=True):
    run: str
    after: str
    fired: list[str]
    clock: list[tuple[Number, Number]] = []


class Started(Record, frozen=True, kw_only=True):
    run: str
    function: str
    key: str
    input: tuple[list[Any], dict[str, Any]] | None = None
    turn: Number = 0
    turn_at: Number = 0
    deadline: Moment = 0
    origin: tuple[Number, bytes] | None = None
    version: Any = ""
    queue: Any = ""
    parent: Any = ""
    pending: Any = False
    digests: Any = None


class Turn(Record, frozen=True, kw_only=True):
    """A run's next turn begins.

    Attributes:
        deadline_at: absent: that of the turn before holds.
    """

    run: str
    input: tuple[list[Any], dict[str, Any]]
    deadline_at: Moment | UnsetType = UNSET
    digests: Any = None


class Waiting(Record, frozen=True, kw_only=True):
    wake_at: Moment | None = 0
    seen: Number | None = 0
    waits: Any = ""


class Finished(Record, frozen=True, kw_only=True):
    status: Literal["done", "failed"]
    value: Any = None
    left: list[dict[str, Any]] = []


class Stopped(Record, frozen=True, kw_only=True):
    problem: Any = ""


class RunCancelled(Record, frozen=True, kw_only=True):
    """A run was cancelled.

    Attributes:
        why: absent: the branch was moved under it.
    """

    why: Any = UNSET
    left: Any = ()


class SetBack(Record, frozen=True, kw_only=True):
    from_: Any = field(default="", name="from")


class Noted(Record, frozen=True, kw_only=True):
    text: str = ""
    fraction: float | None = None


class Placed(Record, frozen=True, kw_only=True):
    """One at a place in the run: what was called, or tried there."""

    place: str
    first_at: Any = 0


Came = Literal["done", "failed", "cancelled", "not done"]


class Outcome(Placed, frozen=True, kw_only=True):
    """What a call came to; also what it was, where it has no record of its begin."""

    by: Any = ""
    who: Any = ""
    not_done: Any = False
    cancelled: Any = False
    kept_on: Any = False
    after: Any = 0.0
    at: Any = None

    @property
    def came(self) -> Came:
        """How it ended. One that is cancelled may have an outcome, which its function did not see;
        one that is not done was not, by the word of a person, and may be made again."""
        if self.cancelled:
            return "cancelled"
        if self.error is not None:
            return "failed"
        return "not done" if self.not_done else "done"

    @property
    def cancelled_after_s(self) -> float | None:
        """After how long its task was cancelled; None: it was not."""
        return float(self.after) if self.cancelled else None


class Cancelled(Outcome, frozen=True, kw_only=True):
    """The task of a call was cancelled before that had an outcome, or the function did not see it.

    Attributes:
        gave_back: name and key of the signal that is in the inbox again.
    """

    kind: str
    after: float
    cancelled: Any = True
    gave_back: Any = None


class Valued(Outcome, frozen=True, kw_only=True):
    value: Any


class Intent(Placed, frozen=True, kw_only=True):
    key: str
    kind: Any = "tool"
    policy: Any = ""


class WaitBegan(Placed, frozen=True, kw_only=True):
    branches: list[Branch]
    schema: dict[str, Any] = {}
    question: str | None = None
    words: Any = ""


class WaitEnded(Outcome, frozen=True, kw_only=True):
    label: str
    kind: str = ""
    key: str = ""
    who: str = ""
    problem: Any = ""


class Deleted(Record, frozen=True, kw_only=True):
    purge: Any = False


class Other(Outcome, frozen=True, kw_only=True):
    """One of a kind that is not this version's, and of those that are no run's: of what others call
    the same nobody knows the types."""

    run: Any = ""
    place: Any = ""
    args: Any = {}
    preview: Any = ""
    error: Any = None
    child: Any = None
    again: Any = None
    made: Any = ""
    made_at: Any = 0
    attempt: Any = 0
    again_at: Any = 0
    told: Any = None
    several: Any = False


class Checkpoint(Other, frozen=True, kw_only=True):
    name: str
    seq: Number = 0
    state: str = ""
    config: str | None = None
    dependencies: dict[str, str] | None = None
    run: str | None = None
    position: str | None = None


class Trimmed(Other, frozen=True, kw_only=True):
    seen: Number
    previous: Number
    before: Number
    removed: list[tuple[Number, Number]]
    bases: list[tuple[Number, str]]


class Passed(Other, frozen=True, kw_only=True):
    to: Number
    rest: list[tuple[Number, Number]]


class Named(Other, frozen=True, kw_only=True):
    name: str


_OF_RUNS: dict[str, type[Record]] = {
    "run-started": Started,
    "run-turn": Turn,
    "run-waiting": Waiting,
    "run-finished": Finished,
    "run-resumed": Record,
    "run-pending": Record,
    "run-stopped": Stopped,
    "run-cancelled": RunCancelled,
    "run-retried": SetBack,
    "run-progress": Noted,
    "cancelled": Cancelled,
    "step": Outcome,
    "edit": Outcome,
    "outcome": Outcome,
    "progress": Placed,
    "attempt-failed": Placed,
    "value": Valued,
    "patch": Valued,
    "intent": Intent,
    "wait-began": WaitBegan,
    "wait-ended": WaitEnded,
    "message-refused": WaitEnded,
    "timers": Fired,
    "agent-deleted": Deleted,
}
_BESIDE: dict[str, type[Other]] = {
    "checkpoint": Checkpoint,
    "branch-deleted": Named,
    "trimmed": Trimmed,
    "passed-over": Passed,
}
_OURS: dict[str, type[Record]] = {**_OF_RUNS, **_BESIDE}

for _shape in (*_OURS.values(), Other, Error, WentBack, Child, Branch):
    # msgspec takes a type apart at its first use; two threads that do so at once crash the process.
    msgspec.msgpack.Decoder(_shape)


def is_ours(record: Record) -> bool:
    """Whether its kind is one that this version knows; else it is a newer one's, or a
    framework's."""
    return type(record) is not Other


def check_records(records: Sequence[Any]) -> None:
    """Whether they can be read again.

    Raises:
        ValueError, TypeError: one is not what its kind must be.
    """
    for record in records:
        if type(record) is not dict or type(kind := record.get("t")) is not str:
            raise TypeError(_NO_RECORD)
        if (shape := _OURS.get(kind)) is not None:
            read = convert(record, shape)
            if shape is Finished:
                _check_end(read)


def read_records(records: Sequence[Any]) -> tuple[tuple[dict[str, Plain], ...], tuple[Record, ...]]:
    """The records of a payload, as they are and typed: with the fields of their kinds. The typed
    ones share arguments and errors with the plain ones.

    Raises:
        ValueError, TypeError: one is not what its kind must be.
    """
    typed: list[Record] = []
    for record in records:  # each read of a log comes by: nothing is called that need not be
        if type(record) is not dict or type(kind := record.get("t")) is not str:
            raise TypeError(_NO_RECORD)
        shape = _OF_RUNS.get(kind)
        if shape is None:
            typed.append(_of_others(record))
            continue
        read = convert(record, shape)
        if shape is Finished:
            _check_end(read)
        if read.args:
            force_setattr(read, "args", record["args"])
        if read.error is not None:
            force_setattr(read, "error", record["error"])
        typed.append(read)
    return tuple(records), tuple(typed)


_NO_RECORD = "a record is a map, and says what it is"


def _check_end(read: Record) -> None:
    if isinstance(read, Finished) and read.status == "failed":
        convert(read.value, Error)


def typed(record: Mapping[str, Any]) -> Record:
    """As `read_records`, of one."""
    return read_records((record,))[1][0]


def typed_as(record: Mapping[str, Any], shape: type[R]) -> R:
    """The same, of one that is of this shape: it was just made."""
    read = typed(record)
    assert isinstance(read, shape)
    return read


def _of_others(record: dict[str, Any]) -> Record:
    """One of which something may be another version's: what is not as in this one is as if it were
    not there."""
    shape = _BESIDE.get(record["t"])
    try:
        read = convert(record, shape or Other)
    except (ValueError, TypeError):
        if shape is not None:
            raise
        return Other(t=record["t"])  # not all of its keys are texts
    for name, kind in (("again", WentBack), ("child", Child)):
        if getattr(read, name) is not None:
            try:
                part = convert(record[name], kind)
            except (ValueError, TypeError):
                part = None
            force_setattr(read, name, part)
    return read
