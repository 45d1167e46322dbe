"""The end of a turn, and what a run says of itself to people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from perdure.core.arguments.checks import number
from perdure.core.arguments.names import check_text
from perdure.core.format.records import Noted
from perdure.engine.execution.commit_items import Item
from perdure.engine.execution.execution import Execution
from perdure.model import Cause
from perdure.storage.appending import Riders

NOTE_MAX = 500


class Again(Struct, frozen=True):
    """The value that an agent function returns to be called again: `Run.again`."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


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
