"""The errors of a copy, a move or a restore that is not all there, or was all there before."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.core.arguments.bounds import NAME_MAX
from perdure.errors import Conflict
from perdure.storage.standing import Aside
from perdure.transfer.divergence import NAMED_MAX
from perdure.transfer.preconditions import SHOWN_MAX


class DoneBeforeError(Conflict):
    """An earlier call has done all of this; nothing was left to do. Raised because a command that
    was interrupted at its very end is called again."""


class IncompleteError(Conflict):
    """A store lacks parts of some agents of its source that it cannot take; `found` names them."""

    retry = False

    def __init__(self, problem: str, *, target: str, hint: str, found: tuple[Aside, ...]) -> None:
        super().__init__(problem, target=target, hint=hint)
        self.found = found


def incomplete(found: Iterable[Aside], done: str) -> IncompleteError:
    """Returns the error for agents that are not here up to where their source has them.

    Args:
        done: the present situation, in words.
    """
    all_of_them = tuple(found)
    first, *others = all_of_them
    names = ", ".join(repr(one.agent) for one in others[:NAMED_MAX])
    if len(others) > NAMED_MAX:
        names += f" and {len(others) - NAMED_MAX} more"
    also = f"; so are {names}" if names else ""
    target = f"agent {first.agent[:NAME_MAX]!r}" if first.agent else "the source's feed"
    return IncompleteError(
        f"is incomplete, from commit {first.seq} on: {first.problem}{also}",
        target=target,
        hint=f"{done}; repair them at the source and call this again, or go on without what cannot "
        "be taken: take_incomplete=True (--take-incomplete)",
        found=all_of_them,
    )


def unfit(found: Iterable[Aside]) -> IncompleteError:
    """Returns the error for agents of which no target can take everything, found before anything
    was moved."""
    all_of_them = tuple(found)
    first, *others = all_of_them
    names = ", ".join(repr(one.agent[:SHOWN_MAX]) for one in others[:NAMED_MAX])
    if len(others) > NAMED_MAX:
        names += f" and {len(others) - NAMED_MAX} more"
    return IncompleteError(
        first.problem + (f"; nor does all of {names}" if names else ""),
        target=f"agent {first.agent[:SHOWN_MAX]!r}",
        hint="nothing was moved; repair it, or continue with as much of it as can be taken: "
        "take_incomplete=True (--take-incomplete)",
        found=all_of_them,
    )
