"""The errors for a refused commit: who was first, and what to do."""

from __future__ import annotations

from perdure.errors import Conflict, Hint
from perdure.storage.appending import Ref


class KeyUsedError(Conflict):
    """The idempotency key took effect before: at `seq`, for `asked`."""

    def __init__(self, problem: str, *, target: str, hint: str, seq: int, asked: bytes) -> None:
        super().__init__(problem, target=target, hint=hint)
        self.seq = seq
        self.asked = asked


class HeldError(Conflict):
    """Another executor holds a branch's lease: `holder` holds that of `branch`, under epoch
    `held`."""

    def __init__(
        self, problem: str, *, target: str, hint: str, branch: str, holder: str, held: int
    ) -> None:
        super().__init__(problem, target=target, hint=hint)
        self.branch = branch
        self.holder = holder
        self.held = held


def held_error(agent: str, ref: Ref) -> HeldError:
    """Returns the error for a branch that an executor holds."""
    assert ref.held is not None
    holder = ref.holder or "?"
    return HeldError(
        f"executor {holder} is running on it",
        target=f"agent {agent!r}, branch {ref.name!r}",
        hint=Hint.BRANCH_HELD,
        branch=ref.name,
        holder=holder,
        held=ref.held,
    )


def is_race(error: Conflict) -> bool:
    """True if others were faster: decided anew, the same write may succeed at once."""
    return error.retry and not isinstance(error, HeldError)


class ConsumedError(Conflict):
    """Another commit took the message out of the inbox, or its agent was deleted."""


class OvertakenError(Conflict):
    """Another run is not any more as the writer had seen it. It looks again, and decides again."""


class BegunError(OvertakenError):
    """A run that the commit begins or asks for is there, or is asked for: by a fork, say, or by
    another run that starts it under the same key."""


class EndedError(OvertakenError):
    """A run that the commit sends to has ended, or was purged."""


class UnreadError(Conflict):
    """After its writer read the inbox, a message arrived: a signal to a run that the commit ends, a
    request to end a run that it begins, or another request for one of these."""
