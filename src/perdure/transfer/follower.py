"""A store that follows another: kept up to date from its feed.

The follower itself records that it follows, how far it is, and that nobody else writes to it, in
the same transaction as the shipped commits (`Standing`): so it may be killed and restarted
anywhere.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from perdure.core.format import chain
from perdure.errors import Conflict, Corrupt, NotFound, UnsupportedFormat
from perdure.missing import MISSING
from perdure.model import AgentInfo, Message
from perdure.storage.answers import Standing
from perdure.storage.capabilities import Backend, Sent, Shipment
from perdure.storage.log.chunk_size import ChunkSize
from perdure.storage.port import Fed
from perdure.storage.standing import Aside, ClosedError, Kind, OvertakenError, Why, read_why
from perdure.system import shell
from perdure.system.urls import same_store
from perdure.transfer.arriving_messages import mail_from
from perdure.transfer.divergence import (
    DivergedError,
    compare,
    diverged,
    diverged_mail,
    other_message,
    own_message,
)
from perdure.transfer.follower_reports import Lag, Step
from perdure.transfer.incomplete import incomplete
from perdure.transfer.living_agents import PAGE, living
from perdure.transfer.own_words import own_words
from perdure.transfer.preconditions import check_able, misfits
from perdure.transfer.shipping import FEED, Shipper
from perdure.transfer.standing_words import standing_words, way_to_finish

PART = 1000
"""Commits that are read from the source at a time."""

TRIES = 20
"""Times that a look is repeated because somebody else shipped meanwhile."""

RETRY_S = 10.0
"""The time for which a set-aside agent is left alone, while others are followed."""


class Follower:
    """Ships a source's commits into a target, step by step. One thread at a time.

    Several may ship into one target by mistake: each transaction continues from what is there, so
    nothing comes twice; they only slow each other down.

    Args:
        until: for a restore: leaves out everything later, in microseconds since 1970.
    """

    def __init__(
        self, source: Backend, target: Backend, *, kind: Kind = "follows", until: int = 0
    ) -> None:
        self.source = source
        self.target = target
        self.shipper = Shipper(source, target, until)
        self.why = Why(kind, source.url, until=until)
        self._retry_at = 0.0
        self._page = ChunkSize()

    @property
    def aside(self) -> tuple[Aside, ...]:
        """The agents whose commits the target cannot take: those of others still come. They are
        tried again from time to time, and at each beginning."""
        return tuple(one for _, one in sorted(self.shipper.aside.items()))

    def begin(self, *, resync: bool = False) -> None:
        """Makes the target a follower, or continues where it was.

        Args:
            resync: takes a store that has agents already, once each of their logs is found to be a
                beginning of the source's; or one that followed another source.

        Raises:
            DivergedError: it has commits that the source does not have.
            Conflict: it is not empty, follows another store, or was promoted; or the source
                follows one itself.
        """
        check_able(self.target)
        standing = self.target.standing()
        before = read_why(standing)
        if before is not None and before.kind == "restored":  # it is a store like any other
            before = None
        if same_store(self.source.url, self.target.url):
            raise self._is_the_source()
        if before is not None and self._goes_on(before) and self.source.standing() == standing:
            self.target.stand(None, after=standing)  # who found that was ended as it did
            raise self._is_the_source()
        self._check_source(before)
        if before is not None and self._goes_on(before) and not (resync and self._lost(before)):
            if self.why.kind == "follows":
                self._check_beginnings()
                stand_with_the_store(self.target, standing)
            self._go_on(standing, replace(before, kind=self.why.kind, url=self.why.url))
            self.shipper.tidy()
            return
        if before is not None and before.kind == "promoted" and not resync:
            self._refuse_promoted()
        if before is not None and not resync:
            raise Conflict(
                standing_words(before),
                target=f"store {self.target.url}",
                hint=self._way_on(before),
            )
        empty = not self.target.feed("", limit=1).entries
        if not empty:
            self._refuse_successor()
        if not (empty or resync):
            raise Conflict(
                "has agents of its own",
                target=f"store {self.target.url}",
                hint=self._way_on(None),
            )
        self._check_beginnings()  # who is ended behind this has closed no store that diverged
        if message := own_message(self.target, self.source):
            raise diverged_mail(message, self.source.url)
        mine = self.why.standing()
        self.target.stand(mine, after=standing)  # from here on nobody else writes
        if self.source.standing() == mine:  # two names of one server, a folder mounted twice
            self.target.stand(standing, after=mine)
            raise self._is_the_source()
        stand_with_the_store(self.target, mine)
        self._go_on(mine, self.why)
        try:
            self._check_beginnings()
        except DivergedError:
            self.target.stand(standing, after=mine)
            raise
        if self.why.kind == "follows":
            for one in misfits(self.source, living(self.source)):
                self.shipper.aside[one.agent] = one
                self._retry_at = time.monotonic() + RETRY_S

    def _is_the_source(self) -> Conflict:
        return Conflict(
            "is the source itself",
            target=f"store {self.target.url}",
            hint="nothing was changed; name another store",
        )

    def _check_beginnings(self) -> None:
        """Checks that each log of the target is a beginning of the source's, and that their
        messages are not others. Costs a few reads per agent: it is asked where the source may have
        been put back from a copy meanwhile.

        Raises:
            DivergedError: one is not.
        """
        if found := tuple(compare(self.target, self.source)):
            raise diverged(found, self.source.url)
        if message := other_message(self.target, self.source):
            raise diverged_mail(message, self.source.url)

    def _lost(self, before: Why) -> bool:
        """True if the source does not know the cursors that it gave any more: it was restored from
        an older copy, or loaded into another server."""
        try:
            self.source.feed(before.feed, limit=1)
            self.source.mail(before.mail, limit=1)
        except NotFound:
            return True
        return False

    def _not_as_it_was(self) -> NotFound:
        source, target = self.source.url, self.target.url
        hint = "take another target, a new one"
        if self.why.kind == "follows":
            order = shell.perdure("replicate", source, target, resync=True)
            hint = f"`{order}` compares the logs, and continues if those here are all beginnings"
        return NotFound(
            "was restored from an older copy, or loaded into another server, since the last look",
            target=f"store {source}",
            hint=hint,
        )

    def _way_on(self, before: Why | None) -> str:
        """Returns the hint for a target that is not free; `before`: its standing. Only a follower
        can be made from a store that has agents."""
        if self.why.kind == "follows" and before is None:
            return (
                "replicate into a new store; resync=True (--resync) takes one whose logs are all "
                "beginnings of the source's, e.g. an old primary"
            )
        if self.why.kind == "follows":
            return (
                "resync=True (--resync) makes it a follower of this source instead, if its logs "
                "are all beginnings of the source's"
            )
        order = way_to_finish(before, self.target.url) if before is not None else ""
        return (f"{order}; or " if order else "") + "take another store, a new one"

    def _goes_on(self, before: Why) -> bool:
        mine = self.why
        same = (before.kind, before.until) == (mine.kind, mine.until)
        return same and same_store(before.url, mine.url)

    def _check_source(self, before: Why | None) -> None:
        """Refuses a source that is itself being filled: what it has not got yet would be missing
        without a word. And a cycle (I8): of stores that follow each other none takes a write, and
        none can hand over.

        Args:
            before: the target's present standing.
        """
        source, target = self.source.url, self.target.url
        why = read_why(self.source.standing())
        if why is not None and why.kind in ("restoring", "moving-in"):
            raise Conflict(
                f"is not all there: it {standing_words(why)}",
                target=f"store {source}",
                hint=way_to_finish(why, source),
            )
        if why is None or not why.kind == self.why.kind == "follows":
            return
        promote = f"`{shell.perdure('promote', source)}` first, if it is to take that one's place"
        resync = {"resync": True} if before is not None else {}
        follow = shell.perdure("replicate", why.url, target, **resync)
        hint = f"follow that one, `{follow}`; or {promote}"
        if same_store(why.url, target):
            order = shell.perdure("replicate", target, source)
            hint = f"it is a copy of this target: run `{order}`, or {promote}"
            if before is not None and before.kind == "follows" and same_store(before.url, source):
                alone = shell.perdure("promote", target, source_is_lost=True)
                hint = f"they follow each other, and have the same commits: `{alone}`"
        raise Conflict(
            f"is not a primary: it follows {why.url}", target=f"store {source}", hint=hint
        )

    def _refuse_successor(self) -> None:
        """Refuses to make a store follow one whose place it took, and which is closed: nobody would
        take writes then."""
        why = read_why(self.source.standing())
        if why is not None and why.kind == "moved" and same_store(why.url, self.target.url):
            raise Conflict(
                f"is what {self.source.url} was moved to: the store that takes the writes",
                target=f"store {self.target.url}",
                hint="replicate from it, into the source (`--resync`) or into a new store",
            )

    def _refuse_promoted(self) -> None:
        found = tuple(compare(self.source, self.target))
        if found:
            raise diverged(found, self.target.url)
        raise Conflict(
            "was promoted: it is a store of its own, and accepts no commits from others",
            target=f"store {self.target.url}",
            hint="it has all that the source has; replicate from it, into the source "
            "(`--resync`) or into a new store",
        )

    def _go_on(self, standing: Standing | None, why: Why) -> None:
        self.why = why
        self.shipper.go_on_from(standing, why)

    def step(self, limit: int = PART) -> Step:
        """Ships what is new, at most about `limit` commits.

        An agent whose commits are damaged, or that the target refuses, is set aside: see `aside`.

        Raises:
            DivergedError: the target has other commits than the source.
            Corrupt: the source cannot be read at all.
            NotFound: the source was restored from an older copy, or loaded into another server:
                `begin` with resync.
            StoreUnavailable: make the call again: it continues from what is there.
        """
        overtaken = 0
        self.shipper.isolating = False
        while True:
            try:
                return self._step(limit)
            except OvertakenError:
                self.shipper.forget()
                overtaken += 1
                if overtaken == TRIES:
                    raise
                self._read_again()
            except (DivergedError, ClosedError):
                raise
            except NotFound as error:
                raise self._not_as_it_was() from error
            except Exception:
                # A fresh read may succeed; if it does not, one agent's part of it may be the
                # reason.
                self.shipper.forget()
                if self.shipper.isolating:
                    raise
                self.shipper.isolating = True
                self._read_again()

    def _step(self, limit: int) -> Step:
        before = self.aside
        retried = self._retry()
        shipped, entries, cursor, more = 0, list[Fed](), self.why.feed, False
        page = min(limit, self._page.now)
        try:
            feed = self.source.feed(cursor, limit=page)
            entries, cursor, more = [*feed.entries], feed.cursor, len(feed.entries) >= page
            self._page.read([fed.commit for fed in entries])
            self.shipper.aside.pop(FEED, None)
        except Corrupt as error:
            shipped += self._logs_apart(error)
        # After the feed: messages that a commit sent, or took out, are then among those read here.
        messages, mail = self._mail()
        if not more and any(one.value is MISSING for one in messages):
            # Commits took these out, maybe since that look: they come along. Without its begin, a
            # run whose request was taken out would neither exist nor be requested here.
            with suppress(Corrupt):  # the next look finds it
                feed = self.source.feed(cursor, limit=limit)
                entries, cursor = [*entries, *feed.entries], feed.cursor
                more = len(feed.entries) >= limit
        if not entries and not messages and not retried and not shipped and self.aside == before:
            return Step(0, 0, False, self.aside)
        why = replace(self.why, feed=cursor, mail=mail)
        shipped += self._deliver(entries, messages, why)
        self.why = replace(why, at=max(why.at, self.shipper.latest))
        return Step(retried + shipped, len(messages), more, self.aside)

    def _retry(self) -> int:
        """Tries again what the target refused, from time to time; returns the number of commits
        shipped."""
        if not self.shipper.retries or time.monotonic() < self._retry_at:
            return 0
        shipped = self.shipper.retry()
        self._retry_at = time.monotonic() + RETRY_S
        return shipped

    def _logs_apart(self, error: Corrupt) -> int:
        """Ships each log by itself, because the feed cannot be read; returns the number of commits
        shipped."""
        self.shipper.set_feed_aside(error)
        shipped = 0
        for info in living(self.source):
            there = self.target.agent(info.name, info.incarnation)
            if info.name in self.shipper.aside or (there is not None and there.seq >= info.seq):
                continue
            shipped += self.shipper.ship(self.shipper.rest_of(info.name, info.incarnation), of=info)
        return shipped

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
        """Reads the standing again: another process ships, too, or has ended this.

        Raises:
            Conflict: the target follows this source no longer.
        """
        standing = self.target.standing()
        now = read_why(standing)
        if now is None or not self._goes_on(now):
            raise self._ended()
        self._go_on(standing, now)

    def _ended(self) -> Conflict:
        return Conflict(
            "does not follow this source any more",
            target=f"store {self.target.url}",
            hint="it was opened, or made to follow another one, meanwhile",
        )

    def _set_standing(
        self, standing: Standing | None, no: int = 0, *, incomplete: Collection[str] = ()
    ) -> None:
        """Sets the standing of the target, or of an agent there, if it still follows the source;
        whoever ships into it as well may have come further meanwhile.

        Args:
            incomplete: names of agents whose logs say from the same transaction on what retention
                had removed of them.

        Raises:
            Conflict: it does not: another process was through first, or decided otherwise.
        """
        for left in reversed(range(TRIES)):
            now = self.target.standing()
            why = read_why(now)
            if why is None or not self._goes_on(why):
                raise self._ended()
            try:
                if words := own_words(self.target, incomplete):
                    return self.target.ship(Shipment(words, standing=standing, after=now))
                return self.target.stand(standing, no, after=now)
            except OvertakenError:
                if not left:
                    raise

    def drain(self) -> tuple[int, int]:
        """Ships until nothing is new; returns the numbers of commits and messages."""
        commits = messages = 0
        while True:
            step = self.step()
            commits, messages = commits + step.commits, messages + step.messages
            if not (step.commits or step.messages or step.more):
                return commits, messages

    def catch_up(self) -> tuple[int, int]:
        """Ships like `drain`, beside the source's writers: until little is new."""
        commits = messages = 0
        while True:
            step = self.step()
            commits, messages = commits + step.commits, messages + step.messages
            if not step.more:
                return commits, messages

    def check_complete(self, done: str) -> None:
        """Raises IncompleteError if agents are set aside. `done`: as for `incomplete`."""
        if self.aside:
            raise incomplete(self.aside, done)

    def complete(self) -> tuple[int, int]:
        """Ships everything that is there, also what the source's feed holds back because a foreign
        transaction has not ended; returns the numbers of commits and messages."""
        self._retry_at = 0.0
        self._page = ChunkSize()
        commits, messages = self.drain()
        for info in [*living(self.source), *living(self.target)]:
            if info.name not in self.shipper.aside:
                rest = self.shipper.rest_of(info.name, info.incarnation)
                commits += self.shipper.ship(rest, of=info)
        commits += self.shipper.ship(self._held_back())
        left = [*mail_from(self.source, self.why.mail)]
        self._deliver([], left, self.why)
        return commits, messages + len(left)

    def _held_back(self) -> Iterator[Fed]:
        """Yields what the feed has not given; of deleted agents, nobody else tells of it."""
        cursor = self.why.feed
        while FEED not in self.shipper.aside:
            feed = self.source.feed(cursor, to_the_end=True)
            if not feed.entries:
                return
            yield from feed.entries
            cursor = feed.cursor

    def lag(self) -> Lag:
        """Returns the target's present lag. Costs a look-up per living agent."""
        commits, oldest = 0, 0
        for info in living(self.source):
            there = self.target.agent(info.name, info.incarnation)
            have = there.seq if there is not None else 0
            if info.seq > have:
                commits += info.seq - have
                with suppress(Corrupt, UnsupportedFormat):  # of one that is set aside
                    at = first_time(self.source, info, have + 1)
                    oldest = min(oldest or at, at)
        seconds = max(self.source.now() - oldest, 0) / 1e6 if oldest else 0.0
        return Lag(commits, seconds)


def stand_with_the_store(target: Backend, standing: Standing | None) -> None:
    """Ends the standings of single agents, which an earlier move of this store left: they were
    closed, as moved elsewhere, for good; or open, where the store is not.

    Args:
        standing: the present one of the store.
    """
    for info in living(target):
        if target.standing(info.no) is not None:
            target.stand(None, info.no, after=standing)


def first_time(backend: Backend, info: AgentInfo, seq: int) -> int:
    """Returns the time of a commit, in microseconds since 1970; for removed history, the present
    time."""
    rows = backend.read(info.no, seq, seq)
    return chain.tail_of(rows[0].header, f"agent {info.name!r}").at if rows else backend.now()


def forward(target: Backend, message: Message) -> bool:
    """Puts a message in as if it had been sent here; returns False if it was there, or nobody waits
    for it."""
    if message.value is MISSING:
        return False
    sent = target.send(message)
    return isinstance(sent, Sent) and sent.fresh
