"""`Run[T]`: what an agent function sees of its run."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from types import TracebackType
from typing import Any, Generic, TypeVar
from uuid import UUID, uuid4

from perdure.core.draft import Recording
from perdure.core.values import Plain
from perdure.engine import replay
from perdure.engine.current import Frame, Inside, current, inside
from perdure.engine.failures import as_replayed, error_record, rebuild_error, words
from perdure.engine.journal import Entry, Journal, changed
from perdure.engine.replay import Call, CrashPolicy, Effect, Effects, Invoke, Record
from perdure.engine.values import (
    Results,
    bind,
    digests,
    label,
    preview,
    refuse_async,
)
from perdure.errors import NeedsAttention, PerdureError, RunInterrupted, SchemaError
from perdure.model import Cause
from perdure.state.context import Context
from perdure.state.extras import Extras
from perdure.state.working import WorkingCopy
from perdure.storage.reader import SEQ_END

T = TypeVar("T")
R = TypeVar("R")

Fakes = Mapping[Any, Any]
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
        self._thread = (os.getpid(), threading.get_ident())
        self._fakes = fakes or {}

    @property
    def id(self) -> str:
        return self._id

    @property
    def agent(self) -> str:
        """Name of the agent that this runs on."""
        return self._working.name

    @property
    def context(self) -> Context:
        """For the engine: the open store that this runs in."""
        return self._working.context

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
        refuse_async(function)
        if self._inside() in ("step", "tool"):
            return function(*args, **kwargs)  # a step inside a step is plain
        results = Results(function)
        return self.call_step(function, function, label(function), results, args, kwargs)  # type: ignore[no-any-return]

    def call_step(
        self, decorated: Any, function: Callable[..., Any], name: str, results: Results,
        args: tuple[Any, ...], kwargs: Mapping[str, Any],
    ) -> Any:  # fmt: skip
        """For the decorators: a step at its place."""
        call = self._place(name, decorated, function, results, args, kwargs)
        entry = self._consume(call, "step")
        return self._drive(replay.step(call, entry))

    def call_tool(
        self, decorated: Any, function: Callable[..., Any], name: str, results: Results,
        args: tuple[Any, ...], kwargs: Mapping[str, Any], policy: CrashPolicy,
        probe: Callable[..., Any] | None,
    ) -> Any:  # fmt: skip
        """For the decorators: a tool call at its place."""
        call = self._place(name, decorated, function, results, args, kwargs, policy, probe)
        entry = self._consume(call, "tool")
        if entry is not None:
            call = replace(call, key=str(entry.call["key"]))  # the one that the world has seen
        return self._drive(replay.tool(call, entry))

    def _place(
        self, name: str, decorated: Any, function: Callable[..., Any], results: Results,
        args: tuple[Any, ...], kwargs: Mapping[str, Any], policy: CrashPolicy = "ask",
        probe: Callable[..., Any] | None = None,
    ) -> Call:  # fmt: skip
        place = self._next_place(name)
        arguments = bind(function, args, kwargs)
        # From the commit that began the run, not from its name: in a store made anew the same name
        # would give the same keys, and receivers would ignore what they had not seen.
        key = sha256(self._journal.origin + place.encode()).hexdigest()[:32]
        return Call(
            self._id, place, self._fakes.get(decorated, function), args, kwargs,
            digests(arguments), preview(arguments), results, key, policy, probe,
        )  # fmt: skip

    def _inside(self) -> Inside:
        frame = current()
        return frame.inside if frame is not None and frame.run is self else "function"

    def _next_place(self, name: str, *, edit_too: bool = False) -> str:
        """A call's id: its name and which call of that name it is, so that independent calls may
        change order. A task's path will stand in front when runs have tasks.

        Raises:
            PerdureError: inside a step or tool, whose body is not gone through on replay, or
                inside an open edit.
        """
        self._check()
        where = self._inside()
        if where != "function" and not (edit_too and where == "edit"):
            raise PerdureError(
                f"{name.partition(':')[0]} cannot be recorded inside "
                f"a{'n open' if where == 'edit' else ''} {where}",
                target=f"run {self._id}", hint="do it in the agent function, before or after it",
            )  # fmt: skip
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
            raise self._interrupt(problem)  # noqa: B904 - its cause is the problem

    def _catch_up(self, seq: int) -> None:
        """Bring the state to where it was when this entry was recorded."""
        while self._behind and self._behind[-1].seq <= seq:
            commit = self._behind.pop()
            if commit.seq > self._working.seq:
                self._working.advance(commit, in_place=True)

    def _drive(self, effects: Effects) -> Any:
        try:
            return replay.drive(effects, self._perform)
        except NeedsAttention as problem:
            raise self._interrupt(problem)  # noqa: B904 - its cause is the problem

    def _perform(self, effect: Effect) -> Any:
        if isinstance(effect, Record):
            return self._append(effect.records, sync=effect.sync)
        return self._invoke(effect)

    def _invoke(self, effect: Invoke) -> Any:
        with inside(Frame(self, effect.inside, effect.key)):  # type: ignore[arg-type]
            try:
                return effect.function(*effect.args, **effect.kwargs)
            except Exception:
                raise
            except BaseException as left:
                self._leave(left, f"a {effect.inside}")
                raise

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
            RunInterrupted: the lease is lost, the store did not take it, or it cannot be recorded.
            SchemaError: the recording breaks the schema or an invariant.
        """
        extras = Extras(records=[*self._pending, *records], sync=sync, **more)
        try:
            self._catch_up(SEQ_END)  # what others wrote behind the last recorded entry
            if recording is None:
                self._working.commit_delta([], cause, extras)
            else:
                self._working.commit_recording(recording, cause, extras)
        except SchemaError:
            raise
        except PerdureError as lost:
            raise self._interrupt(lost)  # noqa: B904 - its cause is the loss
        except Exception as error:
            # Nobody knows what of it is in the log: the function must not go on as if it knew.
            raise self._interrupt(self._unrecorded(error))  # noqa: B904 - its cause is the reason
        except BaseException as left:
            self._leave(left, "recording")
            raise
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
        import random  # its seeding costs 5 ms at import

        return self._value("random", random.random)  # type: ignore[no-any-return]

    def uuid(self) -> UUID:
        """A random UUID; the same again on replay."""
        return self._value("uuid", uuid4)  # type: ignore[no-any-return]

    def _value(self, kind: str, make: Callable[[], Plain]) -> Plain:
        if self._inside() in ("step", "tool"):
            self._check()
            return make()  # part of what the call's outcome records
        place = self._next_place(f"run.{kind}", edit_too=True)
        try:
            entry = self._journal.consume(place)
        except NeedsAttention as problem:
            raise self._interrupt(problem)  # noqa: B904 - its cause is the problem
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
        # I4: a forked child has its parent's epoch, and could write under it.
        if (os.getpid(), threading.get_ident()) != self._thread:
            raise PerdureError(
                "used from another thread or process than its function's", target=f"run {self._id}",
                hint="runs with threads of their own are not there yet; hand values over instead",
            )  # fmt: skip

    def _interrupt(self, reason: PerdureError) -> RunInterrupted:
        """Leave the function, and keep on leaving it whatever it catches."""
        if self._interrupted is None:
            self._interrupted = RunInterrupted(reason)
        return self._interrupted

    def _leave(self, left: BaseException, what: str) -> None:
        """It went out of a call without an outcome: a function that catches it may not go on, for
        a replay would find the call in doubt, and not behind itself."""
        if isinstance(left, RunInterrupted):
            self._interrupt(left.reason)
            return
        reason = PerdureError(
            f"{type(left).__name__} left {what} without an outcome, and was caught",
            target=f"run {self._id}", hint="let it through; run it again to go on",
        )  # fmt: skip
        reason.__cause__ = left
        self._interrupt(reason)

    def _unrecorded(self, error: Exception) -> PerdureError:
        reason = PerdureError(
            f"what it did could not be recorded: {type(error).__name__}: {words(error)}",
            target=f"run {self._id}", hint="run it again to go on, once that is put right",
        )  # fmt: skip
        reason.__cause__ = error
        return reason

    @property
    def interrupted(self) -> RunInterrupted | None:
        """For the engine: why this run may not go on, if it may not."""
        return self._interrupted

    def check_finished(self) -> None:
        """For the engine: the function returned; was everything recorded come to?"""
        try:
            self._journal.check_finished()
        except NeedsAttention as problem:
            raise self._interrupt(problem)  # noqa: B904 - its cause is the problem

    def _open_edit(self, place: str) -> tuple[Recording, Entry | None]:
        """A recording to work on, and what is recorded for it, if it is."""
        self._check()
        try:
            entry = self._journal.consume(place)
            if entry is not None and entry.kind != "edit":
                self._journal.check_call(entry, "edit", {}, "")
        except NeedsAttention as problem:
            raise self._interrupt(problem)  # noqa: B904 - its cause is the problem
        if entry is None:
            self._catch_up(SEQ_END)
            return self._working.record(), None
        # Its body saw what others had written before it, and must see it again.
        self._catch_up(int(entry.call.get("at", entry.seq - 1)))
        return self._working.throwaway(), entry

    def _close_edit(
        self, recording: Recording, recorded: Entry | None, place: str, what: str,
        error: BaseException | None,
    ) -> None:  # fmt: skip
        recording.close()
        if recorded is not None:
            self._close_recorded(recorded, error)
        elif error is not None:
            self._working.restore(recording)
            if isinstance(error, Exception):
                self._note_failed_edit(place, error)
            else:
                self._leave(error, f"the block of {place}")
        else:
            record = {"t": "edit", "run": self._id, "place": place}
            cause = Cause("edit", what, run=self._id, step=place)
            try:
                self.commit(cause, (record,), recording=recording)
            except SchemaError as refused:
                failure = self._note_failed_edit(place, refused)
                again = as_replayed(refused, failure, f"run {self._id}, {place}")
                if again is not refused:
                    raise again from refused
                raise

    def _note_failed_edit(self, place: str, error: Exception) -> Mapping[str, Any]:
        """The function may catch it and go on: replay must find that it was here."""
        failure = error_record(error)
        self._pending.append(
            {
                "t": "edit", "run": self._id, "place": place, "error": failure,
                "at": self._working.seq,
            }
        )  # fmt: skip
        return failure

    def _close_recorded(self, recorded: Entry, error: BaseException | None) -> None:
        failure = recorded.call.get("error")
        if failure is not None:
            if error is None:
                raise rebuild_error(failure, f"run {self._id}, {recorded.place}")
        elif isinstance(error, Exception):
            raise self._interrupt(
                changed(
                    f"the block of {recorded.place} raises {error!r:.200}, where it had committed",
                    self._id,
                )
            )
        elif error is None:
            self._catch_up(recorded.seq)


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
        self._run._close_edit(self._recording, self._recorded, self._place, self._what, error)
