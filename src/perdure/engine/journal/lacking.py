"""What a run lacks on this machine, and will have elsewhere or later: no failure of its function.

I8: it needs a person, who puts it right. As a failure it would be the end of the run, or the
outcome of a call, for good.
"""

from __future__ import annotations

from perdure.errors import NeedsAttention, UnknownZone
from perdure.system import shell


def lacking(error: BaseException | None) -> UnknownZone | None:
    """What is lacking, where that is why something failed, or a part of it."""
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
