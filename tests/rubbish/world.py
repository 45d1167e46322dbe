"""A small store with something of everything in it, and whether all of it can still be read."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from msgspec import Struct

import perdure
import perdure.replication
from perdure.engine.control.agent_deletion import any_branch
from perdure.model import FINISHED
from perdure.storage import locate
from perdure.store import Store
from perdure.testing.driving import run_until_waiting

_names = itertools.count()


class CrashError(BaseException):
    """What a process dies of."""


@perdure.step
def double(n: int) -> int:
    return n * 2


@perdure.tool
def pay(n: int) -> int:
    if n < 0:
        raise CrashError
    return n


@perdure.agent(dict)
def finishing(run: perdure.Run[dict[str, Any]], n: Any = 1) -> Any:
    double(3)
    with run.edit("counted") as draft:
        draft["n"] = 1
    return n


@perdure.agent(dict)
def asking(run: perdure.Run[dict[str, Any]]) -> Any:
    pay(5)
    answer = run.select(yes=perdure.Ask("really?"), go=perdure.Signal("go"))
    return answer.value


@perdure.agent(dict)
def doubting(run: perdure.Run[dict[str, Any]]) -> Any:
    return pay(-1)


@perdure.agent(dict)
async def acting(run: perdure.AsyncRun[dict[str, Any]], n: Any = 1) -> Any:
    return n


class Print(Struct, frozen=True):
    """What is there, by name: heads, rows, messages."""

    agents: dict[Any, Any]
    runs: dict[str, Any]
    messages: dict[int, Any]

    def changed(self, before: Print) -> tuple[set[str], set[str]]:
        """Names of agents and ids of runs that are new, gone or moved."""
        agents = {key[0] for key, _ in self.agents.items() ^ before.agents.items()}
        runs = {key for key, _ in self.runs.items() ^ before.runs.items()}
        told = {run for _, run in self.messages.items() ^ before.messages.items()}
        return agents, runs | {run for run in told if run in self.runs}

    def touched(self, before: Print, *, but: str | None) -> bool:
        """Whether something that was there before has changed, or was told something; but for
        one agent, which is the one that was meant."""
        agents, runs = self.changed(before)
        known = {key[0] for key in before.agents} - {but}
        return bool(agents & known or runs & before.runs.keys())


class World:
    """One store. `print` is what must not have changed where a call raised."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.prepared: set[str] = set()
        self.elsewhere = f"memory://elsewhere-{next(_names)}"
        self._opened: Any = None
        self.store = store = perdure.open(url, durability="os", lease_ttl=timedelta(days=1))
        agent = store.agent("a", initial={"n": 0, "list": [1], "tags": {"x"}})
        with agent.edit("first", tags=["t"], key="k1") as draft:
            draft["n"] = 1
        with agent.edit("second", group="g") as draft:
            draft["list"].append(2)
        agent.checkpoint("cp", config={"model": "m"})
        agent.fork("side")
        run_until_waiting(store, finishing, "done", 4)
        run_until_waiting(store, asking, "asks")
        store.start(finishing, "later", 5)
        with suppress(CrashError):
            run_until_waiting(store, doubting, "doubts")
        with suppress(perdure.NeedsAttention):
            run_until_waiting(store, doubting, "doubts")
        self.dirty = 0

    def close(self) -> None:
        self.store.close()
        if self._opened is not None:
            self._opened._store.close()

    async def async_store(self) -> Any:
        """The same store, by its other face, open as long as this is."""
        if self._opened is None:
            self._opened = await perdure.open_async(self.url, durability="os")
        return self._opened

    def print(self) -> Print:
        backend = self.store._context.backend
        return Print(
            {(one.name, one.incarnation): (one.seq, one.deleted) for one in backend.agents()},
            {one.id: (one.status, one.changed_at_micros, one.ended) for one in backend.runs()},
            {one.no: one.run for one in backend.inbox()},
        )

    def handle(self, run: str) -> Any:
        return self.store.handle(run)

    def read_all(self, of: Print | None = None, *, but: tuple[str, ...] = ()) -> None:
        """Everything of everybody, from a fresh open; or of those who changed since a print; but
        for agents whose names begin so."""
        with perdure.open(self.url, durability="os", lease_ttl=timedelta(days=1)) as store:
            agents, ids = (None, None) if of is None else self.print().changed(of)
            runs = [run for run in store.runs() if ids is None or run.id in ids]
            for info in store.agents():
                if (agents is not None and info.name not in agents) or info.name.startswith(but):
                    continue
                agent = store.agent_of(
                    info, branch=any_branch(store._context.backend.refs(info.no))
                )
                _ = agent.state
                commits = list(agent.log(all_branches=True))
                assert len(commits) == agent.verify().commits
                for branch in agent.branches():
                    if not branch.deleted:
                        _ = agent.at(branch.head).plain
                agent.checkpoints()
                list(store.export_log(info))
            for run in runs:
                if run.agent.startswith(but):
                    continue
                handle = store.handle(run.id)
                assert handle.info.id == run.id
                str(handle.why())
                handle.questions()
                handle.effects()
                handle.report()

    def read_elsewhere(self) -> None:
        """What a migration moved, or began to."""
        with perdure.open(self.elsewhere) as store:
            for info in store.agents():
                agent = store.agent_of(
                    info, branch=any_branch(store._context.backend.refs(info.no))
                )
                assert len(list(agent.log(all_branches=True))) == agent.verify().commits

    def use_all(self) -> None:
        """What people do with it then. Ends the world."""
        with perdure.open(self.url, durability="os", lease_ttl=timedelta(days=1)) as store:
            for run in store.runs():
                handle = store.handle(run.id)
                if handle.status not in FINISHED:  # with the one that started it, maybe
                    handle.cancel("enough")
            for info in store.agents():
                agent = store.agent_of(
                    info, branch=any_branch(store._context.backend.refs(info.no))
                )
                if not any(run.agent == info.name for run in store.runs(unfinished=True)):
                    agent.rollback(1, cancel_run=True)
                agent.verify()
                state: object = agent.state
                is_thread = agent.commit(agent.seq).schema_id == "langgraph.thread"
                if isinstance(state, dict) and not is_thread:  # which its saver writes
                    with agent.edit("goes on") as draft:
                        draft["went on"] = True
                    agent.undo()
                    assert "went on" not in agent.state
                agent.verify()
        target = f"memory://copy-{next(_names)}"
        with (
            perdure.open(target) as copy,
            perdure.open(self.url, durability="os") as store,
        ):
            with perdure.replication.following(self.url, target) as follower:
                follower.drain()
            for info in store.agents():
                found = copy.find(info.name)
                assert found is not None and found.seq == info.seq
                copy.agent_of(
                    found, branch=any_branch(copy._context.backend.refs(found.no))
                ).verify()


def new_memory() -> str:
    return f"memory://rubbish-{next(_names)}"


def memories() -> frozenset[str]:
    """The stores in memory that this process has, by their names."""
    return frozenset(locate._named_memories)


def forget_memories(but: frozenset[str]) -> None:
    """A store in memory stays while its process lives: so do all of a few million calls."""
    for name in locate._named_memories.keys() - but:
        del locate._named_memories[name]


Urls = Callable[[], str]
"""Where the next world is to be."""

__all__ = ["Store", "Urls", "World", "forget_memories", "memories", "new_memory"]
