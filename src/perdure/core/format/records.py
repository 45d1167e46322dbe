"""What a commit's records must look like, kind by kind, for those who go by them.

A log is hashed, not typed: one that somebody else wrote, or that was made up, may verify and hold
anything. Here it is refused where it is read (I11), and not by whoever stumbles over it. Kinds and
fields that are not named here are nobody's business: newer versions add some, frameworks have their
own. Field by field in docs/format.md ("Records").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, convert

from perdure.core.values.plain_values import Plain
from perdure.model import MICROS_MAX

Number = Annotated[int, Meta(ge=0, le=2**62)]
Moment = Annotated[int, Meta(ge=0, le=MICROS_MAX)]
Digests = dict[str, str]


class Error(Struct, frozen=True, kw_only=True):
    type: str
    text: str
    args: list[Any] = []


class Again(Struct, frozen=True, kw_only=True):
    runs: list[str]
    untils: list[Number]
    effects: Literal["ask", "reuse", "live"]
    at: Number = 0
    until: Number = 0
    step: str = ""


class Child(Struct, frozen=True, kw_only=True):
    run: str
    agent: str = ""


class Awaited(Struct, frozen=True, kw_only=True):
    label: str
    kind: Literal["signal", "ask", "child", "timer"]
    name: str = ""
    until: Moment = 0


class Record(Struct, frozen=True, kw_only=True):
    """Any record."""

    t: str
    run: str = ""
    place: str = ""
    args: Digests = {}
    preview: str = ""
    error: Error | None = None
    child: Child | None = None
    again: Again | None = None
    made: str = ""
    made_at: Number = 0
    attempt: Number = 0
    again_at: Moment = 0
    told: list[str] | None = None
    several: bool = False


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


class Turn(Record, frozen=True, kw_only=True):
    run: str
    input: tuple[list[Any], dict[str, Any]]
    deadline_at: Moment = 0


class Waiting(Record, frozen=True, kw_only=True):
    wake_at: Moment | None = 0
    seen: Number | None = 0


class Finished(Record, frozen=True, kw_only=True):
    status: Literal["done", "failed"]
    value: Any = None
    left: list[dict[str, Any]] = []


class Cancelled(Record, frozen=True, kw_only=True):
    place: str
    kind: str
    after: float


class Noted(Record, frozen=True, kw_only=True):
    text: str = ""
    fraction: float | None = None


class Placed(Record, frozen=True, kw_only=True):
    place: str


class Valued(Placed, frozen=True, kw_only=True):
    value: Any


class Intent(Placed, frozen=True, kw_only=True):
    key: str


class WaitBegan(Placed, frozen=True, kw_only=True):
    branches: list[Awaited]
    schema: dict[str, Any] = {}
    question: str | None = None


class WaitEnded(Placed, frozen=True, kw_only=True):
    label: str
    kind: str = ""
    key: str = ""
    who: str = ""


class Checkpoint(Struct, frozen=True, kw_only=True):
    t: str
    name: str
    seq: Number = 0
    state: str = ""
    config: str | None = None
    dependencies: dict[str, str] | None = None
    run: str | None = None
    position: str | None = None


class Trimmed(Struct, frozen=True, kw_only=True):
    t: str
    seen: Number
    previous: Number
    before: Number
    removed: list[tuple[Number, Number]]
    bases: list[tuple[Number, str]]


class Passed(Struct, frozen=True, kw_only=True):
    t: str
    to: Number
    rest: list[tuple[Number, Number]]


class Named(Struct, frozen=True, kw_only=True):
    t: str
    name: str


_OURS: dict[str, type[Any]] = {
    "run-started": Started, "run-turn": Turn, "run-waiting": Waiting, "run-finished": Finished,
    "run-resumed": Record, "run-pending": Record, "run-stopped": Record, "run-cancelled": Record,
    "run-retried": Record, "run-progress": Noted, "cancelled": Cancelled, "step": Placed,
    "edit": Placed, "outcome": Placed, "progress": Placed, "attempt-failed": Placed,
    "value": Valued, "patch": Valued, "intent": Intent, "wait-began": WaitBegan,
    "wait-ended": WaitEnded, "message-refused": WaitEnded, "checkpoint": Checkpoint,
    "timers": Fired, "branch-deleted": Named, "agent-deleted": Record, "trimmed": Trimmed,
    "passed-over": Passed,
}  # fmt: skip

for _shape in (*_OURS.values(), Error):
    # msgspec takes a type apart at its first use; two threads that do so at once crash the process.
    msgspec.msgpack.Decoder(_shape)


def is_ours(record: Mapping[str, Any]) -> bool:
    """Whether its kind is one that this version knows; else it is a newer one's, or a
    framework's."""
    return record["t"] in _OURS


def check_records(records: Sequence[Any]) -> tuple[dict[str, Plain], ...]:
    """The records of a payload.

    Raises:
        ValueError, TypeError: one is not what its kind must be.
    """
    for record in records:
        if type(record) is not dict or type(kind := record.get("t")) is not str:
            raise TypeError("a record is a map, and says what it is")
        shape = _OURS.get(kind)
        if shape is not None:
            read = convert(record, shape)
            if shape is Finished and read.status == "failed":
                convert(read.value, Error)
    return tuple(records)
