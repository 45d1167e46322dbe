"""Families of runs as chance makes them: parents, children and theirs, which fail, are cancelled,
set back, forked and gone on with in any order. In the end all bugs are mended and all signals sent:
then each run must come to its end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import perdure
from perdure.engine.journal.run_log import recorded_run, recorded_turn
from perdure.errors import PerdureError, RunFailed
from perdure.model import FINISHED, UNFINISHED
from perdure.storage.log.reader import LogReader
from perdure.store import Store
from tests.simulation.house import Once

bugs: set[str] = set()
"""Agents whose functions fail at the moment."""

ROUNDS_MAX = 60
MENDED_ROUNDS = 10
DEEDS = 40


class BugError(Exception):
    pass


@perdure.step
def look(what: str) -> str:
    return what


def check(run: perdure.Run[Any]) -> None:
    if run.agent in bugs:
        raise BugError(run.agent)


@perdure.agent(dict)
def kid(run: perdure.Run[dict[str, Any]], waits: int) -> str:
    look("kid")
    check(run)
    for _ in range(waits):
        run.wait_for("go")
        check(run)
    return look("grown up")


@perdure.agent(dict)
def parent(run: perdure.Run[dict[str, Any]], plan: list[list[Any]], level: int = 0) -> str:
    """Does what a plan says, one thing after the other."""
    children: list[Any] = []
    for what, number, waits in plan:
        match what:
            case "look":
                look("parent")
            case "wait":
                run.wait_for("go")
            case "start":
                key = None if waits else f"{run.agent}-{number}"
                children.append(run.options(key=key).start(kid, f"kid-{number}", waits))
            case "parent":
                below = [["start", number, waits], ["await", 0, 0]]
                children.append(run.start(parent, f"middle-{number}", below, 1))
            case "await" if children:
                children[number % len(children)].result()
            case "try" if children:
                with suppress(BugError, RunFailed):
                    children[number % len(children)].result()
            case "patient" if children:
                patient(run, children[number % len(children)])
            case "select" if children:
                child = children[number % len(children)]
                run.select(child=child, go=perdure.Signal("go"))
        check(run)
    return look("done")


def patient(run: perdure.Run[dict[str, Any]], child: Any) -> None:
    """Waits until somebody has mended it; of one that was cancelled before it began, nobody can."""
    for _ in range(5):
        try:
            child.result()
            return
        except (BugError, RunFailed):
            run.wait_for("go")


def plan_of(random: Random) -> list[list[Any]]:
    plan: list[list[Any]] = [["start", random.randrange(3), random.randrange(3)]]
    for _ in range(random.randrange(1, 6)):
        what = random.choice(
            ["look", "wait", "start", "parent", "await", "try", "patient", "select"]
        )
        if what == "parent" and any(one[0] == "parent" for one in plan):
            continue
        number = random.randrange(3)
        if what == "start" and any(one[:2] == ["start", number] for one in plan):
            continue
        plan.append([what, number, random.randrange(3)])
    return plan


class Family:
    """One such history."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store = store
        self.random = Random(seed)
        self.said: list[str] = []
        self.worker = Once(store, [kid, parent])
        self.count = 0

    def live(self) -> None:
        bugs.clear()
        deeds: list[Callable[[], None]] = [
            self.begin,
            self.go_on,
            self.go_on,
            self.go_on,
            self.signal,
            self.signal,
            self.cancel,
            self.move,
            self.retry,
            self.retry,
            self.fork,
            self.bug,
            self.delete,
        ]
        self.begin()
        for _ in range(DEEDS):
            deed = self.random.choice(deeds)
            before = self.cancelled()
            with suppress(PerdureError, BugError):
                deed()
            for run in self.cancelled() - before:
                self.check_told(run)
        bugs.clear()
        self.end()
        for info in self.store.agents():
            self.store.agent_of(info).verify()

    def end(self) -> None:
        """Each run comes to its end.

        Raises:
            AssertionError: with what keeps it.
        """
        left = self.store.runs(unfinished=True)
        for number in range(ROUNDS_MAX):
            self.worker = Once(self.store, [kid, parent])  # which waits a second before no run
            self.go_on()
            left = self.store.runs(unfinished=True)
            if not left:
                return
            for run in left:
                if run.status == "needs_attention":
                    self.put_right(self.store.handle(run.id))
                else:
                    self.store.handle(run.id).signal("go", 1)
            for run in self.store.runs() if number < MENDED_ROUNDS else ():
                if run.parent in {one.id for one in left} and run.status in ("failed", "cancelled"):
                    with suppress(PerdureError):  # which has ended, or does not wait for it
                        self.again(self.store.handle(run.id), "reuse", first=True)
        words = [f"{run.id}: {self.store.handle(run.id).why().why}" for run in left]
        raise AssertionError("\n".join(["they do not end:", *words, "behind", *self.said]))

    def put_right(self, run: Any) -> None:
        """It stopped for a bug that is mended now, or as nobody knows what became of a child."""
        open_calls = [effect.place for effect in run.effects() if effect.open]
        for place in open_calls:
            run.settle(place, not_done=True)
        if not open_calls and "was purged" in run.info.problem:
            place = run.info.problem.partition("--from ")[2].partition("`")[0]
            run.retry(place.strip("'"))
        elif not open_calls:
            run.resume()

    def cancelled(self) -> set[str]:
        return {run.id for run in self.store.runs(status=["cancelled"])}

    def check_told(self, run: str) -> None:
        """Those that it started end with it, or were told to, however it was cancelled, but for
        those that a fork has, too.

        Raises:
            AssertionError: it has left some of them behind.
        """
        backend, row = self.store.runner.context.backend, self.store.handle(run).info
        info = backend.agent(row.agent)
        if info is None or info.no != row.agent_no:
            return  # it was purged, with what it had recorded
        reader = LogReader(backend, info)
        kept: set[str] = set()
        others = self.store.runs(row.agent, unfinished=True)
        for other in (one for one in others if one.agent_no == info.no and one.started):
            kept.update(recorded_turn(reader, other).children, recorded_run(reader, other).children)
        for commit in reader.commits(row.started):
            for record in commit.records:
                if record.get("run") != run or "child" not in record:
                    continue
                if record["child"]["run"] in kept:
                    continue
                child = record["child"]
                left = self.store.runs(child["agent"], unfinished=True)
                if not child["let_live"] and child["run"] in {one.id for one in left}:
                    words = f"{child['run']} goes on without {run}, behind"
                    assert backend.inbox(child["run"], kind="cancel"), [words, *self.said]

    # -- deeds -----------------------------------------------------------------------------------

    def say(self, *words: object) -> None:
        self.said.append(" ".join(map(str, words)))

    def some(self, *statuses: str) -> Any:
        runs = [run for run in self.store.runs() if run.status in statuses]
        return self.store.handle(self.random.choice(runs).id) if runs else None

    def begin(self) -> None:
        self.count += 1
        plan, name = plan_of(self.random), f"parent-{self.random.randrange(2)}"
        self.say("start", name, self.count, plan)
        self.store.options(key=f"r{self.count}").start(parent, name, plan)

    def go_on(self) -> None:
        self.worker.look_once()

    def delete(self) -> None:
        name = f"kid-{self.random.randrange(3)}"
        self.say("delete", name)
        self.store.delete(name)
        if self.random.random() < 0.5:
            self.say("purge", name)
            self.store.purge(name)

    def bug(self) -> None:
        name = self.random.choice([*(f"kid-{n}" for n in range(3)), "middle-0", "parent-0"])
        bugs.symmetric_difference_update({name})
        self.say("bugs", sorted(bugs))

    def signal(self) -> None:
        if run := self.some("waiting"):
            self.say("signal", run.id)
            run.signal("go", 1)

    def cancel(self) -> None:
        if run := self.some(*UNFINISHED):
            self.say("cancel", run.id)
            run.cancel("by chance")

    def move(self) -> None:
        """What a run has done is taken back, and it is cancelled with that."""
        if run := self.some(*UNFINISHED):
            agent = self.store.agent(run.info.agent, branch=run.info.branch)
            seq = self.random.randint(1, agent.seq or 1)
            self.say("rollback beneath", run.id, seq)
            agent.rollback(seq, cancel_run=True)

    def retry(self) -> None:
        if run := self.some(*FINISHED, "needs_attention"):
            self.again(run, self.random.choice(["reuse", "live"]))

    def again(self, run: Any, effects: Any, *, first: bool = False) -> None:
        if places := [event.place for event in run.report().events if event.place]:
            place = places[0] if first else self.random.choice(places)
            self.say("retry", run.id, "from", place, effects)
            run.retry(place, effects=effects)

    def fork(self) -> None:
        run = self.some(*FINISHED, "waiting")
        places = [event.place for event in run.report().events if event.place] if run else []
        if places and self.random.random() < 0.3:
            self.count += 1
            place = self.random.choice(places)
            self.say("fork", run.id, "from", place)
            run.fork(place, branch=f"b{self.count}", effects="reuse", key=f"f{self.count}")
