"""A store that follows another: kept up to date from its feed, and made a store of its own.

What a follower is, where it is, and that nobody else writes to it, is said in the follower itself,
in the same transaction as what came (`Standing`): so it may be killed and started anew anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perdure.core import chain
from perdure.errors import Conflict
from perdure.model import MISSING, AgentInfo, Message
from perdure.state.divergence import PAGE, compare, diverged
from perdure.state.shipping import Shipper
from perdure.storage.port import Backend, Ref, Sent, Shipment
from perdure.storage.standing import Kind, Why, read_why

PART = 1000
"""Commits that are read from the source at a time."""

NUMBERS_APART = 1 << 40
EPOCHS_APART = 1 << 20
"""How far numbers of messages, and fencing tokens, begin above those that are known to have been
given: the other store may have given more, of which nobody here heard."""

TRIES = 5


class Lag(Struct, frozen=True):
    """How far a follower is behind.

    Attributes:
        commits: those of living agents that it does not have yet.
        seconds: how long ago the first commit that it did not have was made, when it was last
            looked; 0.0: it had all.
    """

    commits: int
    seconds: float


class Step(Struct, frozen=True):
    """What one look at the source brought.

    Attributes:
        more: there was as much as is taken at a time: there is likely more.
    """

    commits: int
    messages: int
    more: bool


class Follower:
    """Ships what a source commits into a target, step by step. One thread at a time.

    Several may ship into one target by mistake: each transaction goes on from what is there, so
    nothing comes twice; they only hold each other up.

    Args:
        until: for a restore: leave out what is later, in microseconds since 1970.
    """

    def __init__(
        self, source: Backend, target: Backend, *, kind: Kind = "follows", until: int = 0
    ) -> None:
        self.source = source
        self.target = target
        self.shipper = Shipper(source, target, until)
        self.why = Why(kind, source.url, until=until)

    def begin(self, *, resync: bool = False) -> None:
        """Make the target a follower, or go on where it was.

        Args:
            resync: take a store that has agents already, once each of their logs is found to be
                a beginning of the source's; or one that followed another source.

        Raises:
            DivergedError: it has commits that the source does not have.
            Conflict: it is not empty, follows another store, or was promoted.
        """
        standing = self.target.standing()
        before = read_why(standing)
        if self.source.url == self.target.url:
            raise Conflict("is the source itself", target=f"store {self.target.url}")
        if before is not None and self._goes_on(before):
            self.why = replace(before, kind=self.why.kind)
            return
        if before is not None and before.kind == "promoted" and not resync:
            self._refuse_promoted()
        if before is not None and not resync:
            raise Conflict(
                _standing_words(before), target=f"store {self.target.url}",
                hint="resync=True (--resync) makes it a follower of this source instead, if its "
                "logs are all beginnings of the source's",
            )  # fmt: skip
        empty = not self.target.feed("", limit=1).entries
        if not (empty or resync):
            raise Conflict(
                "has agents of its own", target=f"store {self.target.url}",
                hint="replicate into a new store; resync=True (--resync) takes one whose logs are "
                "all beginnings of the source's, e.g. an old primary",
            )  # fmt: skip
        self.target.stand(self.why.standing())  # from here on nobody else writes
        if found := tuple(compare(self.target, self.source)):
            self.target.stand(standing)
            raise diverged(found, self.source.url)

    def _goes_on(self, before: Why) -> bool:
        mine = (self.why.kind, self.why.url, self.why.until)
        return (before.kind, before.url, before.until) == mine

    def _refuse_promoted(self) -> None:
        found = tuple(compare(self.source, self.target))
        if found:
            raise diverged(found, self.target.url)
        raise Conflict(
            "was promoted: it is a store of its own, and takes commits from nobody",
            target=f"store {self.target.url}",
            hint="it has all that the source has; replicate from it, into the source "
            "(`--resync`) or into a new store",
        )  # fmt: skip

    def step(self, limit: int = PART) -> Step:
        """Ship what is new, at most about `limit` commits.

        Raises:
            DivergedError, Corrupt: as `Shipper.ship`.
            NotFound: the source was restored from an older copy: `begin` with resync.
            StoreUnavailable: make the call again: it goes on from what is there.
        """
        for tried in range(TRIES):
            try:
                return self._step(limit)
            except Conflict as error:
                self.shipper.forget()
                if not error.retry or tried == TRIES - 1:
                    raise
                self._read_again()
        raise AssertionError("unreachable")

    def _step(self, limit: int) -> Step:
        feed = self.source.feed(self.why.feed, limit=limit)
        # After the feed: what a commit sent, or took out, is then among what is read here.
        messages, mail = self._mail()
        if not feed.entries and not messages:
            return Step(0, 0, False)
        why = replace(self.why, feed=feed.cursor, mail=mail)
        shipped = self._deliver(feed.entries, messages, why)
        self.why = replace(why, at=max(self.why.at, self.shipper.latest))
        return Step(shipped, len(messages), len(feed.entries) >= limit)

    def _deliver(self, entries: Any, messages: list[Message], why: Why) -> int:
        return self.shipper.ship(entries, messages, why)

    def _mail(self) -> tuple[list[Message], str]:
        messages: list[Message] = []
        cursor = self.why.mail
        while (part := self.source.mail(cursor, limit=PAGE)).messages:
            messages += part.messages
            cursor = part.cursor
        return messages, cursor

    def _read_again(self) -> None:
        """Somebody else ships, too, or has ended this."""
        now = read_why(self.target.standing())
        if now is None or not self._goes_on(now):
            raise Conflict(
                "does not follow this source any more", target=f"store {self.target.url}",
                hint="it was promoted, or made to follow another one, meanwhile",
            )  # fmt: skip
        self.why = now

    def drain(self) -> tuple[int, int]:
        """Ship until nothing is new; how many commits and messages."""
        commits = messages = 0
        while True:
            step = self.step()
            commits, messages = commits + step.commits, messages + step.messages
            if not (step.commits or step.messages or step.more):
                return commits, messages

    def complete(self) -> tuple[int, int]:
        """Once the source is closed: all of it, also what its feed holds back because somebody's
        transaction, who is no writer of ours, has not ended; how many commits and messages."""
        commits, messages = self.drain()
        for info in [*living(self.source), *living(self.target)]:
            rest = self.shipper.rest_of(info.name, info.incarnation)
            commits += self.shipper.ship(rest)
        known = {message.no for message in self.target.inbox()}
        left = [message for message in self.source.inbox() if message.no not in known]
        self._deliver([], left, self.why)
        return commits, messages + len(left)

    def lag(self) -> Lag:
        """How far the target is behind now. Costs a look-up per living agent."""
        commits, oldest = 0, 0
        for info in living(self.source):
            there = self.target.agent(info.name, info.incarnation)
            have = there.seq if there is not None else 0
            if info.seq > have:
                commits += info.seq - have
                at = first_time(self.source, info, have + 1)
                oldest = min(oldest or at, at)
        seconds = max(self.source.now() - oldest, 0) / 1e6 if oldest else 0.0
        return Lag(commits, seconds)


def _standing_words(why: Why) -> str:
    match why.kind:
        case "follows":
            return f"follows {why.url}, and nobody else"
        case "moved":
            return f"was moved to {why.url}"
        case "promoted":
            return "was promoted: it is a store of its own"
    return f"is not free: {why.kind} {why.url}".rstrip()


def living(backend: Backend) -> Iterator[AgentInfo]:
    """All agents that are not deleted."""
    after = ""
    while page := backend.agents(after=after, limit=PAGE):
        yield from page
        after = page[-1].name


def first_time(backend: Backend, info: AgentInfo, seq: int) -> int:
    """Of a commit, in microseconds since 1970; of what was retained away, now."""
    rows = backend.read(info.no, seq, seq)
    return chain.tail_of(rows[0].header, f"agent {info.name!r}").at if rows else backend.now()


# -- the end of following ------------------------------------------------------------------------


class Promoted(Struct, frozen=True):
    """How a follower became a store of its own.

    Attributes:
        lossless: its source was closed first, and all of it shipped. Else what the source
            acknowledged after `latest` is not here.
        commits, messages: what was shipped at the end.
        latest: time of the latest commit that came from the source, in microseconds since 1970.
    """

    source: str
    lossless: bool
    commits: int
    messages: int
    latest: int


def promote(target: Backend, source: Backend | None) -> Promoted:
    """Make a follower a store of its own, whose fencing tokens are above all that the source gave.

    Args:
        source: it is closed first: its writers are told where it went. Then the rest is shipped,
            so nothing acknowledged is lost. None: it is lost; what did not come yet is, too.

    Raises:
        Conflict: it follows nobody; or another store than `source`.
        DivergedError: the source has other commits than it.
        StoreUnavailable: it may be done half; make the call again.
    """
    why = read_why(target.standing())
    if why is None or why.kind != "follows":
        words = _standing_words(why) if why is not None else "follows nobody"
        raise Conflict(
            words, target=f"store {target.url}",
            hint="only a follower, made by `perdure replicate`, is promoted",
        )  # fmt: skip
    commits = messages = 0
    if source is not None:
        follower = Follower(source, target)
        if follower.why.url != why.url:
            raise Conflict(
                f"follows {why.url}, not {source.url}", target=f"store {target.url}",
                hint="name the store that it follows",
            )  # fmt: skip
        follower.begin()
        _close_for_good(source, target.url)
        commits, messages = follower.complete()
        why = follower.why
    raise_tokens(target, source)
    own = replace(why, kind="promoted", feed="", mail="")
    target.ship(Shipment(standing=own.standing()))
    return Promoted(why.url, source is not None, commits, messages, why.at)


def _close_for_good(source: Backend, to: str) -> None:
    before = read_why(source.standing())
    if before is not None and before.closed and (before.kind, before.url) != ("moved", to):
        raise Conflict(
            _standing_words(before), target=f"store {source.url}",
            hint="a source that is not a primary cannot hand over; promote without it, as if it "
            "were lost, or promote it first",
        )  # fmt: skip
    source.stand(Why("moved", to).standing())


def raise_tokens(target: Backend, source: Backend | None) -> None:
    """Let fencing tokens and the numbers of messages go on above those of the source (I4).

    Args:
        source: it is closed, so what it gave is known; None: a good deal above what is known.
    """
    numbers = [message.no for message in target.inbox()]
    numbers += [run.seen for run in target.runs(unfinished=True)]
    target.ship(Shipment(number_min=max(numbers, default=0) + NUMBERS_APART))
    epochs: list[tuple[str, int, str, int]] = []
    for info in living(target):
        epochs += epochs_of(target, info, source)
        if len(epochs) >= PAGE:
            target.ship(Shipment(epochs=epochs))
            epochs = []
    target.ship(Shipment(epochs=epochs))


def epochs_of(
    target: Backend, info: AgentInfo, source: Backend | None
) -> list[tuple[str, int, str, int]]:
    """What the epochs of an agent of the target are to be at least."""
    there = source.agent(info.name, info.incarnation) if source is not None else None
    refs: list[Ref] = source.refs(there.no) if source and there else target.refs(info.no)
    more = 0 if there is not None else EPOCHS_APART
    return [
        (info.name, info.incarnation, ref.name, ref.epoch + more)
        for ref in refs if ref.kind == "branch" and not ref.deleted
    ]  # fmt: skip


def forward(target: Backend, message: Message) -> bool:
    """Put a message in as if it had been sent here; False: it was, or nobody waits for it."""
    if message.value is MISSING:
        return False
    sent = target.send(message)
    return isinstance(sent, Sent) and sent.fresh
