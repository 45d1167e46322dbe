"""The error for a commit of which not even a look-up could tell whether it happened."""

from __future__ import annotations

from perdure.errors import PerdureError, StoreUnavailable


def unknown(problem: PerdureError, target: str) -> StoreUnavailable:
    """Returns that error. `target`: for a problem that names none."""
    return StoreUnavailable(
        f"the commit may or may not have happened: {problem.problem}",
        target=problem.target or target,
        hint="when the store answers again, look at the agent's log, or make the same call "
        "with an idempotency key; " + problem.hint,
        outcome="unknown",
    )
