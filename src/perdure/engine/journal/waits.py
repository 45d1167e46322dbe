"""Waiting without a process: for a signal, an answer, a time, another run, or the first of several.

Each of them is the same thing, a wait with branches; which branch came is recorded. How a driver
waits, in place or by unloading the run, is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perdure.core.arguments.bounds import index_key
from perdure.core.arguments.checks import Seconds, seconds
from perdure.core.arguments.names import check_key, check_name, check_words, shown
from perdure.core.format.records import Completed, WaitBegan, WaitBranch, WaitEnded
from perdure.core.schema.schema import Schema
from perdure.core.schema.taken_values import take_plain
from perdure.core.schema.value_digest import shorten
from perdure.core.types.nodes import isolate
from perdure.core.values.plain_values import Plain
from perdure.engine.journal.answer_schema import answer_schema, json_schema
from perdure.engine.journal.any_values import take_any
from perdure.engine.journal.call_identity import KEYED, QUESTION, SCHEMA
from perdure.engine.journal.effects import (
    Arrive,
    Await,
    Came,
    Carried,
    Effects,
    Now,
    RecordEffect,
)
from perdure.engine.journal.failures import rebuild_error
from perdure.engine.journal.question_digest import (
    data_in_short,
    digest_of_data,
    digests_of,
    in_full,
    in_short,
)
from perdure.engine.journal.told_runs import sent_by, telling
from perdure.errors import Conflict, NeedsAttention, PerdureError, RunFailed, SchemaError, TimedOut
from perdure.missing import MISSING
from perdure.model import MICROS_MAX, UNTIL, Message, from_micros
from perdure.public_data import PublicData, to_micros
from perdure.state.runs.family_messages import CHILD
from perdure.state.runs.unused_signals import MOVE
from perdure.storage.appending import Riders
from perdure.storage.log.refusals import EndedError
from perdure.visible import visible


class Suspended(PerdureError):
    """Not a failure: the run waits, and is unloaded.

    Attributes:
        wake_at: the latest time to wake it, in microseconds by the store's clock; 0: never.
        runs: the runs that it waits for, if it waits for nothing else.
        seen: the number of the last message that all of it looked at.
    """

    def __init__(
        self, waits: str, wake_at: int, runs: Sequence[str] = (), *, seen: int = 0
    ) -> None:
        super().__init__(f"waits for {waits}")
        self.waits = waits
        self.wake_at = wake_at
        self.runs = runs
        self.seen = seen


class Signal(Struct, frozen=True):
    """A message to the run, sent by `RunHandle.signal`, as something to `select` on.

    Attributes:
        name: the signal's name.
        schema: the type of its value; one that does not fit is refused, and the wait goes on.
    """

    name: str
    schema: Any = None


def check_signal(name: str) -> str:
    """Returns a signal's name as a plain str.

    Raises:
        TypeError: it is not a str. ValueError: it is empty, too long, not a valid text, or reserved
            for the library.
    """
    name = check_name(name, "a signal")
    if name.startswith(CHILD):
        raise ValueError(f"{name!r}: names that begin with {CHILD!r} tell of the ends of runs")
    if name == MOVE:
        raise ValueError(f"{name!r}: signals of this name move a run's branch")
    return name


class Timer(Struct, frozen=True):
    """A time from now, seconds or a timedelta, as something to `select` on."""

    after: Seconds


class Ask(Struct, frozen=True):
    """A question to a person, answered by `RunHandle.answer`, as something to `select` on.

    Attributes:
        schema: the type of the answer; one that does not fit is refused, and the wait goes on.
        key, data, expires: see `Run.ask`. When the question has expired, the wait goes on: a
            `Timer` beside it ends it.
    """

    question: str
    schema: Any = bool
    key: str | None = None
    data: Any = None
    expires: Seconds | datetime | None = None


class Expiry(Struct, frozen=True):
    """The moment at which a question expires, as something to wait for."""

    at: Seconds | datetime


class ChildEnd(Struct, frozen=True):
    """The end of a run that this one started, as something to `select` on."""

    run: str
    build: Callable[[Plain], Any]
    complete: Callable[[Plain], Plain]


Awaitable = Signal | Timer | Ask | Expiry | ChildEnd


def only_runs(branches: Sequence[WaitBranch]) -> Sequence[str]:
    """The runs of whose ends one is waited for; empty: something else may come, too."""
    if any(branch.kind != "child" for branch in branches):
        return ()
    return [branch.name.removeprefix(CHILD) for branch in branches]


class Selected(PublicData, Struct, frozen=True):
    """The result of `select`: the name of the first that came, and its value."""

    name: str
    value: Any = None


class Wait:
    """One wait of a run, by its branches.

    Attributes:
        sends_late: makes the message that is sent, by the commit of its end, if that is its
            ``timeout``; given an idempotency key. None if nobody would receive it.
    """

    sends_late: Callable[[str], Message | None] | None = None

    def __init__(self, run: str, name: str, branches: Mapping[str, Awaitable]) -> None:
        self._run = run
        self._name = name
        self._specs = {str.__str__(label): spec for label, spec in branches.items()}
        self._check()
        self._schemas: dict[str, Schema[Any]] = {}
        for label, spec in self._specs.items():
            if (
                isinstance(spec, Signal | Ask)
                and spec.schema is not None
                and spec.schema is not Any
            ):
                self._schemas[label] = Schema(spec.schema, id=label)

    def _check(self) -> None:
        if not self._specs:
            raise ValueError("select() waits for nothing, and would do so for ever")
        if sum(isinstance(spec, Ask) for spec in self._specs.values()) > 1:
            raise ValueError("select() can ask one question at a time: ask the others in tasks")
        for label, spec in self._specs.items():
            if not issubclass(type(spec), Awaitable):
                raise TypeError(
                    f"{label}={shown(spec)} is nothing to wait for: give a Signal, a Timer, an Ask "
                    "or a run that this one started"
                )
            assert check_words(label, "the name of a wait") is label
            match spec:
                case Timer():
                    self._specs[label] = Timer(seconds(spec.after, "the time of a wait"))
                case Signal():
                    self._specs[label] = Signal(check_signal(spec.name), spec.schema)
                case Ask():
                    self._specs[label] = _taken(spec)
                    if spec.expires is not None and not self._has_timer():
                        raise ValueError(
                            "select() with a question that expires would wait on for ever: give a "
                            "Timer, too"
                        )

    def _has_timer(self) -> bool:
        return any(isinstance(spec, Timer | Expiry) for spec in self._specs.values())

    def effects(self) -> Effects:
        """Yields the effects of a wait, from the function's arrival to its result; returns a
        `Selected`."""
        arrived = yield Arrive(self._name, "wait", self._args(), self._preview, form=self._args_as)
        entry = arrived.entry
        if entry is not None and entry.outcome is not None:
            label, value = entry.outcome.label, entry.outcome.value
            whole = self._completed(label, value)
            if whole is not value:  # an older program recorded it
                made = Completed(run=self._run, place=entry.place, seq=entry.seq, value=whole)
                yield RecordEffect(Riders((made,)), wait=False)
            return self._result(arrived.place, label, whole)
        if entry is None:
            now = yield Now()
            began = self._began(arrived.place, arrived.key, now)
            yield RecordEffect(Riders((began,)), wait=False)
        else:
            began = entry.call
        branches = began.branches
        while True:
            came = yield Await(arrived.place, branches, str(began.words))
            record = WaitEnded(
                run=self._run,
                place=arrived.place,
                label=came.label,
                key=came.key,
                who=came.who,
                at=came.at,
            )
            consumed = (came.no,) if came.no else ()
            try:
                _refuse_late(branches, came)
                value = self._checked(came)
            except PerdureError as wrong:
                if not came.no:
                    raise  # of a test's own answers there is no better one to wait for
                kind = next(one.kind for one in branches if one.label == came.label)
                refused = replace(record, t="message-refused", kind=kind, problem=str(wrong))
                yield RecordEffect(Riders((refused,), consumed=consumed))
                continue
            if came.label == "timeout" and self.sends_late is not None:
                late = Riders((replace(record, value=value),), sync=True)
                if (told := self.sends_late(arrived.key)) is not None:
                    ended = replace(record, value=value, sent=sent_by(told))
                    late = telling(ended, told)
                try:
                    yield RecordEffect(late, began=began)
                except EndedError:  # it ended just now: that is what came
                    continue
                return self._result(arrived.place, came.label, value)
            # It joins the run's next commit: until that is in, the message stays in the inbox, and
            # the function may change what it got.
            ended = replace(record, value=isolate(value))
            yield RecordEffect(Riders((ended,), consumed=consumed), wait=False, began=began)
            return self._result(arrived.place, came.label, value)

    def _args(self) -> dict[str, str]:
        """Returns the parts of a wait that must be the same on replay: not its maximum duration,
        nor the words of a question that has a key."""
        args = self._args_without_key()
        for spec in self._specs.values():
            if isinstance(spec, Ask) and spec.key is not None:
                args = {name: one for name, one in args.items() if name != SCHEMA}
                args[QUESTION] = f"{KEYED}{shorten(spec.key)}"
        return args

    def _args_as(self, recorded: Mapping[str, str]) -> dict[str, str]:
        """The same, in the form in which those of a wait are recorded."""
        keyed = recorded.get(QUESTION, "").startswith(KEYED)
        return self._args() if keyed else self._args_without_key()

    def _args_without_key(self) -> dict[str, str]:
        """The same, as it was recorded before the question was given a key."""
        several = self._name == "select"
        args: dict[str, str] = {}
        for label, spec in self._specs.items():
            match spec:
                case Signal():
                    args[label] = f"signal {spec.name}"
                case Ask():
                    args[label] = "ask"
                    args |= digests_of(spec.question, json_schema(spec.schema))
                    args |= digest_of_data(spec.data)
                case ChildEnd():
                    args[label] = f"child {spec.run}"
                case Timer() if several:
                    args[label] = "timer"
        return args

    def _began(self, place: str, key: str, now: int) -> WaitBegan:
        branches: list[WaitBranch] = []
        questions: dict[str, Any] = {}
        for label, spec in self._specs.items():
            branch = WaitBranch(label, "timer")
            match spec:
                case Signal():
                    branch = WaitBranch(label, "signal", spec.name)
                case Ask():
                    # An answer to a question of an earlier turn, at the same place, is not an
                    # answer to this one.
                    until = 0 if spec.expires is None else _moment(spec.expires, now)
                    branch = WaitBranch(label, "ask", index_key(f"{place} {key[:12]}"), until)
                    questions = {"question": spec.question, "schema": answer_schema(spec.schema)}
                    questions["data"] = spec.data
                case Expiry():
                    branch = WaitBranch(label, "timer", until=_moment(spec.at, now))
                case ChildEnd():
                    branch = WaitBranch(label, "child", CHILD + spec.run)
                case Timer():
                    branch = WaitBranch(label, "timer", until=_moment(spec.after, now))
            branches.append(branch)
        return WaitBegan(
            run=self._run,
            place=place,
            branches=branches,
            words=self._words(branches),
            args=self._args(),
            preview=self._preview(),
            **questions,
        )

    def _preview(self) -> str:
        return ", ".join(
            in_full(spec.question, json_schema(spec.schema)) + data_in_short(spec.data)
            if isinstance(spec, Ask)
            else _short(spec)
            for spec in self._specs.values()
        )

    def _words(self, branches: Sequence[WaitBranch]) -> str:
        """Returns what it waits for, as people read it in ``perdure runs``."""
        parts = []
        for branch, spec in zip(branches, self._specs.values(), strict=True):
            if isinstance(spec, Timer | Expiry):
                when = from_micros(branch.until)
                parts.append(f"{UNTIL}{when.isoformat(sep=' ', timespec='seconds')}")
            else:
                parts.append(_short(spec))
        return " or ".join(parts)

    def _checked(self, came: Came) -> Plain:
        """The value as it is recorded: taken in as a value of a state is.

        Raises:
            SchemaError: it is not of the declared type, or has a key that this does not have.
        """
        schema = self._schemas.get(came.label)
        if schema is None:
            return self._completed(came.label, came.value)
        said = "answer" if isinstance(self._specs[came.label], Ask) else "value"
        return take_plain(schema.root, came.value, said)

    def _completed(self, label: str, value: Any) -> Plain:
        """A recorded value, with all that its type fills in anew each time; the same where it
        lacks nothing."""
        schema, spec = self._schemas.get(label), self._specs.get(label)
        if schema is not None:
            return schema.complete(value)
        if isinstance(spec, ChildEnd) and value["status"] == "done":
            whole = spec.complete(value["value"])
            return value if whole is value["value"] else {**value, "value": whole}
        return value

    def _result(self, place: str, label: str, value: Plain) -> Selected:
        spec = self._specs.get(label)
        schema = self._schemas.get(label)
        build: Callable[[Plain], Any] = schema.read if schema is not None else _as_it_is
        if isinstance(spec, ChildEnd):
            build, value = spec.build, _child_value(spec, value)
        try:
            return Selected(label, build(value))
        except SchemaError as error:
            raise NeedsAttention(
                f"what came no longer fits its declared type: {error.problem}",
                target=f"run {self._run}, {place}",
                hint="let the type read the old form too, then run it again",
            ) from error


def _as_it_is(value: Plain) -> Any:
    return value


def _child_value(child: ChildEnd, end: Any) -> Plain:
    if end["status"] == "done":
        return end["value"]
    if end["status"] == "failed":
        raise Carried(rebuild_error(end["value"], f"run {child.run}"))
    raise RunFailed(f"was cancelled: {end.get('problem', '')}", target=f"run {child.run}")


def _short(spec: Awaitable) -> str:
    match spec:
        case Signal():
            return f"signal {spec.name!r}"
        case Ask():
            return in_short(spec.question)
        case ChildEnd():
            return f"run {spec.run}"
        case Timer():
            return f"{timedelta(seconds=seconds(spec.after))}"
        case Expiry():
            return f"until {spec.at}"


def _taken(spec: Ask) -> Ask:
    """Returns a question with all that is recorded of it as plain data.

    Raises:
        TypeError, ValueError: it has no words, or no such key or time. Unstorable: what it shows
            cannot be stored; names its path.
    """
    question = check_words(spec.question, "a question")
    key = None if spec.key is None else check_key(spec.key, "a question's key")
    data = None if spec.data is None else take_any(spec.data, "data")
    expires = spec.expires
    if not isinstance(expires, datetime):
        expires = None if expires is None else seconds(expires, "expires=")
    elif expires.tzinfo is None:
        raise ValueError(f"expires={expires}: a moment needs a time zone, e.g. tzinfo=UTC")
    return Ask(question, spec.schema, key, data, expires)


def _moment(at: Seconds | datetime, now: int) -> int:
    """Returns a moment in microseconds since 1970. A time that has passed is due at once."""
    if isinstance(at, datetime):
        return min(max(to_micros(at), 1), MICROS_MAX)
    return now + max(round(seconds(at) * 1e6), 0)


def _refuse_late(branches: Sequence[WaitBranch], came: Came) -> None:
    """Refuses an answer that came when its question had expired.

    Raises:
        Conflict: it did.
    """
    for one in branches:
        if one.label == came.label and one.kind == "ask" and 0 < one.until <= came.at:
            when = from_micros(one.until).isoformat(sep=" ", timespec="seconds")
            raise Conflict(f"it came when the question had expired, at {when}")


def asking(spec: Ask, timeout: Seconds | None) -> dict[str, Awaitable]:
    """A wait for an answer, for so long at most, or until the question expires.

    Raises:
        TypeError, ValueError: the question has no words, or there are both.
    """
    spec = replace(spec, question=check_words(spec.question, "a question"))
    if spec.expires is None:
        return with_timeout(spec, timeout)
    if timeout is not None:
        raise ValueError("expires= is a timeout, behind which no answer counts: say one of both")
    return {"it": spec, "timeout": Expiry(spec.expires)}


def with_timeout(spec: Awaitable, timeout: Seconds | None) -> dict[str, Awaitable]:
    """A wait for one thing, for so long at most."""
    branches: dict[str, Awaitable] = {"it": spec}
    if timeout is not None:
        branches["timeout"] = Timer(timeout)
    return branches


def only(selected: Selected, what: str, default: Any) -> Any:
    """Returns the value of a wait made by `with_timeout`.

    Raises:
        TimedOut: its time was up, and there is no default.
    """
    if selected.name == "it":
        return selected.value
    if default is MISSING:
        raise TimedOut(
            f"waited for {visible(what)} in vain", hint="pass default= to continue without it"
        )
    return default
