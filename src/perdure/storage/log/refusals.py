"""What a refused commit is for its caller: an error that says who was first, and what to do."""

from __future__ import annotations

from perdure.errors import Conflict


class KeyUsedError(Conflict):
    """The idempotency key took effect before; `seq` says where, `asked` for what."""

    def __init__(self, problem: str, *, target: str, hint: str, seq: int, asked: bytes) -> None:
        super().__init__(problem, target=target, hint=hint)
        self.seq = seq
        self.asked = asked


class HeldError(Conflict):
    """Another executor holds a branch's lease: `holder` that of `branch`, under epoch `held`."""

    def __init__(
        self, problem: str, *, target: str, hint: str, branch: str, holder: str, held: int
    ) -> None:
        super().__init__(problem, target=target, hint=hint)
        self.branch = branch
        self.holder = holder
        self.held = held


class ConsumedError(Conflict):
    """Another commit took the message out of the inbox, or its agent was deleted."""


class UnreadError(Conflict):
    """A signal came to a run that the commit ends, a request to end one that it begins, or who
    else wants it, after its maker had read the inbox."""
