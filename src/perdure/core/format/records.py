"""The shapes of a commit's records, kind by kind, for those who read them.

A log is hashed, not typed: one that somebody else wrote, or that was made up, may verify and hold
anything. A wrong record is refused where it is read (I11), before anything uses it. Kinds and
fields not named here, a newer version's, are not checked. docs/format.md, "Records", has them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Literal

import msgspec
from msgspec import NODEFAULT, UNSET, Struct, UnsetType, field

from perdure.core.format.left_behind import Digests, LeftBehind, LeftCall, LeftEnd, Number, WentBack
from perdure.core.format.record_parts import Change, Error, ErrorMap, KeptForUndo, Moment
from perdure.core.format.record_parts import SentMessage as SentMessage
from perdure.core.format.record_parts import StartedChild as StartedChild
from perdure.core.format.record_parts import Surroundings as Surroundings
from perdure.core.format.record_parts import WaitBranch as WaitBranch

NOTHING: Mapping[str, Any] = MappingProxyType({})


class Record(Struct, frozen=True, kw_only=True, gc=False):
    """Any record. Fields that a record does not have are empty; fields typed Any are not checked.

    Attributes:
        error: None if it has none.
        made_at: 0 if it does not say that its call was made before.
        value: absent, of one that is to be written: it has none.
    """

    t: str
    run: str = ""
    place: str = ""
    args: Digests = NOTHING
    preview: str = ""
    error: ErrorMap | None = None
    child: StartedChild | None = None
    again: WentBack | None = None
    made: str = ""
    version: Any = ""
    made_at: Number = 0
    attempt: Number | UnsetType = UNSET
    again_at: Moment = 0
    told: list[str] | None = None
    several: bool = False
    key: Any = None
    value: Any = UNSET


class Fired(Record, frozen=True, kw_only=True):
    t: str = "timers"
    run: str
    after: str
    fired: list[str]
    clock: Sequence[tuple[Number, Number]] = ()


class Started(Record, frozen=True, kw_only=True):
    t: str = "run-started"
    run: str
    function: str
    key: str
    input: tuple[list[Any], dict[str, Any]] | None = None
    turn: Number = 0
    turn_at: Number = 0
    deadline: Moment = 0
    until: Moment = 0
    limit: Moment = 0
    origin: tuple[Number, bytes] | None = None
    queue: Any = ""
    parent: Any = ""
    pending: Any = False
    compensate: bool = False
    digests: Any = None
    trace: str | None = None


class Turn(Record, frozen=True, kw_only=True):
    """A run's next turn begins.

    Attributes:
        deadline_at: absent: that of the turn before holds.
        spent: of a run with a time limit: the microseconds that its earlier turns have taken.
        left: what it has left in earlier turns; `left_at`: seq of the commit that says it, if that
            began an earlier turn.
        undoes: ``cancelled``, ``overdue`` or ``failed``: in it, what the run did is undone before
            it ends so.
    """

    t: str = "run-turn"
    run: str
    input: tuple[list[Any], dict[str, Any]]
    deadline_at: Moment | UnsetType = UNSET
    spent: Moment = 0
    digests: Any = None
    left: LeftBehind | None = None
    left_at: Number = 0
    undoes: str = ""


class Resumed(Record, frozen=True, kw_only=True):
    """A run is executed again. `spent`: of one with a time limit, the microseconds of it that it
    has taken; absent: it has none."""

    t: str = "run-resumed"
    run: str
    spent: Moment | UnsetType = UNSET


class Waiting(Record, frozen=True, kw_only=True):
    t: str = "run-waiting"
    wake_at: Moment | None = 0
    seen: Number | None = 0
    waits: Any = ""


class Finished(Record, frozen=True, kw_only=True):
    t: str = "run-finished"
    status: Literal["done", "failed"]
    value: Any = None
    left: Sequence[dict[str, Any]] = ()
    left_out: Any = 0
    overdue: Any = False


class Stopped(Record, frozen=True, kw_only=True):
    t: str = "run-stopped"
    problem: Any = ""
    now: Surroundings | None = None
    changed: Sequence[Change] = ()


class Pending(Record, frozen=True, kw_only=True):
    """A run that needed attention will be tried again. `accepts`: whoever says so accepts the
    surroundings for which it stopped."""

    t: str = "run-pending"
    accepts: bool = False


class Guarded(Record, frozen=True, kw_only=True):
    t: str = "run-guards"
    run: str
    now: Surroundings
    on_change: str = ""
    changed: Sequence[Change] = ()


class RunCancelled(Record, frozen=True, kw_only=True):
    """A run was cancelled.

    Attributes:
        why: absent: the branch was moved under it.
    """

    t: str = "run-cancelled"
    why: Any = UNSET
    left: Any = ()
    left_out: Any = 0


class SetBack(Record, frozen=True, kw_only=True):
    t: str = "run-retried"
    from_: Any = field(default="", name="from")


class Noted(Record, frozen=True, kw_only=True):
    t: str = "run-progress"
    text: str = ""
    fraction: float | None = None


class Placed(Record, frozen=True, kw_only=True):
    """A record at a place in the run: of a call made or tried there."""

    place: str
    first_at: Any = 0


Came = Literal["done", "failed", "cancelled", "not done"]


class Outcome(Placed, frozen=True, kw_only=True):
    """The outcome of a call; also a description of the call, where its start has no record."""

    by: Any = ""
    who: Any = ""
    not_done: Any = False
    cancelled: Any = False
    kept_on: Any = False
    after: Any = 0.0
    at: Any = None
    sent: SentMessage | None = None

    @property
    def by_person(self) -> bool:
        """True for the outcome of a tool call in doubt that a person settled."""
        return self.t == "outcome" and bool(self.by == "person")

    @property
    def came(self) -> Came:
        """Returns how the call ended. A cancelled call may have an outcome that its function did
        not see; a person declared a call "not done", and it may be made again."""
        if self.cancelled:
            return "cancelled"
        if self.error is not None:
            return "failed"
        return "not done" if self.not_done else "done"

    @property
    def cancelled_after_s(self) -> float | None:
        """Returns the seconds after which its task was cancelled; None if it was not."""
        return float(self.after) if self.cancelled else None


class Cancelled(Outcome, frozen=True, kw_only=True):
    """The task of a call was cancelled before that had an outcome, or the function did not see it.

    Attributes:
        gave_back: name and key of the signal that is in the inbox again.
    """

    t: str = "cancelled"
    kind: str
    after: float
    cancelled: Any = True
    gave_back: Any = None


class Valued(Outcome, frozen=True, kw_only=True):
    """A value that varies, and that the function got at a place.

    Attributes:
        within: the place of the edit in whose block it was drawn.
    """

    value: Any
    within: Any = ""


class Intent(Placed, frozen=True, kw_only=True):
    t: str = "intent"
    key: str
    kind: Any = "tool"
    policy: Any = ""
    of: Any = ""
    undo: KeptForUndo | None = None
    compensates: str = ""


class WaitBegan(Placed, frozen=True, kw_only=True):
    t: str = "wait-began"
    branches: list[WaitBranch]
    schema: Mapping[str, Any] = NOTHING
    question: str | None = None
    words: Any = ""
    data: Any = None


class WaitEnded(Outcome, frozen=True, kw_only=True):
    t: str = "wait-ended"
    label: str
    kind: str = ""
    key: str = ""
    who: str = ""
    problem: Any = ""


class Completed(Placed, frozen=True, kw_only=True):
    """A recorded value, with what its type fills in anew each time that it is read.

    Attributes:
        place: of the call whose result it is; empty: it is the arguments of the run's turn.
        seq: seq of the commit that recorded the result.
        input: these arguments, positional and named.
    """

    t: str = "value-completed"
    place: str = ""
    seq: Number = 0
    input: tuple[list[Any], dict[str, Any]] | None = None


class Kept(Record, frozen=True, kw_only=True):
    """A word that the opener of a run's resource kept, for opening it again."""

    t: str = "ticket"
    name: str
    value: Any


class Deleted(Record, frozen=True, kw_only=True):
    """The end of an agent.

    Attributes:
        began: the time of its first commit, which is gone once the log is purged; 0: unknown.
    """

    t: str = "agent-deleted"
    purge: Any = False
    began: Moment = 0


class Other(Record, frozen=True, kw_only=True):
    """A record of a kind that this version does not know: another writer's, of whose fields only
    these are read, where they have the types of this version's."""


class CheckpointRecord(Record, frozen=True, kw_only=True):
    t: str = "checkpoint"
    name: str
    seq: Number = 0
    state: str = ""
    config: str | None = None
    dependencies: dict[str, str] | None = None
    run: str | None = None  # type: ignore[assignment]
    position: str | None = None


class TrimRecord(Record, frozen=True, kw_only=True):
    t: str = "trimmed"
    seen: Number
    previous: Number
    before: Number
    removed: list[tuple[Number, Number]]
    bases: list[tuple[Number, str]]


class Passed(Record, frozen=True, kw_only=True):
    t: str = "passed-over"
    to: Number
    rest: list[tuple[Number, Number]]


class Named(Record, frozen=True, kw_only=True):
    t: str = "branch-deleted"
    name: str


SHAPES: dict[str, type[Record]] = {}
"""The class of each kind of record."""
Names = Sequence[str]
_EMPTY: Sequence[Any] = ()
WRITTEN: dict[str, tuple[Names, attrgetter[Any], Sequence[Any], Names, Names]] = {}
"""The written form of each kind of record: names of fields, a function that reads them all, the
values with which they are left out; the fields that hold lists, and those with structs or pairs."""
_LEFT = "cancelled after error told several kept_on"


def _kind(t: str, shape: type[Record], fields: str = "") -> None:
    """Registers a kind of record, with the order in which its fields are written.

    Args:
        fields: names of fields; with ``!``: written even if empty; with ``*``: has structs or
            pairs.
    """
    SHAPES[t] = shape
    marked = ["t!", *fields.split()] if " run" in fields else ["t!", "run", *fields.split()]
    names = [one.rstrip("!*") for one in marked]
    known = {one.encode_name: one for one in msgspec.structs.fields(shape)}
    absent = [NODEFAULT if "!" in one else known[one.rstrip("*")].default for one in marked]
    read = attrgetter(*(known[name].name for name in names))
    lists = [name for name, default in zip(names, absent, strict=True) if default is _EMPTY]
    WRITTEN[t] = names, read, absent, lists, [one[:-1] for one in marked if "*" in one]


_kind(
    "run-started",
    Started,
    "function key args preview! version! queue! parent! digests input* deadline until limit "
    "origin* trace compensate",
)
_kind("run-turn", Turn, "args digests preview! input* deadline_at spent left* left_at undoes")
_kind("run-waiting", Waiting, "waits! wake_at! seen!")
_kind("run-finished", Finished, "status value! left left_out overdue")
_kind("run-resumed", Resumed, "spent")
_kind("run-version", Record, "version!")
_kind("run-pending", Pending, "accepts")
_kind("run-stopped", Stopped, "problem! now* changed*")
_kind("run-guards", Guarded, "now* on_change changed*")
_kind("run-cancelled", RunCancelled, "why left left_out")
_kind("run-retried", SetBack, "from! again*")
_kind("run-progress", Noted, "text! fraction!")
_kind("cancelled", Cancelled, "place kind error after told several args preview gave_back")
_kind("step", Outcome, f"place args preview! made value child* sent* {_LEFT}")
_kind("edit", Outcome, "place error at cancelled told several")
_kind("move", Outcome, f"place value key {_LEFT}")
_kind("outcome", Outcome, f"place value by who not_done key {_LEFT}")
_kind("progress", Placed, "place args preview! value")
_kind("attempt-failed", Placed, "place args preview! attempt error again_at first_at")
_kind("value", Valued, "place value within")
_kind("patch", Valued, "place value")
_kind(
    "intent",
    Intent,
    "place args preview! kind key policy! attempt first_at made made_at of undo* compensates",
)
_kind("wait-began", WaitBegan, "place branches* words! args preview! question schema data")
_kind("wait-ended", WaitEnded, "place label key! who! at! value sent*")
_kind("message-refused", WaitEnded, "place label kind key! who! at! value problem!")
_kind("value-completed", Completed, "place seq value input*")
_kind("ticket", Kept, "name! value!")
_kind("timers", Fired, "after fired clock")
_kind("agent-deleted", Deleted, "purge began")
_kind("checkpoint", CheckpointRecord, "name state! config! dependencies! run! position!")
_kind("branch-deleted", Named, "name")
_kind("trimmed", TrimRecord, "seen previous before removed* bases*")
_kind("passed-over", Passed, "to rest*")

_PARTS: Sequence[type[Struct]] = (Error, WentBack, StartedChild, SentMessage, KeptForUndo)
_PARTS = (*_PARTS, WaitBranch, LeftBehind, LeftCall, LeftEnd, Surroundings)
for _shape in (*SHAPES.values(), Other, *_PARTS):
    # msgspec analyses a type at its first use; two threads that do so at once crash the process.
    msgspec.msgpack.Decoder(_shape)


def is_ours(record: Record) -> bool:
    """True if this version knows its kind; else it is a newer version's, or a framework's."""
    return type(record) is not Other
