"""The handle of a run that this run started: what its function asks and tells it, recorded."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from hashlib import sha256
from typing import Any, Generic, TypeVar

from perdure.core.arguments.checks import Seconds, flag
from perdure.core.arguments.names import check_key, check_words
from perdure.core.format.records import Outcome, StartedChild
from perdure.core.values.plain_values import Plain
from perdure.engine.execution.execution import Execution
from perdure.engine.functions.agent_functions import spec_of
from perdure.engine.functions.run_lookup import find_run
from perdure.engine.journal.any_values import take_any
from perdure.engine.journal.call_identity import KEY, digests
from perdure.engine.journal.effects import Arrive, Carried, Effect, Effects, RecordEffect
from perdure.engine.journal.failures import error_record, rebuild_error
from perdure.engine.journal.previews import preview
from perdure.engine.journal.told_runs import sent_by, telling
from perdure.engine.journal.values import results_of
from perdure.engine.journal.waits import ChildEnd, Wait, check_signal, only, with_timeout
from perdure.errors import Conflict, NotFound, PerdureError
from perdure.missing import MISSING
from perdure.model import FINISHED, Message, RunStatus
from perdure.state.runs.family_messages import agent_of
from perdure.state.runs.unused_signals import sent_key
from perdure.storage.appending import Riders
from perdure.storage.capabilities import RunQuery
from perdure.storage.log.refusals import EndedError
from perdure.visible import visible

R = TypeVar("R")


class Child(Generic[R]):
    """A run that this run started. Something to `select` on, too.

    What it says and does is a part of this run: recorded at its place, and the same on replay.

    Attributes:
        id: the run's id: agent, function and key, e.g. ``search-1/search/main``.
    """

    def __init__(
        self, execution: Execution[Any], started: StartedChild, function: Callable[..., Any]
    ) -> None:
        self._execution = execution
        self.id = started.run
        self._function = spec_of(function).name
        self._let_live = bool(started.let_live)
        self._results = results_of(function)

    def __repr__(self) -> str:
        return f"<perdure child {visible(self.id)}>"

    @property
    def status(self) -> RunStatus:
        """Its status as of this moment; the same on replay, like `Run.now`. To wait for its end,
        use `result`: a function that asks again and again records each answer."""
        execution = self._execution

        def look() -> Plain:
            with execution.asking:
                return _status(execution, self.id)

        return execution.value(f"status:{self.id}", look)  # type: ignore[no-any-return]

    @property
    def end(self) -> ChildEnd:
        """For the faces: what to wait for.

        Raises:
            PerdureError: it cannot begin before this run has ended.
        """
        refuse_deadlock(self._execution, self.id)
        return ChildEnd(self.id, self._results.build, self._results.completed)

    def result(
        self,
        *,
        timeout: Seconds | None = None,
        default: Any = MISSING,
        cancel: bool = True,
    ) -> R:
        """Waits for the child's end, and returns its result.

        Args:
            cancel: when the time is up the child is cancelled, in the same commit. False leaves it
                at work, and so does ``let_live=True`` where it was started.

        Raises:
            TimedOut: it takes longer, and there is no `default`.
            RunFailed: it was cancelled.
            Exception: the one that it raised.
        """
        wait = self.waiting(timeout, cancel)
        return self.ended(self._execution.performer.call(wait), default)

    def cancel(self, why: str = "") -> bool:
        """Asks the child to end, durably; returns at once. If it has begun, it ends at its next
        boundary, and at once while it waits. `result` raises `RunFailed` then.

        Returns:
            False if it had ended already: it stays as it is.
        """
        return self._execution.performer.call(self.cancelling(why))  # type: ignore[no-any-return]

    def signal(self, name: str, value: Any = None, *, key: str | None = None) -> None:
        """Sends the child a signal, in the commit that records it; it may come before the child
        waits for it. Sent once, also if this run is set back, or forked, to before it; the child's
        log names this run as the sender.

        Args:
            value: plain data, or a value of a type with a schema.
            key: a signal sent again with the same key is the same signal, and is delivered once;
                default: from this place of the run.

        Raises:
            Conflict: the child has ended; on replay, too.
            Unstorable: the value cannot be stored.
            ValueError: the key is empty, or the name is one of the library's own.
        """
        self._execution.performer.call(self.signalling(name, value, key))

    # -- for the faces -------------------------------------------------------------------------

    def waiting(self, timeout: Seconds | None, cancel: bool) -> Effects:
        """For the faces: the wait for its end; gives `ended` what came."""
        ends = flag(cancel, "cancel=") and not self._let_live and timeout is not None
        wait = Wait(self._execution.id, f"child:{self.id}", with_timeout(self.end, timeout))
        return self._cancelling_late(wait) if ends else wait.effects()

    def _cancelling_late(self, wait: Wait) -> Effects:
        """Cancels the child along with the record that the time is up."""
        told: list[Message] = []

        def late(key: str) -> Message | None:
            if told and self._has_ended():  # not just now: it is gone, and nothing tells of its end
                told.clear()
                return None
            why = f"run {self._execution.id} waited for it until its time was up"
            told[:] = [self._message("cancel", "", key, why)]
            return told[0]

        wait.sends_late = late
        selected = yield from wait.effects()
        if selected.name == "timeout":
            self._execution.told(told)
        return selected

    def ended(self, selected: Any, default: Any) -> R:
        """For the faces: what `result` gives for what came."""
        return only(selected, f"run {self.id}", default)  # type: ignore[no-any-return]

    def cancelling(self, why: str) -> Effects:
        """For the faces: errors in the words are raised here, and nothing is recorded of them."""
        return self._cancel({"(run)": self.id, "why": check_words(why, "why=")})

    def _cancel(self, described: Mapping[str, Any]) -> Effects:
        arrived = yield self._arrival(f"cancel:{self._function}", described)
        recorded = arrived.entry.outcome if arrived.entry is not None else None
        if recorded is not None:
            return bool(recorded.value)
        asking = self._message("cancel", "", arrived.key, described["why"])
        asked = yield from self._tell(arrived.place, described, asking, True)
        if not asked:
            yield self._recording(arrived.place, described, value=False)
        return asked

    def signalling(self, name: str, value: Any, key: str | None) -> Effects:
        """For the faces: as `cancelling`."""
        name, described = check_signal(name), {"(run)": self.id, "value": take_any(value, "value")}
        if key is not None:
            described[KEY] = check_key(key, "a signal's key")
        return self._signal(name, described)

    def _signal(self, name: str, described: Mapping[str, Any]) -> Effects:
        arrived = yield self._arrival(f"signal:{name}", described)
        recorded = arrived.entry.outcome if arrived.entry is not None else None
        if recorded is not None:
            if recorded.error is not None:
                raise Carried(rebuild_error(recorded.error, arrived.place))
            return
        key, value = described.get(KEY), described["value"]
        once = self._once(arrived.place, described) if key is None else sent_key(key)
        signal = self._message("signal", name, once, value)
        if not (yield from self._tell(arrived.place, described, signal, value)):
            gone = Conflict("has ended: nobody would receive it", target=f"run {self.id}")
            yield self._recording(arrived.place, described, error=error_record(gone))
            raise gone

    def _tell(
        self, place: str, described: Mapping[str, Any], message: Message, value: Plain
    ) -> Generator[Effect, Any, bool]:
        """Sends a message along with the record of it; returns False if the child has ended, as of
        that very commit."""
        record = self._record(place, described, sent=sent_by(message), value=value)
        while not self._has_ended():
            try:
                yield RecordEffect(telling(record, message))
            except EndedError:  # since it was looked at
                continue
            self._execution.told([message])
            return True
        return False

    def _arrival(self, name: str, described: Mapping[str, Any]) -> Arrive:
        return Arrive(name, "step", digests(described), lambda: preview(described))

    def _once(self, place: str, described: Mapping[str, Any]) -> str:
        """Returns the key of a signal that this place of the turn sends, also if the run, or a fork
        of it, comes to it again."""
        args = digests(described)
        said = "\0".join((place, *(f"{name}\0{args[name]}" for name in sorted(args))))
        return sha256(self._execution.journal.turn + said.encode()).hexdigest()[:32]

    def _message(self, kind: Any, name: str, key: str, value: Plain) -> Message:
        return Message(self.id, agent_of(self.id), kind, name, key, value, self._execution.id)

    def _recording(self, place: str, described: Mapping[str, Any], **outcome: Any) -> RecordEffect:
        return RecordEffect(Riders((self._record(place, described, **outcome),), sync=True))

    def _record(self, place: str, described: Mapping[str, Any], **outcome: Any) -> Outcome:
        told, said = digests(described), preview(described)
        run = self._execution.id
        return Outcome(t="step", run=run, place=place, args=told, preview=said, **outcome)

    def _has_ended(self) -> bool:
        with self._execution.asking:
            return _status(self._execution, self.id) in FINISHED


def _status(execution: Execution[Any], run: str) -> RunStatus:
    try:
        return find_run(execution.context.backend, run).status
    except NotFound:  # its agent was deleted before it began, or was purged since
        return "cancelled"


def refuse_deadlock(execution: Execution[Any], child: str) -> None:
    """An agent has one unfinished run at a time: none can wait for another of the same agent, nor
    of one whose run waits for it."""
    backend = execution.context.backend
    agent, run = agent_of(child), execution.id
    while run:
        if agent_of(run) == agent:
            raise PerdureError(
                f"is of an agent that run {visible(run)} has, and cannot begin before that ends",
                target=f"run {child}",
                hint="start it on another agent",
            )
        with execution.asking:
            found = backend.runs(RunQuery(run_id=run))
        run = found[0].parent if found else ""
