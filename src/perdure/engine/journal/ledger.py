"""The effect ledger: a run's tool calls, and their outcomes."""

from __future__ import annotations

from msgspec import Struct

from perdure.core.format.records import Intent
from perdure.core.values.plain_values import Plain
from perdure.engine.journal.entry import Entry
from perdure.engine.journal.journal import Journal
from perdure.public_data import PublicData

_CALLS = ("intent", "outcome", "settle")
"""Why commits were made that tell of a tool call; their headers stay where retention was."""

SETTLED = frozenset({"done", "failed", "cancelled", "not done", "removed"})
"""The states of calls of which nothing more is recorded once their run has ended."""


class EffectInfo(PublicData, Struct, frozen=True):
    """One tool call of a run, as in the effect ledger.

    Attributes:
        place: its id in the run, e.g. ``refund#1``.
        state: ``done``, ``failed``, ``in doubt``, ``made before`` (before the run was set back, or
            by the one that it was forked from; not made again until a person decides), ``to be
            tried again`` (it failed, and has attempts left), ``not undone`` (a compensation that
            failed for good; resumed, its run tries it again), ``cancelled`` (its task was, during
            the call: it may or may not have taken effect), ``not done`` (settled so), or
            ``removed`` (it was made; retention removed its arguments and outcome).
        attempts: the number of calls, by its intents.
        by: the source of the outcome: ``call``, ``probe``, ``crash``, ``person``, ``reuse`` (of the
            same call, made before); empty while there is none.
        seq: the seq of the commit that settled it, or else began it.
        made_at: the seq of the commit in which the same call was made before; 0 if it was not.
    """

    run: str
    place: str
    preview: str
    state: str
    attempts: int
    policy: str
    key: str
    seq: int
    result: Plain = None
    by: str = ""
    made_at: int = 0

    @property
    def open(self) -> bool:
        """True if a person may record its outcome, by `RunHandle.settle`."""
        return self.state in ("in doubt", "made before", "not undone")


def effects_of(run: str, journal: Journal) -> list[EffectInfo]:
    """Returns the effects of one turn of a run, in order."""
    found = [
        _effect_of(run, entry)
        for entry in journal.entries.values()
        if (entry.kind == "tool" or entry.asked) and entry.call.t != "outcome"  # else it is removed
    ]
    removed: dict[str, EffectInfo] = {}
    for commit in journal.commits:
        cause = commit.cause
        if commit.trimmed and cause.run == run and cause.step and cause.kind in _CALLS:
            removed[cause.step] = EffectInfo(run, cause.step, "", "removed", 0, "", "", commit.seq)
    known = {effect.place for effect in found}
    return [*(one for place, one in removed.items() if place not in known), *found]


def _effect_of(run: str, entry: Entry) -> EffectInfo:
    outcome = entry.outcome
    if outcome is None:
        state = "made before" if entry.asked else "in doubt" if entry.in_doubt else entry.state
    else:
        state = outcome.came
    call = entry.call
    return EffectInfo(
        run,
        entry.place,
        call.preview,
        state,
        entry.attempts,
        str(call.policy) if isinstance(call, Intent) else "",
        str(call.key or ""),
        entry.seq,
        outcome.value if outcome is not None else None,
        str(outcome.by or "call") if outcome is not None else "",
        call.made_at,
    )
