"""The reasons why a store, or an agent in it, takes no writes: it follows another, or its place is
elsewhere.

Backends keep this as text (`Standing.why`) and refuse by it; only this module interprets it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec
from msgspec import Struct, field

from perdure.errors import Conflict, StoreUnavailable
from perdure.missing import MISSING, Missing
from perdure.model import Message
from perdure.public_data import PublicData, from_micros
from perdure.storage.answers import Standing
from perdure.storage.appending import Append, Outcome, Refused
from perdure.system.stack_room import pass_on

Kind = Literal[
    "follows",
    "promoted",
    "moved",
    "moving-in",
    "moving-out",
    "restoring",
    "restored",
    "here",
    "unknown",
]


class Aside(PublicData, Struct, frozen=True, omit_defaults=True):
    """An agent whose commits a store cannot take from another one, while others arrive.

    Attributes:
        agent: its name; empty: the source's feed itself, which may lack deleted agents.
        seq: the first commit that is not here.
        problem: the reason found last.
        since_micros: when it was found first, in microseconds since 1970; `since` is the same as a
            datetime.
        mail: True if its messages were refused, too.
    """

    agent: str
    incarnation: int
    seq: int
    problem: str
    since_micros: int = field(default=0, name="since")
    mail: bool = False

    @property
    def since(self) -> datetime:
        """When it was found first, in UTC."""
        return from_micros(self.since_micros)


class Why(Struct, frozen=True, omit_defaults=True):
    """The content of a `Standing`.

    Attributes:
        kind: ``follows``: it is a copy of `url`, and takes commits only from there; ``promoted``:
            it was one, and is a store of its own since; ``moved``: it continues at `url`;
            ``moving-in``: agents come from `url`; ``moving-out``: its agents are on their way
            there, and those that are not there yet are open; ``restoring``: it is being filled
            from `url`; ``restored``: it was, and is a store like any other since; ``here``: the
            agent has arrived, though others have not.
        feed, mail: cursors of `url`, up to which everything is here.
        at: time of the latest commit that came, in microseconds since 1970.
        until: of a restore: the target moment.
        aside: agents of `url` that are not here up to the cursors.
        untidy: agents whose log has arrived, but whose removed data may still be here.
    """

    kind: Kind
    url: str = ""
    feed: str = ""
    mail: str = ""
    at: int = 0
    until: int = 0
    aside: tuple[Aside, ...] = ()
    untidy: tuple[str, ...] = ()

    @property
    def closed(self) -> bool:
        return self.kind not in ("promoted", "moving-out", "restored", "here")

    def standing(self) -> Standing:
        return Standing(self.closed, msgspec.json.encode(self).decode())


_why = msgspec.json.Decoder(Why).decode


class ClosedError(StoreUnavailable):
    """Nothing may be written here, by design: the hint says where, or what to do first. Nothing was
    written. `url` is the other store."""

    retry = False

    def __init__(self, problem: str, *, target: str, hint: str, url: str) -> None:
        super().__init__(problem, target=target, hint=hint)
        self.url = url


def read_why(standing: Standing | None) -> Why | None:
    """Returns the content of a standing; `unknown` if a newer version wrote it."""
    if standing is None:
        return None
    try:
        return _why(standing.why)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        pass_on(error)
        return Why("unknown")


def closed_error(standing: Standing | None, target: str) -> ClosedError:
    """Returns the error for a write to a closed store or agent.

    Args:
        target: the store or agent, as named in errors.
    """
    why = read_why(standing) or Why("unknown")
    problem, hint = _WORDS[why.kind]
    return ClosedError(
        problem.format(url=why.url), target=target, hint=hint.format(url=why.url), url=why.url
    )


class OvertakenError(Conflict):
    """Another process shipped into the same store in the meantime, or ended that: nothing was
    written."""


def is_of_the_store(error: BaseException) -> bool:
    """True if an error of a shipment says nothing about the agents in it: the store takes none now,
    or has no room, or what became of it is unknown."""
    if isinstance(error, OvertakenError | ClosedError | MemoryError):
        return True
    return isinstance(error, StoreUnavailable) and (error.no_room or error.outcome != "not_done")


def check_after(found: Standing | None, wanted: Standing | None, url: str) -> None:
    """Checks the standing that a shipment expects (`Shipment.after`).

    Raises:
        OvertakenError: the standing differs.
    """
    if wanted is not None and found != wanted:
        raise OvertakenError(
            "another process ships into it, or has ended that",
            target=f"store {url}",
            hint="nothing was written; one follower is enough, and takes turns with others",
        )


def check_stands(
    found: Standing | None,
    after: Standing | Missing | None,
    standing: Standing | None,
    no: int,
    url: str,
) -> None:
    """Checks the store's standing that `Backend.stand` expects; one that was set before an answer
    got lost is as good.

    Raises:
        OvertakenError: the standing differs.
    """
    if after is MISSING or found == after or (not no and found == standing):
        return
    raise OvertakenError(
        "another process moves, promotes or restores it",
        target=f"store {url}",
        hint="nothing was changed; make the call again: it says how the store stands now",
    )


def not_linked(item: Append, outcome: Outcome) -> Exception:
    """Returns the error for a shipped commit that did not get in."""
    if not isinstance(outcome, Refused):
        assert isinstance(outcome, Exception)
        return outcome
    return Conflict(
        f"does not continue the log that is here ({outcome.why})",
        target=f"agent {item.agent!r}, commit {item.seq}",
        hint="nothing was written; another process may be shipping into the same store",
    )


def number_taken(message: Message) -> Conflict:
    """Returns the error for a shipped message whose number another one has."""
    return Conflict(
        f"the number {message.no} is another message's",
        target=f"inbox of run {message.run}",
        hint="nothing was written; messages of two stores cannot be shipped into one",
    )


def no_such_agent(name: str, incarnation: int) -> Conflict:
    """Returns the error for a shipped commit whose log does not begin here."""
    return Conflict(
        "its log does not begin here",
        target=f"agent {name!r}, incarnation {incarnation}",
        hint="nothing was written; ship it from its first commit on",
    )


_WORDS = {
    "follows": (
        "follows {url}, and takes commits only from there",
        "write at {url}; or, if that is lost, promote this one: it is a store of its own then",
    ),
    "moved": (
        "was moved to {url}",
        "open it there, and start its workers with that URL; its log here stays as it was",
    ),
    "moving-in": (
        "is being moved here from {url}",
        "it can be written to once the migration has brought it over; if that was interrupted, "
        "run it again: it continues",
    ),
    "restoring": (
        "is being restored from {url}",
        "it can be written to once that is done; if it was interrupted, run it again",
    ),
}
for _kind in ("promoted", "moving-out", "restored", "here", "unknown"):
    _WORDS[_kind] = ("takes no writes", "a newer perdure closed it: look with that one")
