"""Stores with a rich past, and what two of them must agree on to be copies."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

import perdure
from perdure import Store
from perdure.model import AgentInfo
from perdure.storage.capabilities import Backend, RunQuery
from perdure.storage.log.reader import LogReader
from perdure.transfer.living_agents import living
from perdure.verification.verify import verify_log

MOMENT_S = 0.05
WAIT_MAX_S = 30


@perdure.step
def look(n: int) -> int:
    return n + 1


@perdure.tool(on_crash="retry")
def act(n: int) -> int:
    return n * 2


@perdure.agent(dict)
def short(run: perdure.Run[dict[str, Any]], n: int) -> int:
    found = look(n)
    with run.edit("begin") as draft:
        draft["n"] = found
    return act(n)


@perdure.agent(dict)
def waits(run: perdure.Run[dict[str, Any]], words: int) -> list[Any]:
    heard = [run.wait_for("word", schema=str) for _ in range(words)]
    return [*heard, run.ask("Go on?", schema=bool)]


@perdure.agent(dict)
def sleeps(run: perdure.Run[dict[str, Any]]) -> str:
    run.sleep(timedelta(days=30))
    return "never"


@perdure.agent(dict)
def asks(run: perdure.Run[dict[str, Any]], agent: str, words: int = 0) -> Any:
    return run.start(waits if words else short, agent, words or 1).result()


def backend_of(store: Store) -> Backend:
    return store._context.backend


class Life:
    """Random deeds in a store, the same ones for the same seed."""

    def __init__(self, store: Store, seed: int, names: int = 4) -> None:
        self.store = store
        self.random = random.Random(seed)
        self.names = [f"agent-{n}" for n in range(names)]
        self.count = 0

    def go_on(self, deeds: int) -> None:
        for _ in range(deeds):
            self.count += 1
            deed = self.random.choice(
                [self.edit] * 6
                + [self.run] * 3
                + [
                    self.checkpoint,
                    self.fork,
                    self.undo,
                    self.rollback,
                    self.begin_waiting,
                    self.signal,
                    self.signal,
                    self.serve,
                    self.cancel,
                    self.start,
                    self.delete,
                    self.trim,
                ]
            )
            try:
                deed(self.random.choice(self.names))
            except (perdure.Conflict, perdure.NotFound, perdure.NeedsAttention):
                continue  # what cannot be done now is refused, and leaves no trace

    def edit(self, name: str) -> None:
        key = self.random.choice([None, f"key-{self.count}"])
        with self.store.agent(name).edit(f"edit {self.count}", key=key) as draft:
            draft[f"field-{self.random.randrange(5)}"] = self.count
            draft.setdefault("log", []).append("x" * self.random.randrange(50))

    def run(self, name: str) -> None:
        if not self.store.runs(name, unfinished=True):  # it would stand behind them
            self.store.options(key=f"run-{self.count}").run(short, name, self.count)

    def checkpoint(self, name: str) -> None:
        self.store.agent(name).checkpoint(f"point-{self.count}")

    def fork(self, name: str) -> None:
        agent = self.store.agent(name)
        side = agent.fork(f"fork-{self.count}", at=self.random.randint(1, 3))
        with side.edit("aside") as draft:
            draft["aside"] = self.count

    def undo(self, name: str) -> None:
        self.store.agent(name).undo()

    def rollback(self, name: str) -> None:
        self.store.agent(name).rollback(self.random.randint(1, 3), cancel_run=True)

    def start(self, name: str) -> None:
        self.store.options(key=f"start-{self.count}").start(short, name, self.count)

    def begin_waiting(self, name: str) -> None:
        self.store.options(key=f"wait-{self.count}").start(waits, name, 2)
        self.serve(name)

    def signal(self, name: str) -> None:
        for run in self.store.runs(name, unfinished=True):
            if run.function == "waits":
                handle = self.store.handle(run.id)
                handle.signal("word", f"word {self.count}", key=f"w{self.count}")
                return

    def cancel(self, name: str) -> None:
        for run in self.store.runs(name, unfinished=True)[:1]:
            self.store.handle(run.id).cancel()

    def serve(self, name: str) -> None:
        """Let a worker look once."""
        serve(self.store)

    def trim(self, name: str) -> None:
        agent = self.store.agent(name)
        agent.trim(self.random.randint(1, max(agent.seq, 1)))

    def delete(self, name: str) -> None:
        if self.random.random() < 0.5:
            self.store.delete(name)


def serve(
    store: Store,
    until: Callable[[], bool] | None = None,
    functions: Sequence[Callable[..., Any]] = (short, waits, sleeps, asks),
) -> None:
    """A worker that looks, until something is so; without it, for a moment."""
    worker = perdure.Worker(store, functions)
    ended = threading.Event()

    def watch() -> None:
        wait_s = time.monotonic() + (WAIT_MAX_S if until is not None else MOMENT_S)
        while time.monotonic() < wait_s and not (until is not None and until()):
            ended.wait(0.005)
        worker.stop()

    watcher = threading.Thread(target=watch)
    watcher.start()
    worker.run(signals=False)
    ended.set()
    watcher.join()
    assert until is None or until()


def waiting_for(store: Store, run: str, words: str) -> Callable[[], bool]:
    """Whether a run waits for that, and has looked at all that came."""

    def reached() -> bool:
        rows = backend_of(store).runs(RunQuery(run_id=run))
        return bool(rows) and rows[0].status == "waiting" and words in rows[0].waits

    return reached


def all_done(store: Store, agent: str, count: int) -> Callable[[], bool]:
    return lambda: [run.status for run in store.runs(agent)] == ["done"] * count


def incarnations(backend: Backend) -> Iterator[Any]:
    """Every log of a store, by name and incarnation."""
    seen = {(fed.agent, fed.incarnation) for fed in _all(backend)}
    for name, incarnation in sorted(seen):
        yield backend.agent(name, incarnation)


def _all(backend: Backend) -> Iterator[Any]:
    cursor = ""
    while (part := backend.feed(cursor)).entries:
        yield from part.entries
        cursor = part.cursor


def first_of(info: AgentInfo) -> int:
    """Seq of the first commit that is there."""
    return info.seq if info.purged else 1


def picture(backend: Backend) -> dict[str, Any]:
    """All that two copies have in common: the logs, byte by byte, and each view of them."""
    found: dict[str, Any] = {}
    for info in incarnations(backend):
        rows = backend.read(info.no, 1, info.seq)
        keys = [
            backend.key(info.no, commit.cause.key)
            for commit in LogReader(backend, info).commits(first_of(info))
            if commit.cause.key
        ]
        refs = [
            (ref.name, ref.kind, ref.seq, ref.deleted, ref.checkpoint)
            for ref in backend.refs(info.no)
        ]
        found[f"{info.name}/{info.incarnation}"] = [
            info.deleted,
            [(row.header, row.payload) for row in rows],
            refs,
            keys,
        ]
    found["runs"] = sorted(
        (replace(run, agent_no=0) for run in backend.runs()), key=lambda run: run.id
    )
    found["inbox"] = backend.inbox()
    return found


def verify_all(backend: Backend) -> None:
    for info in incarnations(backend):
        verify_log(backend, LogReader(backend, info))
    assert all(not info.deleted for info in living(backend))
