"""A model of an agent's log: what one that is written by one writer at a time would answer.

A history of calls to a real one is checked against it by `tests.simulation.linearizable`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perdure.core.format import chain
from perdure.model import Lease
from perdure.storage.appending import Append, Appended, Outcome, Ref, Refused

UNKNOWN = "unknown"
"""The answer of a call that did not get one: it may have taken effect, at any time since."""

NOTHING = "nothing"
"""The answer of a call that is known to have had no effect."""


class Put(Struct, frozen=True):
    """An append: the log's next place, and what it depends on. `takes`: the lease, along with it.
    `then`: another one, which is in along with it."""

    seq: int
    id: bytes
    prev: bytes
    branch: str
    expected: int | None
    epoch: int | None
    key: str = ""
    release: bool = False
    deletes: bool = False
    takes: bool = False
    then: Put | None = None


class Take(Struct, frozen=True):
    """Taking, giving back or breaking a lease, as `Backend.lease` is asked to."""

    branch: str
    executor: str | None
    over: int | None
    release: int | None


class Look(Struct, frozen=True):
    """Reading a branch. Its answer is a `Seen`, or None: there is none."""

    branch: str


class End(Struct, frozen=True):
    """Reading the log's last commit. Its answer is its seq and id."""


Asked = Put | Take | Look | End


class Seen(Struct, frozen=True):
    """A branch as it was read."""

    seq: int
    epoch: int
    held: int | None


class Granted(Struct, frozen=True):
    """A lease, which does not tell where the branch's head is."""

    epoch: int


class Call(Struct, frozen=True):
    """One call: `began` and `ended` are moments of one clock; in between it took effect, or not."""

    who: str
    began: int
    ended: int
    asked: Asked
    answer: Any


class Log(Struct, frozen=True):
    """The state of the model. Branches are in the order of their names, so that equal states are
    equal."""

    length: int = 0
    last: bytes = b""
    branches: tuple[tuple[str, Seen], ...] = ()
    keys: frozenset[str] = frozenset()
    deleted: bool = False

    def branch(self, name: str) -> Seen | None:
        return next((seen for one, seen in self.branches if one == name), None)

    def with_branch(self, name: str, seen: Seen) -> Log:
        others = [(one, old) for one, old in self.branches if one != name]
        return replace(self, branches=tuple(sorted([*others, (name, seen)], key=_name)))


def _name(one: tuple[str, Seen]) -> str:
    return one[0]


def step(log: Log, asked: Asked, answer: Any) -> Iterator[Log]:
    """The states that the log may be in after a call with this answer; none: it cannot be."""
    if answer == NOTHING:
        yield log
        return
    match asked:
        case Put():
            yield from _put(log, asked, answer)
        case Take():
            yield from _take(log, asked, answer)
        case Look():
            if answer == UNKNOWN or answer == log.branch(asked.branch):
                yield log
        case End():
            if answer in (UNKNOWN, (log.length, log.last)):
                yield log


def _put(log: Log, asked: Put, answer: Any) -> Iterator[Log]:
    refusals = _refusals(log, asked)
    after = log if refusals else _written(log, asked)
    if asked.then is not None and not refusals:
        refusals = _refusals(after, asked.then)
        after = log if refusals else _written(after, asked.then)
    if answer == UNKNOWN:
        yield log
    if answer in (UNKNOWN, "in"):
        if not refusals:
            yield after
    elif answer in refusals:
        yield log


def _refusals(log: Log, asked: Put) -> list[str]:
    """All the reasons there are to refuse it: a backend may name any of them."""
    found: list[str] = []
    if asked.key and asked.key in log.keys:
        found.append("key")
    if asked.seq != log.length + 1 or asked.prev != log.last:
        found.append("stale")
    branch = log.branch(asked.branch)
    if log.deleted:
        found.append("gone")
    if asked.expected is None:
        if branch is not None:
            found.append("exists")
        return found
    if branch is None:
        return [*found, "gone"]
    if asked.takes:
        if branch.held is not None:
            found.append("held")
        elif branch.epoch + 1 != asked.epoch:
            found.append("fenced")
    elif branch.held != asked.epoch:
        found.append("held" if asked.epoch is None else "fenced")
    if branch.seq != asked.expected:
        found.append("moved")
    return found


def _written(log: Log, asked: Put) -> Log:
    before = log.branch(asked.branch) or Seen(0, 0, None)
    epoch, held = before.epoch, before.held
    if asked.takes:
        assert asked.epoch is not None
        epoch = held = asked.epoch
    after = Seen(asked.seq, epoch, None if asked.release else held)
    log = log.with_branch(asked.branch, after)
    keys = log.keys | {asked.key} if asked.key else log.keys
    return replace(log, length=asked.seq, last=asked.id, keys=keys, deleted=asked.deletes)


def _take(log: Log, asked: Take, answer: Any) -> Iterator[Log]:
    branch = log.branch(asked.branch)
    if branch is None:
        if answer in (UNKNOWN, None):
            yield log
        return
    after = _taken(branch, asked)
    granted = Granted(after.epoch) if asked.executor and after != branch else None
    if answer == UNKNOWN:
        yield log
    if answer == UNKNOWN or answer == (granted or after):
        yield log.with_branch(asked.branch, after)


def _taken(branch: Seen, asked: Take) -> Seen:
    if asked.release is not None:
        given_back = branch.held == asked.release
        return Seen(branch.seq, branch.epoch, None) if given_back else branch
    if asked.executor is None:
        broken = asked.over is not None and branch.held == asked.over
        return Seen(branch.seq, branch.epoch + 1, None) if broken else branch
    if branch.held == asked.over:
        return Seen(branch.seq, branch.epoch + 1, branch.epoch + 1)
    return branch


# -- what the port's calls are, in the model's words -------------------------------------------


def put_of(item: Append) -> Put:
    return Put(
        item.seq,
        chain.commit_id(item.header),
        item.behind.id,
        item.branch,
        item.expected,
        item.epoch,
        item.riders.key[0] if item.riders.key else "",
        item.riders.release,
        item.riders.delete_agent,
        item.riders.holder is not None,
        put_of(item.then[0]) if item.then else None,
    )


def answer_of(outcome: Outcome) -> Any:
    match outcome:
        case Appended():
            return "in"
        case Refused("consumed") | Refused("unread"):
            return NOTHING  # the inbox is no part of this model
        case Refused("trimmed") | Refused("leaves"):
            return NOTHING  # nor is retention
        case Refused():
            return outcome.why
        case _:
            return UNKNOWN if getattr(outcome, "outcome", "unknown") == "unknown" else NOTHING


def seen(ref: Ref | None) -> Seen | None:
    return None if ref is None else Seen(ref.seq, ref.epoch, ref.held)


def seen_after(asked: Take, answer: Lease | Ref) -> Seen | Granted | None:
    """What the answer to a call of `lease` tells of the branch."""
    if isinstance(answer, Lease):
        return Granted(answer.epoch)
    return seen(answer)
