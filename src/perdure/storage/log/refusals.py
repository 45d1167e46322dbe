"""What a refused commit is for its caller: an error that says who was first, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.errors import Conflict, Fenced, NotFound, PerdureError
from perdure.storage.appending import Refused

if TYPE_CHECKING:
    from perdure.storage.log.proposals import Proposal


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


def explain(proposal: Proposal, refused: Refused) -> PerdureError:
    """The error that a refusal is for the caller."""
    draft = proposal.draft
    target = f"agent {draft.agent!r}, branch {draft.branch!r}"
    ref = refused.ref
    if refused.why == "key":
        key = proposal.riders.key
        assert key is not None
        return KeyUsedError(
            f"the idempotency key {key[0]!r} was used by commit {refused.seq}",
            target=target, hint="use another key for another command",
            seq=refused.seq, asked=refused.asked,
        )  # fmt: skip
    if refused.why == "held" and ref is not None and ref.held is not None:
        holder = ref.holder or "?"
        return HeldError(
            f"executor {holder} is running on it",
            target=f"agent {draft.agent!r}, branch {ref.name!r}",
            hint="wait until the run ends or waits, send it a signal, or fork",
            branch=ref.name, holder=holder, held=ref.held,
        )  # fmt: skip
    if refused.why == "fenced":
        return Fenced(
            f"the lease of epoch {proposal.epoch} is over"
            + (f"; epoch {ref.epoch} is current" if ref else ""),
            target=target,
            hint="this process lost its branch to another; the run goes on there",
        )
    if refused.why == "moved" and ref is not None:
        return Conflict(
            f"expected the head at commit {proposal.expected}, it is at {ref.seq}",
            target=target,
            hint="agent.refresh() and decide anew, or use agent.update(fn), which retries",
        )
    if refused.why == "exists":
        name = ref.name if ref else draft.agent
        what = f"the name {name!r} is taken" if ref else "the agent was created meanwhile"
        if ref and ref.deleted:
            what = f"the name {name!r} belonged to a branch that was deleted; names stay taken"
        return Conflict(what, target=target, hint="choose another name" if ref else "open it again")
    if refused.why == "consumed":
        return ConsumedError(
            "a message that this commit takes out of the inbox is not there any more",
            target=target, hint="read the inbox again and decide anew",
        )  # fmt: skip
    if refused.why == "unread":
        return UnreadError(
            "a message came to a run that this commit begins or ends", target=target,
            hint="read the inbox again, and decide anew",
        )  # fmt: skip
    if refused.why == "trimmed":
        return Conflict(
            "retention removes a part of its history just now",
            target=target,
            hint="make the call again, if what it builds on is still there",
        )
    gone = proposal.riders.drop_branch or draft.branch
    return NotFound(
        "was deleted" if ref is None or ref.deleted else "is a checkpoint, not a branch",
        target=f"agent {draft.agent!r}, branch {gone!r}",
        hint="a late write cannot bring it back; open the agent anew to start another incarnation",
    )
