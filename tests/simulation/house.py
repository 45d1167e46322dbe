"""The life of one store, deed by deed: all that can be done to its agents and runs, at random.

Nothing here waits: a worker looks once, on the thread that asks it to, so a seed's deeds take as
long as their commits.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

import perdure
from perdure import Store
from perdure.engine.dispatch.picking import Pick
from perdure.engine.dispatch.worker import Worker
from perdure.engine.dispatch.worker_jobs import WorkerJob
from perdure.model import FINISHED, AgentInfo, Lease
from perdure.storage.capabilities import Backend

REFUSED = (perdure.Conflict, perdure.NotFound, perdure.NeedsAttention, perdure.RunFailed)
"""What a deed that cannot be done now is refused with; it leaves no trace then."""

LOOKS_MAX = 50
PLACES = ("look", "look", "wait_for:word#1", "wait_for:word#1", "wait_for:word#2", "ask#1", "act")
"""Where runs are set back to."""


@perdure.step
def look(n: int) -> int:
    return n + 1


@perdure.tool(on_crash="retry")
def act(n: int) -> int:
    return n * 2


@perdure.tool(on_crash="ask")
def breaks(n: int) -> int:
    raise ValueError(f"no {n}")


@perdure.agent(dict)
def short(run: perdure.Run[dict[str, Any]], n: int) -> int:
    found = look(n)
    with run.edit("begin") as draft:
        draft["n"] = found
    return act(n)


@perdure.agent(dict)
def fails(run: perdure.Run[dict[str, Any]], n: int) -> int:
    return breaks(look(n))


@perdure.agent(dict)
def waits(run: perdure.Run[dict[str, Any]], words: int) -> list[Any]:
    heard: list[Any] = [look(words)]
    for _ in range(words):
        heard.append(run.wait_for("word", schema=str))
        with run.edit("heard") as draft:
            draft["heard"] = heard[-1]
    return [*heard, run.ask("Go on?", schema=bool)]


@perdure.agent(dict)
def turns(run: perdure.Run[dict[str, Any]], left: int) -> Any:
    heard = run.wait_for("word", schema=str, timeout=timedelta(days=1), default="none")
    with run.edit("turn") as draft:
        draft["turn"] = [left, heard]
    return run.again(left - 1) if left else heard


@perdure.agent(dict)
def parent(run: perdure.Run[dict[str, Any]], child: str, n: int) -> int:
    return run.start(short, child, n).result() + look(n)


@perdure.agent(dict)
def sleeps(run: perdure.Run[dict[str, Any]]) -> str:
    run.sleep(timedelta(days=30))
    return "never"


FUNCTIONS = (short, fails, waits, turns, parent, sleeps)


class Once(Worker):
    """A worker that does what there is to do, here and now, and leaves."""

    def look_once(self) -> None:
        self._begin()
        try:
            for _ in range(LOOKS_MAX):
                self.found = False
                self._look()
                if not self.found:
                    return
        finally:
            self._drain()

    def _start(self, pick: Pick) -> None:
        self.found = True
        job = self._jobs[pick.run] = WorkerJob(pick, time.monotonic())
        self._execute(job)
        while not self._news.empty():
            news = self._news.get()
            if news is not None:
                self._take_news(*news)


def backend_of(store: Store) -> Backend:
    return store._context.backend


class House:
    """Random deeds in a store, the same ones for the same seed.

    Args:
        names: how many agents it knows.
        count: where its numbers begin; who goes on elsewhere begins with another one.
    """

    def __init__(self, store: Store, random: Random, names: int = 4, count: int = 0) -> None:
        self.store = store
        self.random = random
        self.names = [f"agent-{n}" for n in range(names)]
        self.count = count
        self.deeds: list[str] = []
        self._choice: list[Callable[[str], None]] = list(
            itertools.chain.from_iterable(
                [deed] * often
                for deed, often in (
                    (self.edit, 5),
                    (self.run, 2),
                    (self.checkpoint, 1),
                    (self.fork, 1),
                    (self.undo, 1),
                    (self.redo, 1),
                    (self.rollback, 1),
                    (self.adopt, 1),
                    (self.drop_branch, 1),
                    (self.begin_waiting, 2),
                    (self.begin_turns, 1),
                    (self.begin_parent, 1),
                    (self.begin_failing, 1),
                    (self.begin_sleeping, 1),
                    (self.signal, 5),
                    (self.answer, 2),
                    (self.serve, 3),
                    (self.cancel, 2),
                    (self.retry, 4),
                    (self.fork_run, 1),
                    (self.start, 1),
                    (self.settle, 1),
                    (self.delete, 1),
                    (self.purge, 1),
                    (self.trim, 2),
                    (self.take_in, 1),
                    (self.take_over, 1),
                )
            )
        )

    def go_on(self, deeds: int) -> None:
        for _ in range(deeds):
            self.count += 1
            deed, name = self.random.choice(self._choice), self.random.choice(self.names)
            said = f"{self.count} {deed.__name__} {name}"
            try:
                deed(name)
            except REFUSED as error:
                said += f": {type(error).__name__}"
            self.deeds.append(said)

    # -- state ---------------------------------------------------------------------------------

    def edit(self, name: str) -> None:
        key = self.random.choice([None, f"key-{self.count}"])
        with self.store.agent(name).edit(f"edit {self.count}", key=key) as draft:
            draft[f"field-{self.random.randrange(5)}"] = self.count
            draft.setdefault("log", []).append("x" * self.random.randrange(300))

    def checkpoint(self, name: str) -> None:
        self.store.agent(name).checkpoint(f"point-{self.count}")

    def fork(self, name: str) -> None:
        agent = self._there(name)
        side = agent.fork(f"fork-{self.count}", at=self.random.randint(1, agent.seq))
        if self.random.random() < 0.7:
            with side.edit("aside") as draft:
                draft["aside"] = self.count

    def undo(self, name: str) -> None:
        self._there(name).undo(cancel_run=self.random.random() < 0.3)

    def redo(self, name: str) -> None:
        self._there(name).redo()

    def rollback(self, name: str) -> None:
        agent = self._there(name)
        agent.rollback(self.random.randint(1, agent.seq), cancel_run=True)

    def adopt(self, name: str) -> None:
        agent = self._there(name)
        agent.adopt(self.random.choice(agent.branches()).name, cancel_run=True)

    def drop_branch(self, name: str) -> None:
        agent = self._there(name)
        branch = self.random.choice(agent.branches()).name
        if branch != "main":  # what is asked for there waits for ever
            agent.delete_branch(branch)

    def trim(self, name: str) -> None:
        agent = self._there(name)
        agent.trim(self.random.randint(1, agent.seq))

    # -- runs ----------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        self.store.options(key=f"start-{self.count}").start(short, name, self.count)

    def run(self, name: str) -> None:
        self.start(name)
        self.serve(name)

    def begin_waiting(self, name: str) -> None:
        self.store.options(key=f"wait-{self.count}").start(waits, name, self.random.randint(1, 3))
        self.serve(name)

    def begin_turns(self, name: str) -> None:
        self.store.options(key=f"turns-{self.count}").start(turns, name, 3)
        self.serve(name)

    def begin_parent(self, name: str) -> None:
        child = f"{name}-child"  # of one that is busy with a child of its own, none would end
        self.store.options(key=f"parent-{self.count}").start(parent, name, child, self.count)
        self.serve(name)

    def begin_failing(self, name: str) -> None:
        self.store.options(key=f"fails-{self.count}").start(fails, name, self.count)
        self.serve(name)

    def begin_sleeping(self, name: str) -> None:
        if self.random.random() < 0.3:
            self.store.options(key=f"sleep-{self.count}").start(sleeps, name)

    def signal(self, name: str) -> None:
        """To any run of the name that can still hear it; sometimes one that was sent before."""
        for run in self._runs(name, lambda run: run.function in ("waits", "turns")):
            key = f"w{self.random.choice((self.count, self.count // 9))}"
            self.store.handle(run.id).signal("word", f"word {self.count}", key=key)
            return

    def answer(self, name: str) -> None:
        for run in self._runs(name, lambda run: run.function == "waits"):
            handle = self.store.handle(run.id)
            if handle.questions():
                handle.answer(True, by="someone")
                return

    def cancel(self, name: str) -> None:
        for run in self._runs(name, lambda run: run.status not in FINISHED)[:1]:
            self.store.handle(run.id).cancel()

    def retry(self, name: str) -> None:
        """Set a run back, and sometimes let it have a signal at once."""
        for run in self._runs(name, lambda run: run.status in (*FINISHED, "needs_attention"))[:1]:
            handle = self.store.handle(run.id)
            handle.retry(self.random.choice(PLACES), effects="live")
            if self.random.random() < 0.7:
                handle.signal("word", f"word {self.count}", key=f"r{self.count}")
            if self.random.random() < 0.7:
                self.serve(name)

    def fork_run(self, name: str) -> None:
        for run in self._runs(name, lambda run: True)[:1]:
            self.store.handle(run.id).fork("look", branch=f"anew-{self.count}", effects="live")

    def settle(self, name: str) -> None:
        for run in self._runs(name, lambda run: run.status == "needs_attention")[:1]:
            handle = self.store.handle(run.id)
            for effect in handle.effects():
                if effect.state == "in doubt":
                    handle.settle(effect.place, done=1, by="someone")
            handle.resume()

    def serve(self, name: str) -> None:
        Once(self.store, FUNCTIONS).look_once()

    def take_over(self, name: str) -> None:
        """Somebody takes the lease, and dies; the next who writes takes it over."""
        info = self.store.find(name)
        if info is not None and not info.deleted:
            held = backend_of(self.store).lease(info.no, "main", f"dead-{self.count}")
            if isinstance(held, Lease):
                self.edit(name)

    # -- whole agents --------------------------------------------------------------------------

    def delete(self, name: str) -> None:
        if self.random.random() < 0.4:
            self.store.delete(name, purge=self.random.random() < 0.5)
            if self.random.random() < 0.5:  # and anew, at once
                self.begin_waiting(name)
                self.signal(name)

    def purge(self, name: str) -> None:
        """All that was deleted to be purged; or, by its name, what was deleted otherwise."""
        self.store.purge(name if self.random.random() < 0.5 else None)

    def take_in(self, name: str) -> None:
        """An agent that was exported elsewhere."""
        with perdure.open("memory://") as elsewhere:
            guest = House(elsewhere, self.random, names=1, count=self.count * 1000)
            guest.names = [f"guest-{self.count}"]
            guest._choice = [
                guest.edit,
                guest.run,
                guest.checkpoint,
                guest.fork,
                guest.trim,
                guest.begin_waiting,
                guest.signal,
            ]
            guest.go_on(8)
            for info in elsewhere.agents():
                self.store.import_log(list(elsewhere.export_log(info)))
                self.names.append(info.name)

    # -- what is there -------------------------------------------------------------------------

    def _there(self, name: str) -> Any:
        info = self.store.find(name)
        if info is None or info.deleted:
            raise perdure.NotFound("is not there", target=name)
        agent = self.store.agent(name)
        if self.random.random() < 0.3:
            return agent.branch(self.random.choice(agent.branches()).name)
        return agent

    def _runs(self, name: str, wanted: Callable[[Any], bool]) -> list[Any]:
        found = [run for run in self.store.runs(name) if wanted(run)]
        self.random.shuffle(found)
        return found


def logs(backend: Backend) -> list[AgentInfo]:
    """Every log of a store, deleted ones too, by name and incarnation."""
    seen, cursor = set(), ""
    while (part := backend.feed(cursor)).entries:
        seen |= {(fed.agent, fed.incarnation) for fed in part.entries}
        cursor = part.cursor
    found = [backend.agent(name, incarnation) for name, incarnation in sorted(seen)]
    return [info for info in found if info is not None]
