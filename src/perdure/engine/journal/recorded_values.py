"""The value of a recorded call as its type reads it: a person said it, or an older program."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any
from urllib.parse import unquote

from msgspec.structs import replace

from perdure.core.format.records import Completed, Outcome
from perdure.core.values.plain_values import Plain, same
from perdure.engine.journal.call import Call
from perdure.engine.journal.effects import Effect, RecordEffect
from perdure.engine.journal.entry import Entry
from perdure.errors import NeedsAttention, PerdureError
from perdure.storage.appending import Riders
from perdure.system import shell


def plain_of(call: Call, outcome: Outcome, *, taken_in: bool = False) -> Plain:
    """Returns the plain value of an outcome, with what its type fills in. One that a person said is
    taken in here, as what a call returns is taken in: a key that its type does not have is refused.

    Raises:
        NeedsAttention: it does not fit the declared type.
    """
    if outcome.by != "person" or taken_in:
        return call.results.completed(outcome.value)
    try:
        return call.results.take_said(outcome.value)
    except PerdureError as error:  # whoever settled it may have mistyped it
        raise NeedsAttention(
            "the result that it was settled with does not fit its declared type: "
            f"{error.target}: {error.problem}",
            target=call.target,
            hint=f"settle it again with a value that fits: `{_settle(call, done='JSON')}` "
            "(text is '\"like this\"'); then run it again",
        ) from error


def completed(call: Call, entry: Entry, outcome: Outcome) -> Generator[Effect, Any, Outcome]:
    """Returns a recorded outcome as the result's type reads it: a person said it, or an older
    program. If that may be another each time, it is recorded before the function can pass it on."""
    value = outcome.value
    if outcome.error is None:
        value = plain_of(call, outcome, taken_in=entry.completed_at > 0)
    if value is outcome.value or same(value, outcome.value):
        return outcome
    made = Completed(run=call.run, place=entry.place, seq=entry.seq, value=value)
    yield RecordEffect(Riders((made,)), wait=False)
    return replace(outcome, value=value)


def settle_hint(call: Call) -> str:
    return (
        f"find out, then say so: `{_settle(call, done='JSON')}` with its result (text is "
        f"'\"like this\"'), or `{_settle(call, not_done=True)}`; then run it again"
    )


def _settle(call: Call, **said: str | bool) -> str:
    return shell.perdure("settle", unquote(call.run.split("/")[0]), call.place, **said)
