"""Moves a store's agents to another store while they run, each with a pause of its own.

An agent is closed at the source before the last of it is shipped, and opened at the target after:
at no moment can both take its commits (I4), whenever this is killed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perdure.errors import Conflict
from perdure.model import AgentInfo, Message
from perdure.public_data import PublicData
from perdure.storage.answers import Standing
from perdure.storage.capabilities import Backend, Shipment
from perdure.storage.standing import OvertakenError, Why, read_why
from perdure.system.backoff import chances
from perdure.system.urls import same_store
from perdure.transfer.arriving_messages import forget_untaken, mail_from
from perdure.transfer.follower import PART, Follower, forward
from perdure.transfer.given_tokens import (
    NUMBERS_APART,
    epochs_of,
    last_number,
    raise_tokens,
)
from perdure.transfer.incomplete import DoneBeforeError, unfit
from perdure.transfer.living_agents import living
from perdure.transfer.own_words import own_words
from perdure.transfer.preconditions import check_able, misfits, refuse_moving


class Moved(PublicData, Struct, frozen=True):
    """An agent that arrived. `pause_s`: the time in which neither store took its commits."""

    agent: str
    incarnation: int
    pause_s: float


class Migration(Follower):
    """Moves all agents of a source into an empty target. One thread at a time.

    Args:
        take_incomplete: also moves those that the target cannot take completely: each continues
            there from its last commit that came.
    """

    def __init__(self, source: Backend, target: Backend, *, take_incomplete: bool = False) -> None:
        super().__init__(source, target, kind="moving-in")
        self._arrived: set[str] = set()
        self._take_incomplete = take_incomplete
        self._claim = Why("moving-out", target.url).standing()

    def begin(self, *, resync: bool = False) -> None:
        """Closes the target to everything except what comes from the source; or continues.

        Raises:
            DoneBeforeError: everything was moved to this target before.
            Conflict: the target has agents of its own; the source was moved elsewhere, or is a
                follower.
        """
        standing = self.source.standing()
        there = read_why(standing)
        if there is not None and there.closed:
            if there.kind != "moved" or not same_store(there.url, self.target.url):
                raise Conflict(
                    f"its agents are not here to be moved ({there.kind} {there.url})",
                    target=f"store {self.source.url}",
                    hint="name the store that they are in",
                )
            if self.target.standing() is None:
                raise (DoneBeforeError if self._all_there() else Conflict)(
                    "was moved there already",
                    target=f"store {self.source.url}",
                    hint=f"its agents go on at {self.target.url}",
                )
        refuse_moving(there, self.source.url, self.target.url)
        self._begin_moving(standing, there)
        # Above everything that the source gave, and will have given before this is over.
        self.target.ship(Shipment(number_min=last_number(self.source) + NUMBERS_APART))
        for info in living(self.target):
            if self.target.standing(info.no) is not None:
                self._note_arrived(info.name)

    def _begin_moving(self, standing: Standing | None, there: Why | None) -> None:
        """Says in both stores that the agents move from one to the other, so that nobody else moves
        them, or promotes another copy of them (I4).

        Args:
            standing, there: the source's.
        """
        before = self.target.standing()
        super().begin()
        if standing is not None and there is not None and there.kind == "moved":
            self._claim = standing  # to this target: that was interrupted at its end
            return
        try:
            self.source.stand(self._claim, after=standing)
        except OvertakenError:
            if before is None:
                self.target.stand(None, after=self.why.standing())
            raise

    def _all_there(self) -> bool:
        """True if the target is the store that they went to, not a new one in its place."""
        return all(
            self.target.agent(info.name, info.incarnation) is not None
            for info in living(self.source)
        )

    def _deliver(self, entries: Any, messages: list[Message], why: Why) -> int:
        """Ships; messages for an agent that has arrived are put in as if they had been sent
        there."""
        return self.shipper.ship(entries, self._forwarded(messages), why)

    def _forwarded(self, messages: list[Message]) -> list[Message]:
        """Puts the messages in that are for agents that have arrived; returns the others."""
        left = []
        for message in messages:
            if self._has_arrived(message.agent):
                forward(self.target, message)
            else:
                left.append(message)
        return left

    def _has_arrived(self, agent: str) -> bool:
        """True if an agent is open at the target: this process has moved it, or another one that
        does the same."""
        if agent not in self._arrived:
            there = self.target.agent(agent)
            if there is None or self.target.standing(there.no) is None:
                return False
            self._note_arrived(agent)
        return True

    def _note_arrived(self, agent: str) -> None:
        self._arrived.add(agent)
        if agent in self.shipper.aside:  # it takes commits of its own: no rest fits behind them
            self.shipper.settled.add(agent)

    def move(self, info: AgentInfo) -> Moved | None:
        """Moves one agent: a pause of a few transactions, whatever its size, once `step` has
        brought what it had. Returns None if the target cannot take all of it; it stays at the
        source then."""
        began = time.monotonic()
        closed = Why("moved", self.target.url).standing()
        self.source.stand(closed, info.no, after=self._claim)
        rest = self.shipper.rest_of(info.name, info.incarnation)
        messages, mail = self._mail()
        messages += (one for one in mail_from(self.source, mail) if one.agent == info.name)
        self.why = replace(self.why, mail=mail)
        epochs = epochs_of(self.source, info, self.source)
        mine = self._forwarded(messages)
        self.shipper.isolating = True
        self.shipper.ship(rest, mine, self.why, epochs, of=info)
        there = self.target.agent(info.name, info.incarnation)
        if info.name in self.shipper.aside and not self._take_incomplete:
            # It goes on there, until it can be moved.
            self.source.stand(None, info.no, after=self._claim)
            return None
        if there is None or there.deleted:  # of an incomplete one
            return None
        self._open(there)
        return Moved(info.name, info.incarnation, time.monotonic() - began)

    def _open(self, there: AgentInfo) -> None:
        """Opens an agent at the target. Of an incomplete one retention may have removed something
        that its log does not say: it is said anew."""
        if not self._has_arrived(there.name):
            self._set_standing(Why("here", self.source.url).standing(), there.no)
            self._note_arrived(there.name)
        for _ in chances() if there.name in self.shipper.settled else ():
            if not (words := own_words(self.target, [there.name])):
                break
            with suppress(Conflict):  # somebody commits to it already
                self.target.ship(Shipment(words))

    def run(
        self,
        on_moved: Callable[[Moved], None] = lambda moved: None,
        on_step: Callable[[int], None] = lambda commits: None,
    ) -> list[Moved]:
        """Does everything: copies while the agents run, moves one after the other, then closes the
        source for good and opens the target. May be killed at any moment, and called again.

        Raises:
            IncompleteError: nothing has moved, because the target cannot take these agents
                completely; or, if that was found on the way, the others have moved, and these are
                open at the source.
            as `begin` and `step`.
        """
        if self.target.standing() is None and not self._take_incomplete:
            check_able(self.target)
            if unable := misfits(self.source, living(self.source)):
                raise unfit(unable)
        self.begin()
        moved: list[Moved] = []

        def move(info: AgentInfo) -> None:
            done = self.move(info)
            if done is not None:
                moved.append(done)
                on_moved(done)

        for info in self._between():
            move(info)
        tried: set[tuple[str, int]] = set()
        self._catch_up(on_step)
        before = 0
        while left := [info for info in living(self.source) if self._is_left(info, tried)]:
            if 2 * len(left) > before > 0:
                break  # agents are created as fast as they are moved: the rest comes with the end
            before = len(left)
            for info in left:
                tried.add((info.name, info.no))
                found = self.source.agent(info.name)
                if found is None or found.deleted:
                    continue
                self._bring(found, on_step)
                if found.name not in self.shipper.aside or self._take_incomplete:
                    move(found)
            self._catch_up(on_step)
        if not self._take_incomplete:
            self.check_complete("the others have moved; these are open at the source")
        self.finish()
        return moved

    def _is_left(self, info: AgentInfo, tried: set[tuple[str, int]]) -> bool:
        return (info.name, info.no) not in tried and not self._has_arrived(info.name)

    def _between(self) -> list[AgentInfo]:
        """Returns the agents that neither store takes commits of, since this was interrupted: they
        come first."""
        return [
            info
            for info in living(self.source)
            if not self._has_arrived(info.name) and self.source.standing(info.no) is not None
        ]

    def _bring(self, info: AgentInfo, on_step: Callable[[int], None]) -> None:
        """Ships one agent's present commits, so that little is left for its pause. A look at the
        feed would also do, but costs as much as there are agents: for each of them."""
        self.shipper.isolating = True
        shipped = PART
        while shipped >= PART:
            rest = self.shipper.rest_of(info.name, info.incarnation)
            shipped = self.shipper.ship(rest, of=info)
            on_step(shipped)

    def _catch_up(self, on_step: Callable[[int], None]) -> None:
        while True:
            step = self.step()
            on_step(step.commits)
            if not step.more:
                return

    def finish(self) -> None:
        """Closes the source, ships the rest (deleted agents, requested runs of agents that do not
        exist yet, and the agents that were created last), and opens the target."""
        closed = Why("moved", self.target.url).standing()
        self.source.stand(closed, after=self._claim)
        self._claim = closed
        self.complete()
        if not self._take_incomplete:
            self.check_complete("the source is closed, and the target does not open yet")
        if self.aside:
            forget_untaken(self.target, {one.agent for one in self.aside})
        for there in [self.target.agent(one.agent) for one in self.aside if one.agent]:
            if there is not None and not there.deleted:
                self._open(there)
        raise_tokens(self.target, self.source)
        self._set_standing(None)
