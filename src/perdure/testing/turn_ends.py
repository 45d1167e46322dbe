"""The end of a turn, as it is recorded and as today's code makes it: compared as what is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from perdure.core.format import records
from perdure.core.values.plain_values import Plain, same
from perdure.engine.functions.orders import args_digest
from perdure.engine.functions.turn_end import Again
from perdure.engine.journal.call_identity import digests
from perdure.engine.journal.effects import Carried, uncarried
from perdure.engine.journal.failures import error_record, words
from perdure.engine.journal.leaving import overdue
from perdure.engine.journal.own_errors import its_own
from perdure.engine.journal.previews import preview
from perdure.engine.journal.values import Results, binding_of
from perdure.errors import PerdureError, UnknownZone
from perdure.missing import MISSING
from perdure.model import Commit


class TurnEnd(Struct, frozen=True):
    """One end of a turn.

    Attributes:
        words: for people; two equal values may have different ones, such as sets.
        result: the stored form of what the function returned; MISSING if it did not.
        error: what it raised, or the reason why its result cannot be stored.
    """

    words: str
    result: Plain = MISSING
    error: Exception | None = None

    def is_as(self, other: TurnEnd) -> bool:
        if self.result is MISSING or other.result is MISSING:
            return self.words == other.words
        return same(self.result, other.result)


def recorded_end(commit: Commit, *, last: bool) -> TurnEnd | None:
    """Returns the end that a commit records; None if it records none, or one that is not the
    function's doing.

    Args:
        last: of the run, not of another turn.
    """
    for record in commit.typed:
        match record:
            case records.Turn() if not last:
                return TurnEnd(f"run.again({record.preview}) [{args_digest(record.args)}]")
            case records.Finished() if is_late(record):
                return None
            case records.Finished(status="failed", value=error) if last:
                return TurnEnd(f"raises {error['type'].partition(':')[2]}: {error['text']}")
            case records.Finished() if last:
                return TurnEnd(f"returns {record.value!r}", record.value)
    return None


def is_late(record: records.Record) -> bool:
    """Returns True if it says that a run failed as its time was up."""
    if not isinstance(record, records.Finished) or record.status != "failed":
        return False
    if record.overdue:
        return True
    late = error_record(overdue(record.run))
    return all(record.value.get(name) == late[name] for name in ("type", "text"))


def end_now(
    function: Callable[..., Any], results: Results, result: Any, error: BaseException | None
) -> TurnEnd:
    """Returns the end of a turn of a function that returned a result, or raised an error."""
    try:
        if error is None:
            return its_own(lambda: _returned(function, results, result))
    except UnknownZone as unknown:
        return TurnEnd(f"returns {result!r:.200}, which cannot be recorded here: {unknown}")
    except (Carried, PerdureError) as raised:
        error = uncarried(raised)  # with which the run fails
    own = error if isinstance(error, Exception) else None
    return TurnEnd(f"raises {type(error).__qualname__}: {words(error)}", error=own)


def _returned(function: Callable[..., Any], results: Results, result: Any) -> TurnEnd:
    if isinstance(result, Again):
        given = binding_of(function).bind(result.args, result.kwargs)
        return TurnEnd(f"run.again({preview(given)}) [{args_digest(digests(given))}]")
    plain = results.take(result)
    return TurnEnd(f"returns {plain!r}", plain)
