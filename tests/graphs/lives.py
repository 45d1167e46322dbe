"""The lives of a run of a program, in a store of any kind: killed at boundaries by chance, drained,
asked for again; between, and meanwhile, what people do to it; in the end gone over again.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import perdure
from perdure.engine.dispatch.command import Command
from perdure.engine.functions.orders import Order
from perdure.engine.journal.leaving import Drained
from perdure.model import FINISHED
from perdure.storage.locate import locate
from perdure.testing import replay
from perdure.testing.boundaries import Counter, counting
from perdure.testing.driving import execute, has_news
from perdure.testing.mortal import CallLog, Killed, Life, Mortal, WatchedCalls
from perdure.testing.replaying import Replayed
from tests.graphs.called import OFTEN, child, ledger
from tests.graphs.checking import Otherwise, by_task, compare, lines
from tests.graphs.generate import Playing, playing
from tests.graphs.wide import SIGNALS

AGENT = "tried"
BOUNDARIES = (10, 30, 80)
"""Below which of these a life's kill, or news, comes: it may be behind its end."""
TURNS_MAX = 200
LIVES_MAX = 40
WAITS_S = 15.0
SUPPLIED_S = 0.5
"""How often somebody sends what may be waited for."""


class _Newsy(Counter):
    """Something comes from outside, or a worker drains, at some of its boundaries."""

    def __init__(
        self, kill_at: int | str | None, end: Any, news: dict[int, Callable[[], None]]
    ) -> None:
        super().__init__(kill_at, end)
        self._news = news

    def passed(self, when: str, what: str) -> None:
        news = self._news.pop(len(self.reached), None)
        if news is not None:
            news()
        super().passed(when, what)


class Lives:
    """Of one run, and of those that it is forked into.

    Args:
        in_order: whether what it hears comes in one order over all of its tasks, or, of threads,
            in one order for each.
        in_doubt: whether it is often killed at a tool, its state edited by hand then, and the tool
            said not to be done.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        url: str,
        folder: Path,
        chance: random.Random,
        *,
        in_order: bool = True,
        in_doubt: bool = False,
    ) -> None:
        self._function, self._url, self._chance = function, url, chance
        self._in_order, self._in_doubt, self._folder = in_order, in_doubt, folder
        self._key, self._branch, self._since = "main", "main", 0
        self._outside: perdure.Store
        self.said: list[str] = []
        self._values = count(1)

    # -- the whole -----------------------------------------------------------------------------

    def live(self, kills: int, reruns: int = 2) -> int:
        """Returns how often it was killed.

        Raises:
            Otherwise: a life, or going over it again, came to something else.
            AssertionError: a tool was called too often, or it does not come to its end.
        """
        killed = 0
        ledger.__init__()  # type: ignore[misc]
        playing.clear()
        try:
            with perdure.open(self._url, durability="os") as self._outside:
                for _ in range(LIVES_MAX):
                    ended = self._life(kills - killed)
                    killed += ended is False
                    if not self._between(ended is None):
                        continue
                    if reruns and self._chance.random() < 0.4 and self._set_back():
                        reruns -= 1
                        continue
                    self._end()
                    return killed
                raise AssertionError(f"it did not end in {LIVES_MAX} lives")
        except BaseException as error:
            error.add_note(f"{self.said}")
            raise
        finally:
            playing.clear()

    @property
    def _run(self) -> str:
        return f"{AGENT}/{self._function.__name__}/{self._key}"

    def _handle(self) -> Any:
        return self._outside.handle(self._run).typed(self._function)

    # -- a life --------------------------------------------------------------------------------

    def _life(self, kills: int) -> bool | None:
        """Returns whether it came to its end; None: it is in doubt."""
        kill_at = self._kill_at() if kills > 0 else None
        life = Life(None)
        store: perdure.Store
        news = self._news(lambda: store.runner.stop_all(Drained("the worker drains")))
        life.counter = _Newsy(kill_at, life._end, news)
        before = [*playing][-1:]
        recorded = self._recorded() if before else ""
        playing.clear()
        store = perdure.Store(Mortal(locate(self._url, durability="os"), life))
        ended: bool | None = False
        try:
            with counting(life.counter), store:
                ended = self._go_on(store, life)
        except Drained:
            self.said.append("drained")
        except (Exception, Killed):
            if not life.dead:
                raise
        except BaseException as left:
            if not life.dead or isinstance(left, KeyboardInterrupt | SystemExit):
                raise
        self.said.append(f"killed {life.ended_at}" if life.dead else f"ended: {ended}")
        self._compare_with(before, recorded)
        return False if life.dead else ended

    def _kill_at(self) -> int | str:
        chance = self._chance
        if self._in_doubt and chance.random() < 0.5:
            return f"{chance.choice(('before', 'after'))} tool {chance.randint(1, 4)}"
        return chance.randrange(chance.choice(BOUNDARIES))

    def _news(self, drain: Callable[[], object]) -> dict[int, Callable[[], None]]:
        chance, news = self._chance, dict[int, Callable[[], None]]()
        for _ in range(chance.choice((0, 0, 1, 3))):
            number = chance.randrange(SIGNALS)
            news[chance.randrange(chance.choice(BOUNDARIES))] = chance.choice(
                (lambda number=number: self._signal(number), self._answer)
            )
        if chance.random() < 0.15:
            news[chance.randrange(chance.choice(BOUNDARIES))] = lambda: (drain(), None)[1]
        if chance.random() < 0.04:
            news[chance.randrange(chance.choice(BOUNDARIES))] = self._cancel
        return news

    def _go_on(self, store: perdure.Store, life: Life) -> bool | None:
        order = Order.of(self._function, AGENT, self._key, (), {}, storable=False)
        calls = CallLog(self._folder / "calls")
        (self._folder / "calls").touch()
        command = Command(self._function, order, (), {}, WatchedCalls({}, calls, life.passed))
        began = time.monotonic()
        for _ in range(TURNS_MAX):
            info = store.runner.drive(command).find()
            if info is not None and info.status in FINISHED:
                return True
            if info is not None and info.status == "waiting":
                while not has_news(self._outside.runner.context.backend, info):
                    self._supply()
                    if time.monotonic() > began + WAITS_S:
                        raise AssertionError(f"it waits for {info.waits}, and for ever")
                    time.sleep(0.001)
            try:
                with self._supplying():
                    execute(store.runner, command)
            except perdure.NeedsAttention:
                if not self._doubts():
                    raise
                return None
            except Drained:
                raise
            except Exception:
                if self._handle().status not in FINISHED:
                    raise
        raise AssertionError(f"it did not end after being gone on with {TURNS_MAX} times")

    @contextmanager
    def _supplying(self) -> Iterator[None]:
        """It may wait beside what keeps it from being unloaded."""
        over = threading.Event()

        def supply() -> None:
            while not over.wait(SUPPLIED_S):
                self._supply()

        thread = threading.Thread(target=supply)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _supply(self) -> None:
        """While it waits, what people send; what is only a time comes by itself."""
        for number in range(SIGNALS):
            self._signal(number)
        self._answer()

    # -- what people do ------------------------------------------------------------------------

    def _signal(self, number: int) -> None:
        with suppress(perdure.Conflict, perdure.NotFound):  # it has ended, or not begun
            self._handle().signal(f"signal {number}", next(self._values))

    def _answer(self) -> None:
        with suppress(perdure.Conflict, perdure.NotFound):
            for question in self._handle().questions():
                self._handle().answer(next(self._values), to=question)

    def _cancel(self) -> None:
        with suppress(perdure.Conflict, perdure.NotFound):
            self._handle().cancel("by chance")
            self.said.append("cancelled")

    def _doubts(self) -> list[Any]:
        """Those since the turn began, or was set back: of others nothing can be said any more."""
        since = self._turn_since()
        return [one for one in self._handle().effects() if one.open and one.seq > since]

    def _turn_since(self) -> int:
        return max(self._since, int(self._handle().info.turn_at))

    def _between(self, doubtful: bool) -> bool:
        """Nobody executes it. Returns whether it has ended."""
        chance = self._chance
        if not self._outside.runs(AGENT):
            return False
        if self._handle().info.status in FINISHED:
            return True
        if chance.random() < 0.2:
            self._go_over(finished=False)
        if chance.random() < 0.03:
            self._cancel()
            return self._handle().info.status in FINISHED
        if chance.random() < 0.3:
            chance.choice((self._edit_by_hand, self._take_back, self._answer, self._supply))()
        for one in self._doubts() if doubtful else ():
            self._meddle()
            self._settle(one)
            self._meddle()
        return False

    def _meddle(self) -> None:
        if self._in_doubt and self._chance.random() < 0.4:
            (self._take_back if self._chance.random() < 0.1 else self._edit_by_hand)()

    def _settle(self, effect: Any) -> None:
        of_child = effect.place.rpartition("/")[2].startswith("start:")
        share_done = 0.2 if self._in_doubt else 0.5
        if self._chance.random() < share_done and not of_child:
            self._handle().settle(effect.place, done="settled", by="somebody")
            self.said.append(f"{effect.place}: done")
        else:
            self._handle().settle(effect.place, not_done=True, by="somebody")
            ledger.more[effect.key] += 1
            self.said.append(f"{effect.place}: not done")

    def _agent(self) -> perdure.Agent[Any]:
        return self._outside.agent(AGENT, branch=self._branch)

    def _edit_by_hand(self) -> None:
        with suppress(perdure.Conflict), self._agent().edit("by hand") as draft:
            draft["by hand"] = draft.get("by hand", 0) + 1
            self.said.append("edited by hand")

    def _take_back(self) -> None:
        agent, turn_at = self._agent(), self._handle().info.turn_at
        with suppress(perdure.Conflict, perdure.NotFound):
            if self._chance.random() < 0.5:
                agent.undo()
            else:
                agent.rollback(self._chance.randint(turn_at, agent.seq))
            self.said.append("taken back")

    def _set_back(self) -> bool:
        """Or forked, at one of its steps; returns False if there is none."""
        chance, handle = self._chance, self._handle()
        places = {
            commit.cause.step
            for commit in self._agent().log()
            if commit.cause.run == self._run and commit.cause.step
        }
        if not places:
            return False
        place, effects = chance.choice(sorted(places)), chance.choice(("ask", "reuse", "live"))
        fork = chance.random() < 0.4
        self.said.append(f"{'forked' if fork else 'retried'} at {place}, {effects}")
        try:
            if fork:
                name = f"fork {len(self.said)}"
                handle.fork(place, branch=name, effects=effects, key=name)
                self._key = self._branch = name
            else:
                handle.retry(place, effects=effects)
        except perdure.NotFound:  # of another turn, or settled only
            return False
        for key in ledger.may if effects != "reuse" else ():
            ledger.more[key] += OFTEN
        playing.clear()
        self._since = self._agent().seq
        return True

    # -- whether it is right -------------------------------------------------------------------

    def _recorded(self) -> str:
        """The arguments of all steps and tools of which something is in the log, in this turn and
        since the run was set back. Not of what a person settled as not done: it is made again, and
        nothing is recorded behind that yet."""
        if not self._outside.runs(AGENT):
            return ""
        since = self._turn_since()
        commits = [commit for commit in self._agent().log() if commit.seq > since]
        records = [one for commit in commits for one in commit.records]
        ended = {
            record["place"]
            for record in records
            if record["t"] in ("step", "outcome") and not record.get("not_done")
        }
        return "\n".join(
            str(record.get("preview", "")) for record in records if record.get("place") in ended
        )

    def _compare_with(self, before: list[Playing], recorded: str) -> None:
        """What was heard before a call began whose record outlived the end of a life, is heard
        again."""
        for one, after in zip(before, playing, strict=False):
            if one.turn != after.turn:
                return
            sure = max((n for call, n in one.begun.items() if f"{call!r}" in recorded), default=0)
            self._compare("in another life", one.heard[:sure], after.heard[:sure])

    def _compare(self, when: str, one: Any, other: Any) -> None:
        if self._in_order:
            compare(when, one, other)
        elif by_task(one) != by_task(other):
            raise Otherwise(f"{when}: {by_task(other)}, and not {by_task(one)}")

    def _go_over(self, *, finished: bool = True) -> Replayed:
        before = [*playing]
        playing.clear()
        try:
            again = replay(self._outside, self._function, self._run)
            if again.drift is not None or (finished and again.goes_on):
                last, now = ([lines(one.heard) for one in each[-1:]] for each in (before, playing))
                raise Otherwise(f"gone over again: {again.drift or again.goes_on}{last}, now{now}")
            for one, same in zip(before[-1:], playing[-1:], strict=False):
                if finished and one.over and one.turn == same.turn:
                    self._compare("gone over again", one.heard, same.heard)
            return again
        finally:
            playing[:] = before

    def _end(self) -> None:
        handle = self._handle()
        done = handle.status in ("done", "failed")
        ends = [self._go_over(finished=done) for _ in range(2)]
        if handle.status == "done":
            assert [end.result for end in ends] == [handle.result(0)] * 2, ends
        ledger.check()
        handle.why(), handle.report(), handle.effects()
        agent = self._agent()
        for branch in agent.branches():
            agent.branch(branch.name).verify()
        assert isinstance(agent.state, dict)


@contextmanager
def children(url: str, wanted: bool) -> Iterator[None]:
    """A worker for them, where there are any."""
    if not wanted:
        yield
        return
    with perdure.open(url, durability="os") as store:
        worker = perdure.Worker(store, [child])
        thread = threading.Thread(target=lambda: worker.run(signals=False))
        thread.start()
        try:
            yield
        finally:
            worker.stop()
            thread.join()
