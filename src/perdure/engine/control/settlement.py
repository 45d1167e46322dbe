"""Outcomes that a person may record for a run's tool calls in doubt, and the calls that they refer
to.

A place may have a call in each turn of a run, and in each history that it left when it was set
back. An outcome of a call in such a history names it by its idempotency key: the place alone would
mean the call that the run makes now.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perdure.core.format.records import Intent
from perdure.engine.journal.entry import Entry
from perdure.engine.journal.journal import Journal
from perdure.engine.journal.ledger import effects_of
from perdure.errors import Conflict, NotFound
from perdure.model import Commit
from perdure.state.runs.run_reading import BEGINS_ANEW
from perdure.visible import visible


def journals(runs: Sequence[str], commits: Iterable[Commit]) -> list[Journal]:
    """Returns a journal for each turn, oldest first: each turn, and each time a run was set back,
    counts its calls from the start."""
    turns: list[list[Commit]] = [[]]
    made: dict[str, list[Commit]] = {}
    for commit in commits:
        ours = [record for record in commit.typed if record.run in runs]
        if any(record.t in BEGINS_ANEW for record in ours):
            turns.append([])
            continue
        where = turns[-1]
        for record in ours:
            if record.t == "intent":
                made[record.key] = where
            elif record.t == "outcome" and record.key is not None:
                where = made.get(str(record.key), where)
        where.append(commit)
    return [Journal.read(runs[0], turn, aliases=runs) for turn in turns]


def check_open(run: str, journal: Journal, call: str, *, ended: bool) -> None:
    """Checks that an outcome of a call may be recorded.

    Args:
        journal: that of the run's turn.
        ended: the run has ended.

    Raises:
        NotFound: there is no such call. Conflict: it is not in doubt.
    """
    entry = journal.entries.get(call)
    if entry is None or not _is_call(entry):
        known = [effect.place for effect in effects_of(run, journal) if effect.open]
        raise NotFound(
            f"has no tool call {call!r}",
            target=f"run {run}",
            hint=f"in doubt: {', '.join(known) or 'nothing'}",
        )
    target = f"run {run}, call {call}"
    if entry.in_doubt:
        return
    if entry.outcome is None and isinstance(entry.call, Intent) and entry.call.compensates:
        return  # it failed for good, and may be undone by hand
    if entry.outcome is None:
        raise Conflict(
            "is not in doubt: it failed, and will be tried again",
            target=target,
            hint="cancel the run if it must not be",
        )
    if entry.outcome.by != "person" or ended:
        raise Conflict("is not in doubt: it is settled", target=target)
    later = (commit.typed for commit in journal.commits if commit.seq > entry.seq)
    if any(one.run == run and one.place for typed in later for one in typed):
        raise Conflict(
            "is settled, and the run has continued with that",
            target=target,
            hint="the run has continued on its basis: cancel the run if that must not stand",
        )


def left_open(run: str, left: Sequence[Journal], journal: Journal, call: str) -> str | None:
    """Returns the idempotency key of the last call in doubt that was made at a place, in histories
    that the run left; None if there is none.

    Args:
        journal: that of the run's turn.

    Raises:
        Conflict: it is being undone there, without the outcome that would be said now.
    """
    if call not in journal.entries:
        for one in journal.entries.values():
            if isinstance(one.call, Intent) and one.call.compensates == call:
                raise Conflict(
                    f"{visible(one.place)} is to undo it, whatever it came to",
                    target=f"run {run}, call {call}",
                    hint=f"settle {visible(one.place)}: as done if there is nothing to undo, as "
                    "not done to have it called",
                )
    for journal in reversed(left):
        entry = journal.entries.get(call)
        if entry is not None and _is_call(entry) and entry.in_doubt:
            return str(entry.call.key or "")
    return None


def _is_call(entry: Entry) -> bool:
    return entry.kind == "tool" or entry.call.made_at > 0
