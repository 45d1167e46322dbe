"""Checks before a move that the target can take everything, and that everything is there to be
moved.

What one backend takes, all take, within `core.bounds`. Two things may still not fit: longer names,
in stores that were filled before there were bounds; and a third-party backend may lack a capability
that a move needs. Both were once found in the middle of a move, when half of the agents were
elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from perdure.core.arguments.bounds import (
    KEY_BYTES_MAX,
    NAME_MAX,
    RUN_ID_BYTES_MAX,
    SUFFIX_BYTES_MAX,
    message_key,
)
from perdure.errors import Conflict
from perdure.model import AgentInfo, Message
from perdure.storage.capabilities import (
    INBOX,
    LEASES,
    REMOVAL,
    RUN_ROWS,
    SHIPPING,
    Backend,
    RunQuery,
)
from perdure.storage.standing import Aside, Why
from perdure.system import shell
from perdure.system.urls import same_store
from perdure.transfer.arriving_messages import all_mail

NEEDED = (RUN_ROWS, INBOX, LEASES, SHIPPING, REMOVAL)
"""The capabilities that a move needs of its target, beside a log."""

SHOWN_MAX = 60

Kind = Literal["agent", "branch", "checkpoint", "run", "function or signal", "message key"]


def check_able(target: Backend) -> None:
    """Raises Conflict if the backend lacks what its side of a move needs."""
    lacks = [needed.name for needed in NEEDED if needed not in target.capabilities]
    if lacks:
        raise Conflict(
            f"cannot be moved to: its backend lacks {', '.join(lacks)}",
            target=f"store {target.url}",
            hint="nothing was moved; `perdure.testing` has the contract that a backend keeps",
        )


def refuse_moving(why: Why | None, source: str, target: str) -> None:
    """Raises Conflict if agents of a source are on their way to another store than the target: some
    may be there already, and another copy of them must not go on beside them (I4).

    Args:
        why: the source's standing.
    """
    if why is not None and why.kind == "moving-out" and not same_store(why.url, target):
        raise Conflict(
            f"its agents are being moved to {why.url}",
            target=f"store {source}",
            hint=f"`{shell.perdure('migrate', source, why.url)}` continues that, and finishes it; "
            "if that store is lost, `perdure restore` fills a new one from here",
        )


def misfits(source: Backend, agents: Iterable[AgentInfo]) -> list[Aside]:
    """Returns the agents that no store can take completely, with the reasons. Costs as much as they
    have names, runs and messages, whatever the length of their logs."""
    mail: dict[str, list[Message]] = {}
    for message in all_mail(source):
        mail.setdefault(message.agent, []).append(message)
    found = []
    for info in agents:
        problem = next(_problems(source, info, mail.get(info.name, [])), "")
        if problem:
            found.append(Aside(info.name, info.incarnation, 1, problem, source.now()))
    return found


def _problems(source: Backend, info: AgentInfo, mail: Iterable[Message]) -> Iterator[str]:
    yield from problems("agent", info.name)
    refs = source.refs(info.no)
    for ref in refs:
        yield from problems(ref.kind, ref.name)
    yield from lost_end(source, info, max((ref.seq for ref in refs), default=0))
    for run in source.runs(RunQuery(agent=info.name)):
        yield from problems("run", run.id)
    for message in mail:
        yield from problems("run", message.run)
        yield from problems("function or signal", message.name)
        yield from problems("message key", message_key(message.key))


def lost_end(source: Backend, info: AgentInfo, named: int) -> Iterator[str]:
    """Yields the problem of a log that ends before the commit that its branches and checkpoints
    name: a copy of the rest would look complete.

    Args:
        named: the latest of these commits, as read before the call.
    """
    if not named or source.read(info.no, named, named):
        return
    now = source.agent(info.name, info.incarnation)
    if now is None or now.purged:
        return
    last = source.read(info.no, 0, named, newest_first=True, limit=1)
    end = last[0].seq if last else 0
    yield f"its log ends at commit {end}, but a branch or checkpoint is at {named}"


def problems(kind: Kind, name: str) -> Iterator[str]:
    """Yields what is wrong with a name, in words; nothing if every backend takes it."""
    size = len(name.encode("utf-8", "surrogatepass"))
    match kind:
        case "run":
            fits, bound = size <= RUN_ID_BYTES_MAX, f"{RUN_ID_BYTES_MAX} bytes"
        case "message key":
            most = KEY_BYTES_MAX + SUFFIX_BYTES_MAX
            fits, bound = size <= most, f"{most} bytes"
        case _:
            fits, bound = len(name) <= NAME_MAX, f"{NAME_MAX} characters"
    if not fits:
        cut = name if len(name) <= SHOWN_MAX else f"{name[:SHOWN_MAX]}…"
        yield f"the {kind} {cut!r} does not fit: a store takes {bound}, but it has {len(name)}"
