"""The comparison of a run's surroundings with those that it recorded, as it begins or resumes."""

from __future__ import annotations

from perdure.core.format.records import Guarded
from perdure.errors import NeedsAttention
from perdure.state.context import Context
from perdure.state.guards import Guards
from perdure.state.surroundings import (
    ChangedError,
    KnownSurroundings,
    find_surroundings,
    in_words,
)
from perdure.storage.appending import NOTHING, Riders
from perdure.system import logs, shell

_log = logs.logger("perdure.engine")


def compare(
    context: Context, of_function: Guards | None, run: str, known: KnownSurroundings
) -> Riders:
    """Compares this program with what a run recorded; returns what is to be recorded of that.

    Args:
        known: is brought up to date, for the turns to come.

    Raises:
        ChangedError: they differ, and it stops. NeedsAttention, StoreUnavailable: they cannot be
            told.
    """
    guards = [one for one in (of_function, context.guards) if one is not None]
    if known.executed is None and not guards:
        return NOTHING
    try:
        now = find_surroundings(guards, known.executed, context.digest_keys)
    except NeedsAttention as error:
        raise NeedsAttention(error.problem, target=f"run {run}", hint=error.hint) from error
    on_change = next((one.on_change for one in guards if one.on_change is not None), "warn")
    if changed := known.changes(now):
        if on_change == "stop":
            resume = shell.perdure("resume", run)
            raise ChangedError(
                run, now, changed, f"put that back, or accept it as it is; then `{resume}`"
            )
        if on_change == "warn":
            _log.warning("run %s goes on, and its surroundings changed: %s", run, in_words(changed))
    says = bool(changed) or known.adds(now)
    record = Guarded(run=run, now=now, on_change=on_change, changed=changed)
    known.note(record)
    return Riders([record]) if says else NOTHING
