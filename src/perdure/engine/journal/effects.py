"""The requests of the logic of durable calls to its driver.

The logic is written once, as generators that yield these effects and know no threads and no event
loop. `performer.drive` performs them on the calling thread, `drive_async` in a task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, field

from perdure.core.format.records import Outcome, Placed, WaitBegan, WaitBranch
from perdure.core.values.plain_values import Plain
from perdure.engine.journal.call import Call
from perdure.engine.journal.call_identity import Form
from perdure.engine.journal.entry import Entry
from perdure.engine.journal.left_calls import Made
from perdure.engine.journal.retries import NO_LIMITS, Limits
from perdure.model import Commit
from perdure.state.run_moves import PlannedMove
from perdure.state.working_copy import Flow
from perdure.storage.appending import Riders


class Arrive(Struct, frozen=True):
    """Effect: the function has reached a call. Returns the journal's `Arrived`, once it is this
    call's turn: outcomes of concurrent calls are released in the order of the log, and calls that
    are not recorded begin when everything recorded was released."""

    name: str
    kind: Literal["step", "tool", "wait", "edit", "move"]
    args: Mapping[str, str]
    preview: Callable[[], str]
    keyed: bool = True
    """True if a new call needs its idempotency key."""
    outside: bool = False
    """True if it has an effect outside of the run, which must not be repeated without a
    decision."""
    form: Form | None = None
    """Makes the digests of its arguments in the form in which those of a call are recorded."""
    undoes: Collection[str] | None = None
    """Of a compensation, the keys of the call that it undoes: it is that one's alone."""


class Arrived(Struct, frozen=True):
    """The answer to `Arrive`.

    Attributes:
        entry: the entry recorded there; None if nothing is.
        key: the call's idempotency key.
        made: for a new call with outside effects: the same call, made by the run before it was set
            back, or by the one that it was forked from; `effects` says what to do.
    """

    place: str
    entry: Entry | None
    key: str
    made: Made | None = None
    effects: str = "ask"


class RecordEffect(Struct, frozen=True):
    """Effect: commit records, with what happens along with them.

    Attributes:
        wait: False: they may wait for the run's next commit.
        began: of the end of a wait, the record of its begin: the signal that it takes is given back
            where the function does not see that.
        point: the name for the state before as a checkpoint, along with the commit; empty: none.
    """

    riders: Riders
    wait: bool = True
    began: WaitBegan | None = None
    point: str = ""

    @property
    def last(self) -> Placed:
        """The record that has the call's place and content."""
        record = self.riders.records[-1]
        assert isinstance(record, Placed)
        return record


class Invoke(Struct, frozen=True):
    """Effect: call the user's function; its exception is thrown back in."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    inside: Literal["step", "tool"]
    key: str | None = None
    limits: Limits = NO_LIMITS
    attempt: Attempt | None = None


class Attempt(Struct):
    """One attempt of a call, as the code inside it sees it.

    Attributes:
        call: the call to which its progress records belong.
        number: from 1.
        saved: the progress saved by the attempt before; MISSING if none.
        total_left_s: the remaining seconds of the call's total timeout; None if it has none.
        beat: the time of its last heartbeat, by the monotonic clock.
        over: it was given up: what it still does on its thread does not count.
        posted: the `Item` of its last progress.
        probes: it is none, but a probe that finds out about the last one.
    """

    call: Call
    number: int
    saved: Plain
    total_left_s: float | None = None
    beat: float = 0.0
    over: bool = False
    posted: Any = None
    probes: bool = False


class Pause(Struct, frozen=True):
    """Effect: go on at this moment of the store's clock, in microseconds since 1970."""

    until: int
    why: str


class Await(Struct, frozen=True):
    """Effect: wait for the first of several things. Gives what came, as `Came`."""

    place: str
    branches: Sequence[WaitBranch]
    words: str


class Change(Struct, frozen=True):
    """Effect: plan what moves or names the branch, and commit it, while no edit is open. Gives
    `Changed`; what is refused is an outcome, too.

    Attributes:
        plan: makes the plan, which reads the log.
    """

    place: str
    plan: Callable[[], Flow[PlannedMove]]


class Changed(Struct, frozen=True):
    """The outcome of a `Change`.

    Attributes:
        commit: the commit that it made; None: it was refused.
        error: the exception then.
    """

    outcome: Outcome
    commit: Commit | None = None
    error: Exception | None = None


class Now(Struct, frozen=True):
    """Effect: the store's clock, in microseconds since 1970."""


Effect = Arrive | RecordEffect | Invoke | Pause | Await | Change | Now
Effects = Generator[Effect, Any, Any]


class Came(Struct, frozen=True):
    """The result of a wait.

    Attributes:
        label: the label of the branch that came.
        value: the value of the message; None for a timer.
        no: the message's number; 0 if there was none.
    """

    label: str
    value: Plain = None
    no: int = 0
    key: str = ""
    who: str = ""
    at: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)


class Carried(Exception):
    """An exception of the user's code, `original`, on its way into the logic of a call and out of
    it.

    Any other exception raised there, except a `PerdureError`, comes from outside, between any two
    instructions: it is not an outcome of the call, and its function may not continue from it.
    """

    def __init__(self, original: Exception) -> None:
        super().__init__()
        self.original = original


class CancelledInside(BaseException):
    """Thrown in by a driver: the call's task, not the run, was cancelled. `original` is raised
    again once that is recorded."""

    def __init__(
        self, original: BaseException, after_s: float = 0.0, *, several: bool = False
    ) -> None:
        super().__init__()
        self.original = original
        self.after_s = after_s
        """The seconds since it was made."""
        self.several = several
        """It was more than once: which of them came through it says by what it raised."""


def uncarried(error: Exception) -> Exception:
    """The user's own error."""
    return error.original if type(error) is Carried else error


async def drive_async(
    effects: Generator[Any, Any, Any], perform: Callable[[Any], Awaitable[Any]]
) -> Any:
    """Perform effects one after the other in this task; returns what the generator returns."""
    try:
        effect = next(effects)
        while True:
            try:
                result = await perform(effect)
            except BaseException as error:
                effect = effects.throw(error)
            else:
                effect = effects.send(result)
    except StopIteration as end:
        return end.value


def first_timer(branches: Sequence[WaitBranch]) -> WaitBranch | None:
    """The timer of a wait that is due first."""
    timers = [branch for branch in branches if branch.kind == "timer"]
    return min(timers, key=lambda branch: branch.until) if timers else None
