"""The resources that a run lacks on this machine, and may have elsewhere or later: not a failure of
its function.

I8: a person must fix it. As a failure it would end the run, or be the outcome of a call, for good.
"""

from __future__ import annotations

from perdure.errors import NeedsAttention, UnknownZone
from perdure.system import shell


def lacking(error: BaseException | None) -> UnknownZone | None:
    """Returns the missing resource that caused an error, or a part of it; None if there is none."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            if (found := lacking(one)) is not None:
                return found
    return error if isinstance(error, UnknownZone) else None


def lacks(error: UnknownZone, run: str, target: str) -> NeedsAttention:
    """The need for attention in its place. `target`: what met it, the run or one of its calls."""
    return NeedsAttention(
        error.problem,
        target=target,
        hint=f"{error.hint}. Then `{shell.perdure('resume', run)}`, here or where it is known",
    )
