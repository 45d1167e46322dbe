"""LangGraph's own saver beside ours, with a copy of it for each commit of ours: what a thread was
when that one was the newest, and is to be again behind a rollback to it."""

from __future__ import annotations

import asyncio
import operator
import random
import sqlite3
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any

from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.errors import EmptyInputError
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from perdure.integrations.langgraph import PerdureSaver
from tests.integrations.langgraph.checkpoints import config
from tests.integrations.langgraph.conftest import Place

THREAD = "t"


def _extend(old: list[Any] | None, batches: list[list[Any]]) -> list[Any]:
    return [*(old or []), *(item for batch in batches for item in batch)]


class Plain(TypedDict, total=False):
    log: Annotated[list[str], operator.add]


class State(Plain, total=False):
    trail: Annotated[list[str], DeltaChannel(_extend, snapshot_frequency=5)]


class Inner(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    asked: str


def graph_for(saver: Any, schema: Any = State, *, remembers: bool = False) -> Any:
    """Steps side by side, a subgraph that asks, and a step that asks: with plain and with delta
    channels.

    Args:
        remembers: the subgraph goes on from where it was when it was called before.
    """

    def wrote(log: str, trail: Any) -> dict[str, Any]:
        return {"log": [log], **({"trail": [trail]} if schema is State else {})}

    def step(name: str) -> Any:
        return lambda state: wrote(name, f"{name} {len(state.get('trail', []))}")

    def ask(state: Any) -> dict[str, Any]:
        return wrote(f"approved: {interrupt('pay?')}", "asked")

    inner = StateGraph(Inner)
    inner.add_node("look", lambda state: {"asked": "how?"})
    inner.add_node("how", lambda state: {"log": [f"how: {interrupt(state['asked'])}"]})
    inner.add_edge(START, "look")
    inner.add_edge("look", "how")
    sub = inner.compile(checkpointer=True if remembers else None)

    def call(state: Any) -> dict[str, Any]:
        said = sub.invoke({"log": []})["log"]
        return {"log": [f"{len(said)} of {said[-1]}" if remembers else said[-1]]}

    graph = StateGraph(schema)
    for name in "abc":
        graph.add_node(name, step(name))
    graph.add_node("sub", call)
    graph.add_node("ask", ask)
    graph.add_edge(START, "a")
    graph.add_edge(START, "b")
    graph.add_edge("a", "sub")
    graph.add_edge("sub", "ask")
    graph.add_edge("ask", "c")
    return graph.compile(checkpointer=saver)


def _listed(value: Any) -> Any:
    """Theirs has lists for tuples."""
    return list(value) if type(value) is tuple else value


def plain(found: CheckpointTuple | None) -> Any:
    if found is None:
        return None
    at = found.config["configurable"]
    parent = found.parent_config
    return (
        at["checkpoint_ns"],
        at["checkpoint_id"],
        dict(found.checkpoint),
        dict(found.metadata),
        None if parent is None else parent["configurable"]["checkpoint_id"],
        [(*one[:2], _listed(one[2])) for one in found.pending_writes or ()],
    )


class Both(SqliteSaver):
    """Both savers as one. Each read is compared; `ours` is any of those that are open."""

    def __init__(self, place: Place, chance: random.Random) -> None:
        connection = sqlite3.connect(":memory:", check_same_thread=False)
        weakref.finalize(self, connection.close)  # Python 3.13 warns of one that is left open
        super().__init__(connection)
        self.setup()
        self._place, self._chance = place, chance
        self._savers = [place.open(), place.open()]
        self._whose = random.Random(0)  # asked from several threads: it must not change the walk
        self._mutex = threading.RLock()
        self._turn = asyncio.Lock()
        self._copies: dict[int, Any] = {}

    @property
    def ours(self) -> PerdureSaver:
        return self._whose.choice(self._savers)

    def agent(self, branch: str = "main") -> Any:
        info = self._savers[0].store.find(THREAD)
        assert info is not None
        return self._savers[0].store.agent_of(info, branch=branch)

    # -- copies of theirs ------------------------------------------------------------------

    def note(self) -> int:
        """Keep a copy of theirs as of now."""
        info = self._savers[0]._logs.look(THREAD)
        assert info is not None
        rows = self.conn.execute
        self._copies[info.seq] = {
            table: rows(f"SELECT * FROM {table}").fetchall() for table in ("checkpoints", "writes")
        }
        return info.seq

    def roll_back(self, to: int, branch: str = "main") -> None:
        self.agent(branch).rollback(to)
        self.set_rows(to)
        self.note()

    def set_rows(self, to: int) -> None:
        """Make theirs what it was at a moment, now that ours was moved there."""
        for saver in self._savers:  # what comes behind what was gone back from does not count
            saver.get_tuple(config(THREAD))
        for table, rows in self._copies[to].items():
            self.conn.execute(f"DELETE FROM {table}")
            for row in rows:
                marks = ",".join("?" * len(row))
                self.conn.execute(f"INSERT INTO {table} VALUES ({marks})", row)

    def places(self) -> set[tuple[str, str]]:
        """Namespaces and ids of all checkpoints that there ever were."""
        return {row[1:3] for copy in self._copies.values() for row in copy["checkpoints"]}

    def moments(self) -> list[int]:
        return list(self._copies)

    # -- a saver ---------------------------------------------------------------------------

    def put(self, *args: Any, **more: Any) -> RunnableConfig:
        with self._mutex:
            super().put(*args, **more)
            made = self.ours.put(*args, **more)
            self.note()
            return made

    def put_writes(self, *args: Any, **more: Any) -> None:
        with self._mutex:
            super().put_writes(*args, **more)
            self.ours.put_writes(*args, **more)
            self.note()

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        with self._mutex:
            theirs, found = super().get_tuple(config), self.ours.get_tuple(config)
            same(found, theirs)
            return found

    def list(self, config: Any, **more: Any) -> Iterator[CheckpointTuple]:
        with self._mutex:
            theirs, found = list(super().list(config, **more)), list(self.ours.list(config, **more))
            assert len(found) == len(theirs)
            for mine, other in zip(
                sorted(found, key=place_of), sorted(theirs, key=place_of), strict=True
            ):
                same(mine, other)
            return iter(found)

    def get_delta_channel_history(self, **more: Any) -> Any:
        with self._mutex:
            found = self.ours.get_delta_channel_history(**more)
            assert found == super().get_delta_channel_history(**more)
            return found

    @asynccontextmanager
    async def _both(self) -> AsyncIterator[None]:
        with self._mutex:  # the subgraph's calls are on other threads
            yield

    async def aput(self, *args: Any, **more: Any) -> RunnableConfig:
        async with self._turn, self._both():
            super().put(*args, **more)
            made = await self.ours.aput(*args, **more)
            self.note()
            return made

    async def aput_writes(self, *args: Any, **more: Any) -> None:
        async with self._turn, self._both():
            super().put_writes(*args, **more)
            await self.ours.aput_writes(*args, **more)
            self.note()

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        found = await self.ours.aget_tuple(config)
        same(found, super().get_tuple(config))
        return found

    async def alist(self, config: Any, **more: Any) -> AsyncIterator[CheckpointTuple]:
        for one in self.list(config, **more):
            yield one

    async def aget_delta_channel_history(self, **more: Any) -> Any:
        found = await self.ours.aget_delta_channel_history(**more)
        assert found == super().get_delta_channel_history(**more)
        return found

    def compare(self) -> None:
        """All that there is, as one reads it who knows nothing, or as those who were there."""
        if self._chance.random() < 0.3:
            self._savers[self._chance.randrange(2)] = self._place.open()
        for space, one in sorted(self.places()):
            self.get_tuple(config(THREAD, ns=space))
            at = config(THREAD, one, space)
            self.get_tuple(at)
            if self._chance.random() < 0.2:
                self.get_delta_channel_history(config=at, channels=["trail", "log"])
        for space in sorted({space for space, _ in self.places()}):
            self.list(config(THREAD, ns=space))
        self.list({"configurable": {"thread_id": THREAD}})


def same(ours: CheckpointTuple | None, theirs: CheckpointTuple | None) -> None:
    """Compare, part by part: these are long."""
    if ours is None or theirs is None:
        assert plain(ours) == plain(theirs)
        return
    for mine, other in zip(plain(ours), plain(theirs), strict=True):
        if type(mine) is dict and type(other) is dict:
            for key in {*mine, *other}:
                assert mine.get(key) == other.get(key), (key, *plain(ours)[:2])
        assert mine == other, ("part", plain(ours)[0], plain(ours)[1], mine, other)


def place_of(one: Any) -> Any:
    at = one.config["configurable"]
    return at["checkpoint_ns"], at["checkpoint_id"]


class Walk:
    """What users do with a thread, at random."""

    def __init__(self, place: Place, seed: int) -> None:
        self.chance = random.Random(seed)
        self.both = Both(place, self.chance)
        self.app = graph_for(self.both)
        self.thread: RunnableConfig = {"configurable": {"thread_id": THREAD}}

    def act(self) -> None:
        act = self.chance.choices(
            [self._ask, self._answer, self._update, self._again, self._roll_back],
            [3, 8, 2, 2, 4],
        )[0]
        act()

    def _any(self) -> RunnableConfig:
        found = [one.config for one in self.app.get_state_history(self.thread)]
        return self.chance.choice(found) if found else self.thread

    def _ask(self) -> None:
        self.run({"log": [f"{self.chance.random()}"], "trail": ["begin"]}, self.thread)

    def _answer(self) -> None:
        state = self.app.get_state(self.thread)
        if not state.interrupts:
            return self._ask()
        self.run(Command(resume=self.chance.choice(["yes", "NO"])), self.thread)

    def _update(self) -> None:
        at = self._any() if self.chance.random() < 0.7 else self.thread
        self.app.update_state(at, {"log": ["changed"], "trail": ["changed"]}, as_node="a")

    def _again(self) -> None:
        with suppress(EmptyInputError):  # it went on from where the first input was awaited
            self.run(None, self._any())

    def _roll_back(self) -> None:
        moments = self.both.moments()
        if not moments:
            return
        near = moments[-8:] if self.chance.random() < 0.6 else moments
        to = self.chance.choice(near)
        lines = [one.name for one in self.both.agent().branches() if one.name.startswith("main")]
        branch = self.chance.choice(["main", *lines])
        self.both.roll_back(to, branch)
        self.both.compare()

    def run(self, given: Any, at: RunnableConfig) -> None:
        self.app.invoke(given, at, durability="sync")


class AsyncWalk(Walk):
    """The same, by coroutines."""

    def __init__(self, place: Place, seed: int, loop: asyncio.Runner) -> None:
        super().__init__(place, seed)
        self._loop = loop

    def run(self, given: Any, at: RunnableConfig) -> None:
        self._loop.run(self.app.ainvoke(given, at, durability="sync"))
