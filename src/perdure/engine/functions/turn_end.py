"""The end of a turn, and what a run says of itself to people."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from msgspec import Struct, UnsetType

from perdure.core.arguments.checks import number
from perdure.core.arguments.names import check_text
from perdure.core.format.records import Noted, Turn
from perdure.core.types.unknown_fields import is_of_newer_data
from perdure.engine.execution.commit_items import Item
from perdure.engine.execution.execution import Execution
from perdure.engine.journal.call_identity import FORM, digests
from perdure.engine.journal.previews import preview
from perdure.engine.journal.values import binding_of, parameters_of
from perdure.errors import NeedsAttention, SchemaError
from perdure.model import Cause
from perdure.storage.appending import Riders
from perdure.system import shell

T = TypeVar("T")

NOTE_MAX = 500


class Again(Struct, frozen=True):
    """The value that an agent function returns to be called again: `Run.again`."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def next_turn(
    run: str, function: Callable[..., Any], again: Again, given: Any, deadline_at: int | UnsetType
) -> Turn:
    """Returns the record with which the next turn of a run begins.

    Args:
        given: the stored arguments of this turn; None: they could not be stored.
        deadline_at: UNSET: that of the turn before holds.

    Raises:
        NeedsAttention: a newer program stored something in them, and it is not clear in which of
            the next ones it belongs.
        SchemaError, Unstorable: they cannot be stored.
    """
    arguments = binding_of(function).bind(again.args, again.kwargs)
    taken = handed_on(run, lambda: parameters_of(function).take(again.args, again.kwargs, given))
    return Turn(
        run=run,
        args=digests(arguments),
        digests=FORM,
        preview=preview(arguments),
        input=taken,
        deadline_at=deadline_at,
    )


def handed_on(run: str, take: Callable[[], T]) -> T:
    """Returns what a run hands on, taken by its types.

    Raises:
        NeedsAttention: a newer program stored something in it, and it is not clear where it
            belongs.
    """
    try:
        return take()
    except SchemaError as error:
        if not is_of_newer_data(error):
            raise
        raise NeedsAttention(
            error.problem,
            target=f"run {run}, {error.target}",
            hint="hand on what it got, not what is made of that; or let the newer program "
            f"continue: `{shell.perdure('resume', run)}`",
        ) from error


def note(execution: Execution[Any], text: str, fraction: float | None) -> None:
    """Records a run's progress, except during replay."""
    text = check_text(text, "text=")
    if fraction is not None:
        fraction = number(fraction, "fraction=")
        if not 0 <= fraction <= 1:
            raise ValueError(f"fraction={fraction!r}: must be from 0 to 1")
    execution.check()
    if not (execution.past_record or execution.comes_past_record()):
        return
    record = Noted(run=execution.id, text=text[:NOTE_MAX], fraction=fraction)
    execution.writer.post(Item(Cause("run-progress", run=execution.id), Riders((record,))))
