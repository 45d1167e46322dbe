"""The logic of durable calls, written once: generators that yield effects and know no threads.

A driver performs each effect and sends the result back in: `drive` is the synchronous one. An
asynchronous one needs nothing else from here.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import unquote

from perdure.engine.failures import as_replayed, error_record, rebuild_error, words
from perdure.engine.journal import Entry
from perdure.engine.values import Results
from perdure.errors import CallFailed, InDoubt, NeedsAttention, PerdureError

CrashPolicy = Literal["retry", "probe", "ask", "fail"]
"""What to do with a tool call in doubt: call again with the same key; ask the outside world;
ask a person; raise InDoubt in the function."""


class NotDone:
    """The type of NOT_DONE, which a probe returns for a call that did not take effect."""

    def __repr__(self) -> str:
        return "NOT_DONE"


NOT_DONE = NotDone()


@dataclass(frozen=True, slots=True)
class Record:
    """Effect: commit these records, durably if `sync`."""

    records: tuple[Mapping[str, Any], ...]
    sync: bool = False


@dataclass(frozen=True, slots=True)
class Invoke:
    """Effect: call the user's function; its exception is thrown back in."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    inside: Literal["step", "tool"]
    key: str | None = None


Effect = Record | Invoke
Effects = Generator[Effect, Any, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a recorded function, at its place in its run."""

    run: str
    place: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    digests: Mapping[str, str]
    preview: str
    results: Results
    key: str = ""
    policy: CrashPolicy = "ask"
    probe: Callable[..., Any] | None = None

    @property
    def target(self) -> str:
        return f"run {self.run}, call {self.place}"

    def record(self, kind: str, **more: Any) -> dict[str, Any]:
        return {"t": kind, "run": self.run, "place": self.place, **more}

    def described(self) -> dict[str, Any]:
        return {"args": dict(self.digests), "preview": self.preview}

    def invoke(self, inside: Literal["step", "tool"]) -> Invoke:
        return Invoke(self.function, self.args, self.kwargs, inside, self.key or None)


def step(call: Call, entry: Entry | None) -> Effects:
    """A function without outside effects: recorded once it is done, repeated freely before."""
    if entry is not None:
        return _outcome(call, entry.outcome or {})
    try:
        value = yield call.invoke("step")
        plain = call.results.take(value)
    except Exception as error:  # a result that cannot be stored, too: the caller may catch it
        failure = error_record(error)
        yield Record((call.record("step", **call.described(), error=failure),))
        again = as_replayed(error, failure, call.target)
        if again is not error:
            raise again from error
        raise
    yield Record((call.record("step", **call.described(), value=plain),))
    # I5, and the same the first time as on replay: the caller gets what was stored.
    return call.results.build(plain)


def tool(call: Call, entry: Entry | None) -> Effects:
    """A function with outside effects: its intent is durable before it is called (I5)."""
    attempt = 1
    if entry is not None:
        outcome = entry.outcome
        if outcome is None:
            outcome = yield from _settle_doubt(call)
        if outcome is not None and not outcome.get("not_done"):
            return _outcome(call, outcome)
        attempt = entry.attempts + 1
    intent = call.record(
        "intent", **call.described(), key=call.key, policy=call.policy, attempt=attempt
    )
    yield Record((intent,), sync=True)
    return (yield from _act(call))


def _act(call: Call) -> Effects:
    try:
        value = yield call.invoke("tool")
    except Exception as error:
        failure = error_record(error)
        yield Record((call.record("outcome", error=failure),), sync=True)
        again = as_replayed(error, failure, call.target)
        if again is not error:
            raise again from error
        raise
    return (yield from _record_value(call, value, by="call"))


def _record_value(call: Call, value: Any, *, by: str) -> Effects:
    try:
        plain = call.results.take(value)
    except Exception as error:
        # It took effect: that must be known, even where its result cannot be kept.
        lost = CallFailed(f"took effect, but its result cannot be stored: {words(error)}")
        yield Record((call.record("outcome", error=error_record(lost), by=by),), sync=True)
        raise lost from error
    yield Record((call.record("outcome", value=plain, by=by),), sync=True)
    return call.results.build(plain)


def _settle_doubt(call: Call) -> Generator[Effect, Any, Mapping[str, Any] | None]:
    """An intent without an outcome: the declared policy decides, never chance."""
    if call.policy == "retry":
        return None
    if call.policy == "probe":
        assert call.probe is not None
        try:
            found = yield Invoke(call.probe, call.args, call.kwargs, "step", call.key)
        except Exception as error:
            raise NeedsAttention(
                f"it is in doubt, and its probe failed: {type(error).__name__}: {words(error)}",
                target=call.target, hint=settle_hint(call),
            ) from error  # fmt: skip
        if found is NOT_DONE:
            return None
        outcome = call.record("outcome", value=_take_found(call, found), by="probe")
        yield Record((outcome,), sync=True)
        return outcome
    if call.policy == "fail":
        doubt = InDoubt(
            "the process ended between the call's intent and its outcome",
            target=call.target, hint="find out whether it took effect before calling it again",
        )  # fmt: skip
        outcome = call.record("outcome", error=error_record(doubt), by="crash")
        yield Record((outcome,), sync=True)
        return outcome
    raise NeedsAttention(
        f"nobody knows whether it took effect: {call.preview}",
        target=call.target,
        hint=settle_hint(call),
    )


def _take_found(call: Call, found: Any) -> Any:
    try:
        return call.results.take(found)
    except Exception as error:
        raise NeedsAttention(
            f"it is in doubt, and its probe returned neither NOT_DONE nor a result of the call: "
            f"{found!r:.100} ({error})",
            target=call.target, hint=settle_hint(call),
        ) from error  # fmt: skip


def settle_hint(call: Call) -> str:
    settle = _settle_command(call)
    return (
        f"find out, then say so: `{settle} --done JSON` with its result (text is '\"like this\"'), "
        f"or `{settle} --not-done`; then run it again"
    )


def _settle_command(call: Call) -> str:
    return shlex.join(("perdure", "settle", unquote(call.run.split("/")[0]), call.place))


def _outcome(call: Call, outcome: Mapping[str, Any]) -> Any:
    """What a recorded call gave: its value, rebuilt, or its error, raised again."""
    if "error" in outcome:
        raise rebuild_error(outcome["error"], call.target)
    try:
        return call.results.build(outcome.get("value"))
    except PerdureError as error:
        problem = "its recorded result no longer fits its declared type"
        hint = "let the type read the old form too, then run it again"
        if outcome.get("by") == "person":  # whoever settled it may have mistyped it
            problem = "the result that it was settled with does not fit its declared type"
            hint = (
                f"settle it again with a value that fits: `{_settle_command(call)} --done JSON` "
                "(text is '\"like this\"'); then run it again"
            )
        raise NeedsAttention(
            f"{problem}: {error.problem}", target=call.target, hint=hint
        ) from error


def drive(effects: Effects, perform: Callable[[Effect], Any]) -> Any:
    """Perform effects one after the other on this thread; returns what the generator returns."""
    try:
        effect = next(effects)
        while True:
            try:
                result = perform(effect)
            except BaseException as error:
                effect = effects.throw(error)
            else:
                effect = effects.send(result)
    except StopIteration as end:
        return end.value
