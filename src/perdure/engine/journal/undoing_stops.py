"""Why a run stops that undoes its calls, and the ways out."""

from __future__ import annotations

from perdure.engine.journal.call import Call
from perdure.engine.journal.failures import words
from perdure.engine.journal.recorded_values import settle_hint
from perdure.errors import NeedsAttention
from perdure.system import shell
from perdure.visible import visible


def not_undone(call: Call, error: Exception) -> NeedsAttention:
    """Returns the reason for a compensation that failed in all its attempts."""
    stopped = NeedsAttention(
        f"{visible(call.compensates)} is not undone: {visible(call.name)} failed with "
        f"{type(error).__name__}: "
        f"{words(error)}",
        target=call.target,
        hint=f"put that right and `{shell.perdure('resume', call.run)}`, which tries it again; or "
        f"undo it by hand: {settle_hint(call)}",
    )
    stopped.__cause__ = error
    return stopped


def undo_in_doubt(call: Call) -> NeedsAttention:
    """Returns the reason for a call of which nobody knows whether it is to be undone."""
    return NeedsAttention(
        f"nobody knows whether {visible(call.asks_first)}: {call.preview()}",
        target=call.target,
        hint=f"look, then say of {visible(call.place)} that it is done if nothing is left to undo, "
        f"or not done to have it called: {settle_hint(call)}",
    )
