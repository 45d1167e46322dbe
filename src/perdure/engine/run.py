"""`Run[T]`: what an agent function sees of its run."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from types import TracebackType
from typing import Any, Generic, TypeVar
from uuid import UUID, uuid4

from perdure.core.draft import Recording
from perdure.core.values import Plain
from perdure.engine import replay
from perdure.engine.current import Frame, inside
from perdure.engine.journal import Journal
from perdure.engine.replay import Call, CrashPolicy, Effect, Effects, Invoke, Record
from perdure.engine.values import Results, bind, digests, preview
from perdure.errors import (
    Conflict,
    Fenced,
    NeedsAttention,
    PerdureError,
    RunInterrupted,
    StoreUnavailable,
)
from perdure.model import Cause
from perdure.state.working import Extras, WorkingCopy
from perdure.storage.reader import SEQ_END

T = TypeVar("T")
R = TypeVar("R")

Fakes = Mapping[Any, Callable[..., Any]]
"""Stand-ins for tools and steps, by the function they stand for: for tests."""


class Run(Generic[T]):
    """One execution of an agent function. Made by `Store.run`, handed to the function.

    Its calls are for the thread that runs the function.
    """

    def __init__(
        self, working: WorkingCopy[T], run_id: str, journal: Journal, fakes: Fakes | None = None
    ) -> None:
        self._working = working
        self._id = run_id
        self._journal = journal
        self._behind = list(reversed(journal.commits))
        self._occurrences: dict[str, int] = {}
        self._pending: list[Mapping[str, Any]] = []
        self._interrupted: RunInterrupted | None = None
        self._thread = threading.get_ident()
        self._fakes = fakes or {}

    @property
    def id(self) -> str:
        return self._id

    @property
    def agent(self) -> str:
        """Name of the agent that this runs on."""
        return self._working.name

    @property
    def epoch(self) -> int:
        """The fencing token of the lease that this executes under."""
        return self._working.epoch or 0

    @property
    def replaying(self) -> bool:
        """Whether the function is still going over what it did before."""
        return self._journal.next_left() is not None

    @property
    def state(self) -> T:
        """The agent's state as of the last recorded call that the function has come to. Change it
        inside `edit`."""
        self._check()
        return self._working.typed

    # -- calls -----------------------------------------------------------------------------

    def call(self, function: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
        """Record a call of any callable as a step; a step or tool is recorded as what it is."""
        if isinstance(getattr(function, "__perdure__", None), str):
            return function(*args, **kwargs)
        name = getattr(function, "__qualname__", type(function).__qualname__)
        label = name.rsplit("<locals>.", 1)[-1]
        return self.call_step(function, label, Results(function), args, kwargs)  # type: ignore[no-any-return]

    def call_step(
        self, function: Callable[..., Any], name: str, results: Results,
        args: tuple[Any, ...], kwargs: Mapping[str, Any],
    ) -> Any:  # fmt: skip
        """For the decorators: a step at its place."""
        call = self._place(name, function, results, args, kwargs)
        entry = self._consume(call, "step")
        return self._drive(replay.step(call, entry))

    def call_tool(
        self, decorated: Any, function: Callable[..., Any], name: str, results: Results,
        args: tuple[Any, ...], kwargs: Mapping[str, Any], policy: CrashPolicy,
        probe: Callable[..., Any] | None,
    ) -> Any:  # fmt: skip
        """For the decorators: a tool call at its place."""
        function = self._fakes.get(decorated, function)
        call = self._place(name, function, results, args, kwargs, policy, probe)
        entry = self._consume(call, "tool")
        return self._drive(replay.tool(call, entry))

    def _place(
        self, name: str, function: Callable[..., Any], results: Results, args: tuple[Any, ...],
        kwargs: Mapping[str, Any], policy: CrashPolicy = "ask",
        probe: Callable[..., Any] | None = None,
    ) -> Call:  # fmt: skip
        place = self._next_place(name)
        arguments = bind(function, args, kwargs)
        key = sha256(f"{self._id}\0{place}".encode()).hexdigest()[:32]
        return Call(
            self._id, place, function, args, kwargs, digests(arguments), preview(arguments),
            results, key, policy, probe,
        )  # fmt: skip

    def _next_place(self, name: str) -> str:
        """A call's id: its name and which call of that name it is, so that independent calls may
        change order. A task's path will stand in front when runs have tasks."""
        self._check()
        number = self._occurrences.get(name, 0) + 1
        self._occurrences[name] = number
        return f"{name}#{number}"

    def _consume(self, call: Call, kind: str) -> Any:
        try:
            entry = self._journal.consume(call.place)
            if entry is not None:
                self._journal.check_call(entry, kind, call.digests, call.preview)
                self._catch_up(entry.seq)
            return entry
        except NeedsAttention as problem:
            raise self._interrupt(problem) from None

    def _catch_up(self, seq: int) -> None:
        """Bring the state to where it was when this entry was recorded."""
        while self._behind and self._behind[-1].seq <= seq:
            commit = self._behind.pop()
            if commit.seq > self._working.seq:
                self._working.advance(commit)

    def _drive(self, effects: Effects) -> Any:
        try:
            return replay.drive(effects, self._perform)
        except NeedsAttention as problem:
            raise self._interrupt(problem) from problem.__cause__

    def _perform(self, effect: Effect) -> Any:
        if isinstance(effect, Record):
            return self._append(effect.records, sync=effect.sync)
        return self._invoke(effect)

    def _invoke(self, effect: Invoke) -> Any:
        with inside(Frame(self, effect.inside, effect.key)):  # type: ignore[arg-type]
            return effect.function(*effect.args, **effect.kwargs)

    def _append(self, records: tuple[Mapping[str, Any], ...], *, sync: bool = False) -> None:
        first = records[0]
        cause = Cause(str(first["t"]), run=self._id, step=str(first["place"]))
        self.commit(cause, records, sync=sync)

    def commit(
        self, cause: Cause, records: tuple[Mapping[str, Any], ...] = (), *, sync: bool = False,
        recording: Recording | None = None, **more: Any,
    ) -> None:  # fmt: skip
        """For the engine: commit records, with those that waited, under the run's lease.

        Raises:
            RunInterrupted: the lease is lost, or the store did not take it.
        """
        self._catch_up(SEQ_END)  # what others wrote behind the last recorded entry
        extras = Extras(records=[*self._pending, *records], sync=sync, **more)
        try:
            if recording is None:
                self._working.commit_delta([], cause, extras)
            else:
                self._working.commit_recording(recording, cause, extras)
        except (Fenced, Conflict, StoreUnavailable) as lost:
            raise self._interrupt(lost) from None
        self._pending.clear()

    # -- state -----------------------------------------------------------------------------

    def edit(self, what: str = "") -> RunEdit[T]:
        """Like `Agent.edit`, recorded at its place in the run.

        On replay its body runs on a throwaway draft, and what was recorded counts.
        """
        return RunEdit(self, self._next_place(f"edit:{what}"), what)

    # -- what is not the same twice ----------------------------------------------------------

    def now(self) -> datetime:
        """The time, aware, in UTC; the same again on replay."""
        return self._value("now", lambda: datetime.now(UTC))  # type: ignore[no-any-return]

    def random(self) -> float:
        """A random number from [0, 1); the same again on replay."""
        return self._value("random", random.random)  # type: ignore[no-any-return]

    def uuid(self) -> UUID:
        """A random UUID; the same again on replay."""
        return self._value("uuid", uuid4)  # type: ignore[no-any-return]

    def _value(self, kind: str, make: Callable[[], Plain]) -> Plain:
        place = self._next_place(f"run.{kind}")
        try:
            entry = self._journal.consume(place)
        except NeedsAttention as problem:
            raise self._interrupt(problem) from None
        if entry is not None:
            return entry.call["value"]
        value = make()
        # Nothing depends on it outside until the next commit, which it joins.
        self._pending.append({"t": "value", "run": self._id, "place": place, "value": value})
        return value

    # -- ending ----------------------------------------------------------------------------

    def _check(self) -> None:
        if self._interrupted is not None:
            raise self._interrupted
        if threading.get_ident() != self._thread:
            raise PerdureError(
                "used from another thread than its function's", target=f"run {self._id}",
                hint="runs with threads of their own are not there yet; hand values over instead",
            )  # fmt: skip

    def _interrupt(self, reason: PerdureError) -> RunInterrupted:
        """Leave the function, and keep on leaving it whatever it catches."""
        if self._interrupted is None:
            self._interrupted = RunInterrupted(reason)
        return self._interrupted

    @property
    def interrupted(self) -> RunInterrupted | None:
        """For the engine: why this run may not go on, if it may not."""
        return self._interrupted

    def check_finished(self) -> None:
        """For the engine: the function returned; was everything recorded come to?"""
        try:
            self._journal.check_finished()
        except NeedsAttention as problem:
            raise self._interrupt(problem) from None

    def _open_edit(self, place: str) -> tuple[Recording, int | None]:
        """A recording to work on, and the seq of what is recorded for it, if it is."""
        self._check()
        try:
            entry = self._journal.consume(place)
            if entry is not None and entry.kind != "edit":
                self._journal.check_call(entry, "edit", {}, "")
        except NeedsAttention as problem:
            raise self._interrupt(problem) from None
        if entry is None:
            self._catch_up(SEQ_END)
            return self._working.record(), None
        return self._working.throwaway(), entry.seq

    def _close_edit(
        self, recording: Recording, recorded: int | None, place: str, what: str, *, failed: bool
    ) -> None:
        recording.close()
        if recorded is not None:
            self._catch_up(recorded)
        elif failed:
            self._working.restore(recording)
        else:
            record = {"t": "edit", "run": self._id, "place": place}
            cause = Cause("edit", what, run=self._id, step=place)
            self.commit(cause, (record,), recording=recording)


class RunEdit(Generic[T]):
    """The context manager of `Run.edit`."""

    def __init__(self, run: Run[T], place: str, what: str) -> None:
        self._run = run
        self._place = place
        self._what = what

    def __enter__(self) -> T:
        self._recording, self._recorded = self._run._open_edit(self._place)
        self._inside = inside(Frame(self._run, "edit"))  # type: ignore[arg-type]
        self._inside.__enter__()
        return self._recording.draft  # type: ignore[no-any-return]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._inside.__exit__(None, None, None)
        self._run._close_edit(
            self._recording, self._recorded, self._place, self._what, failed=kind is not None
        )
