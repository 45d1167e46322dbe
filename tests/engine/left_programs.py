"""Random programs with turns, whose runs are set back and forked at random steps, and an oracle
that knows what each history had done to the world.

What a "model" answers is drawn anew each time that it is asked, so that a run which is set back
does something else. The oracle counts, for each run, the calls of each kind that it left behind and
that nothing stands for yet. While there is one, the same call must ask, or be reused; and if there
is none, it must be made without a question. So nothing happens twice unasked, and nobody is asked
in vain. It knows of no turns: that is the rule.

A fork and the run that it was made from may both go on. As long as both are in the turn of the
fork, what that run has done since is left behind, too, unless the fork came first. Where that run
made something again which it had done before, the oracle does not say which of both counts.

    python -m tests.engine.left_programs FIRST COUNT [URL]
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from random import Random
from typing import Any

from msgspec import Struct, field

import perdure
from perdure import Conflict, NeedsAttention, RunHandle, Store
from tests.engine.conftest import CrashError

Kind = tuple[str, int]
"""The called function and its argument: what makes two calls the same."""

STEPS = 14
RUNS_MAX = 4
TURNS_MAX = 6


class Event(Struct):
    """A call of the current turn of a run, in the history that it is in.

    Attributes:
        kind: None for a call without an effect.
        matched: it answers for a call that was left behind.
        done: it has had its effect, or may have.
        real: it has had it, since it was decided on last.
        decided: a person said that it is to be made.
        perhaps: the run that this one was forked from may have done it since.
        turn: the number of its turn.
    """

    place: str
    kind: Kind | None = None
    matched: bool = False
    done: bool = True
    crashed: bool = False
    real: bool = False
    decided: bool = False
    perhaps: bool = False
    turn: int = 1

    @property
    def made(self) -> bool:
        """It is a call of its own, for no other one."""
        return self.done and not self.matched


class Origin(Struct):
    """A run that one was forked from: as the fork knows it.

    Attributes:
        since: the number of its calls at the fork.
        turn: that which both were in.
    """

    history: History
    since: int
    turn: int


class History(Struct):
    """One run, as the oracle knows it.

    Attributes:
        life: all calls with an effect since it began, also those that it left.
        origins: the runs that it was forked from, the nearest first.
        maybe: what the oracle cannot say of calls from earlier turns.
    """

    events: list[Event] = field(default_factory=list)
    reached: int = 0
    outstanding: Counter[Kind] = field(default_factory=Counter)
    effects: str = "ask"
    turns: int = 1
    life: list[Event] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    maybe: set[Kind] = field(default_factory=set)

    def forked(self) -> History:
        events, outstanding = deepcopy(self.events), self.outstanding.copy()
        near = Origin(self, len(self.life), self.turns)
        origins = [near, *(one for one in self.origins if one.turn == self.turns)]
        return History(
            events, 0, outstanding, self.effects, self.turns, [], origins, self.maybe.copy()
        )

    def late(self, kind: Kind) -> tuple[int, bool]:
        """Returns how many such calls the runs that it was forked from have made since, at least,
        that it has to find; and whether it may find one."""
        must, may, younger = 0, kind in self.maybe, [*self.life]
        for origin in self.origins:
            theirs = origin.history.life
            late = [e for e in theirs[origin.since :] if e.kind == kind and e.turn == origin.turn]
            ours = [e for e in younger if e.kind == kind]
            # One that is matched may stand for one of an earlier turn, or be made again.
            must = max(must, sum(e.made for e in late) - len(ours))
            may = may or bool(late) or any(e.kind == kind and e.matched for e in theirs)
            younger += theirs[: origin.since]
        return must, may

    def next_turn(self, turns: int) -> None:
        if self.origins:
            for kind in {e.kind for o in self.origins for e in o.history.life if e.kind}:
                must, may = self.late(kind)
                self.outstanding[kind] += max(0, must)
                if may:
                    self.maybe.add(kind)
        self.turns, self.events, self.origins = turns, [], []

    def back_to(self, number: int, effects: str) -> None:
        for left in self.events[number:]:
            if left.kind is not None and left.perhaps:
                self.maybe.add(left.kind)
            elif left.kind is not None and (left.matched or left.done):
                self.outstanding[left.kind] += 1
        del self.events[number:]
        self.effects = effects


class World:
    """A store, one agent with a run and its forks, and what they did outside.

    Attributes:
        paid: what was done in this attempt to go on with a run, in order.
    """

    def __init__(self, seed: int, store: Store) -> None:
        self.random, self.store = Random(seed), store
        self.histories: dict[str, History] = {"main": History()}
        self.now = self.histories["main"]
        self.paid: list[Kind] = []
        self.keys: set[str] = set()
        self.started: set[str] = set()
        self.crashes = False
        self.asked = 0
        self.act = self._program()

    # -- the program ---------------------------------------------------------------------------

    def _program(self) -> Any:
        world = self

        @perdure.step
        def think() -> str:
            return world.random.choices(
                ["pay 1", "pay 2", "start 1", "both", "edit", "again", "fail", "end"],
                [5, 3, 2, 2, 1, 3, 1, 1],
            )[0]

        @perdure.tool(on_crash="ask")
        def pay(cents: int) -> str:
            if world.crashes and world.random.random() < 0.15:
                raise CrashError("before")
            world.take(("pay", cents), perdure.idempotency_key())
            if world.crashes and world.random.random() < 0.15:
                raise CrashError("behind")
            return f"paid {cents}"

        @perdure.agent(dict)
        def ship(run: perdure.Run[dict], what: int) -> None:
            run.wait_for("go")

        @perdure.agent(dict)
        def act(run: perdure.Run[dict], turn: int = 1) -> Any:
            counts: Counter[str] = Counter()

            def comes(name: str, kind: Kind | None = None, task: str = "") -> Event:
                counts[task + name] += 1
                return world.comes(f"{task}{name}#{counts[task + name]}", kind)

            world.begins()
            for _ in range(4):
                comes("think")
                word, _, number = think().partition(" ")
                if word == "pay":
                    comes("pay", ("pay", int(number)))
                    assert pay(int(number)) == f"paid {number}"
                elif word == "start":
                    comes("start:ship", ("start", int(number)))
                    world.takes_run(run.start(ship, f"shop-{number}", int(number)).id)
                elif word == "both":  # one after the other, but each in a task of its own
                    counts["both"] += 1
                    for cents in (1, 2):
                        world.comes(f"in a task/{counts['both']}/{cents}", ("pay", cents))
                        list(run.map(pay, [cents], limit=1))
                elif word == "edit":
                    comes("edit:said")
                    with run.edit("said") as draft:
                        draft["n"] = draft.get("n", 0) + 1
                elif word == "fail":
                    raise ValueError("the mail server is down")
                elif word == "again" and turn < TURNS_MAX:
                    return run.again(turn + 1)
                elif word == "end":
                    break
            return "done"

        return act

    # -- what the oracle hears -----------------------------------------------------------------

    def begins(self) -> None:
        """The function is called: for a replay of the turn, or because that is over."""
        turns = self.store.handle(f"a/act/{self.key}").info.turn
        if turns != self.now.turns:
            self.now.next_turn(turns)
        self.now.reached = 0

    def comes(self, place: str, kind: Kind | None) -> Event:
        """The function comes to a call, again or for the first time."""
        history = self.now
        if history.reached == len(history.events):
            event = Event(place, kind, turn=history.turns)
            if kind is not None:
                self.has_been(event, kind)
                history.life.append(event)
            history.events.append(event)
        event = history.events[history.reached]
        assert event.place == place, (event, place)
        history.reached += 1
        event.done = True  # from now on nobody knows otherwise
        return event

    def has_been(self, event: Event, kind: Kind) -> None:
        """Says of a call that is new in this history whether it was made before."""
        history = self.now
        must, may = history.late(kind)
        if history.outstanding[kind]:
            history.outstanding[kind] -= 1
            event.matched = True
        elif must > 0:
            event.matched = True
        event.perhaps = may and not event.matched

    def take(self, kind: Kind, key: str) -> None:
        """It is done outside: it must be new, or decided on."""
        assert key not in self.keys, "an idempotency key was used twice"
        self.keys.add(key)
        self._may(kind)

    def takes_run(self, run: str) -> None:
        event = self.now.events[self.now.reached - 1]
        assert event.kind is not None
        if run not in self.started:
            self.started.add(run)
            self._may(event.kind)

    def _may(self, kind: Kind) -> None:
        event = self.now.events[self.now.reached - 1]
        assert event.kind == kind, (event, kind)
        assert not event.matched or event.decided or self.now.effects == "live", (
            f"{kind} was made before, and is made again unasked"
        )
        event.done = event.real = True
        self.paid.append(kind)

    # -- what people do ------------------------------------------------------------------------

    def live(self) -> None:
        for _ in range(STEPS):
            self.key = self.random.choice([*self.histories])
            self.now = self.histories[self.key]
            self.go_on()
            if self.random.random() < 0.75:
                self.go_back()
        for key in self.histories:
            self.key, self.now = key, self.histories[key]
            self.go_on()
        self.store.agent("a").verify()

    def go_on(self) -> None:
        """Runs it until it ends, and decides whatever it asks; or leaves that undecided."""
        for _ in range(30):
            self.crashes = self.random.random() < 0.3
            try:
                self.store.options(key=self.key).run(self.act, "a")
            except ValueError:
                return
            except CrashError:
                self.now.events[self.now.reached - 1].crashed = True
                continue
            except NeedsAttention as asks:
                if not self.answers(str(asks)):
                    return
            else:
                return

    def answers(self, asks: str) -> bool:
        """A person answers a question; returns False if nobody does."""
        event = self.now.events[self.now.reached - 1]
        assert event.kind is not None, asks
        before = " before, at commit " in asks
        assert before or event.crashed, f"{event}: asked in vain: {asks}"
        if before:
            assert event.matched or event.perhaps, f"{event}: asked in vain: {asks}"
            event.matched = True
        self.asked += 1
        if self.random.random() < 0.2:
            return False
        one = [one for one in self.handle.effects() if one.open][-1]  # others may be left in doubt
        if event.real or (before and self.random.random() < 0.5):
            started = re.search(r"run (\S+) was started before", asks)
            said: Any = started[1] if started else f"paid {event.kind[1]}"
            self.handle.settle(one.place, done=said)
            event.done = True
        else:
            self.handle.settle(one.place, not_done=True)
            event.done, event.decided = False, True
        return True

    @property
    def handle(self) -> RunHandle[Any]:
        return self.store.handle(f"a/act/{self.key}")

    def go_back(self) -> None:
        """Sets it back, or forks it, at a random step of its turn."""
        places = [number for number, event in enumerate(self.now.events) if "/" not in event.place]
        if not places:
            return
        number = self.random.choice(places)
        place = self.now.events[number].place
        effects: Any = self.random.choices(["ask", "reuse", "live"], [6, 5, 1])[0]
        if self.random.random() < 0.3 and len(self.histories) < RUNS_MAX:
            branch = f"b{len(self.histories)}"
            made = self.handle.fork(place, branch=branch, effects=effects)
            self.histories[made.info.key] = new = self.now.forked()
            new.back_to(number, effects)
            return
        try:
            self.handle.retry(place, effects=effects)
        except Conflict:  # a person has decided, and it has not gone on with that
            return
        self.now.back_to(number, effects)


def worlds(first: int, count: int, url: str) -> Iterator[World]:
    """Yields the worlds of so many seeds, each after its life."""
    for seed in range(first, first + count):
        with perdure.open(url.format(seed=seed), durability="os") as store:
            world = World(seed, store)
            try:
                world.live()
            except BaseException as error:
                error.add_note(f"seed {seed}: {world.key}, {world.now}")
                raise
            yield world


def main(first: str, count: str, url: str = "memory://") -> None:
    asked = paid = 0
    for number, world in enumerate(worlds(int(first), int(count), url), 1):
        asked += world.asked
        paid += len(world.paid)
        if number % 100 == 0 or number == int(count):
            print(f"{number} programs: {paid} effects, {asked} questions", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
