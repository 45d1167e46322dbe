"""Threads of messages, in our saver and in LangGraph's own for SQLite.

Imported by the rows when they run: other rows are not to pay for LangGraph's modules.
"""

from __future__ import annotations

import asyncio
import operator
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AnyMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, CheckpointMetadata
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages

from bench.corpus import texts
from bench.report import Figure
from bench.rows.langgraph import OFFICIAL
from bench.workplace import TEXT_SIZE, Workplace, file_bytes
from perdure.integrations.langgraph import PerdureSaver

THREAD = "t"


def spoken(count: int, seed: int = 11) -> list[BaseMessage]:
    """Messages of 500 B, with ids as LangGraph gives them."""
    return [
        HumanMessage(text, id=str(uuid6(clock_seq=number)))
        for number, text in enumerate(texts(count, TEXT_SIZE, seed))
    ]


def config(thread: str = THREAD, checkpoint_id: str | None = None) -> RunnableConfig:
    more = {} if checkpoint_id is None else {"checkpoint_id": checkpoint_id}
    return {"configurable": {"thread_id": thread, "checkpoint_ns": "", **more}}


def checkpoint(messages: list[BaseMessage], step: int) -> Checkpoint:
    """What a graph hands over when its state is these messages."""
    return Checkpoint(
        v=4,
        id=str(uuid6(clock_seq=step)),
        ts=datetime.now(UTC).isoformat(),
        channel_values={"messages": messages},
        channel_versions={"messages": step},
        versions_seen={"__input__": {}, "work": {"messages": step - 1}},
        updated_channels=["messages"],
    )


@dataclass(slots=True)
class Thread:
    """One thread in one saver, and where it stands."""

    saver: BaseCheckpointSaver[Any]
    at: RunnableConfig = field(default_factory=config)
    step: int = 0

    def put(self, made: Checkpoint) -> str:
        """The next checkpoint; its id."""
        self.step += 1
        metadata: CheckpointMetadata = {"source": "loop", "step": self.step, "parents": {}}
        self.at = self.saver.put(self.at, made, metadata, made["channel_versions"])
        return made["id"]

    def grow(self, messages: list[BaseMessage], first: int, last: int) -> list[str]:
        """A checkpoint for each message from `first` to `last`; their ids."""
        return [self.put(checkpoint(messages[:count], count)) for count in range(first, last + 1)]

    def grow_by_tasks(self, messages: list[BaseMessage]) -> None:
        """The same as a graph does it: each message is written by a task of the step before."""
        for count in range(1, len(messages) + 1):
            if count > 1:
                self.saver.put_writes(self.at, [("messages", [messages[count - 1]])], str(count))
            self.put(checkpoint(messages[:count], count))


def ours(path: Path, *, durable: bool = True) -> PerdureSaver:
    return PerdureSaver.from_url(path, durability="sync" if durable else "os")


@contextmanager
def official(path: Path, *, durable: bool = True) -> Iterator[SqliteSaver]:
    """As shipped; or the same file sooner, for what is not timed."""
    with SqliteSaver.from_conn_string(str(path)) as saver:
        saver.setup()
        if not durable:
            saver.conn.execute("PRAGMA synchronous=OFF")
        yield saver


@contextmanager
def official_async(path: Path, loop: asyncio.Runner) -> Iterator[AsyncSqliteSaver]:
    """As shipped. Its thread would keep a process that does not close it from ending."""
    opened = AsyncSqliteSaver.from_conn_string(str(path))
    saver = loop.run(opened.__aenter__())
    try:
        yield saver
    finally:
        loop.run(opened.__aexit__(None, None, None))


def durability_of(saver: SqliteSaver) -> str:
    """Read from its connection: what it sets, and what SQLite's defaults add."""
    (journal,) = saver.conn.execute("PRAGMA journal_mode").fetchone()
    (level,) = saver.conn.execute("PRAGMA synchronous").fetchone()
    name = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}[level]
    return f"{OFFICIAL}: journal_mode={journal}, synchronous={name}; ours: durability sync"


@dataclass(frozen=True, slots=True)
class LongThread:
    """A closed store of ours with a thread to which each message was put in a step of its own."""

    path: Path
    messages: list[BaseMessage]
    ids: list[str]
    bytes: int
    kept: str
    """What the bytes are."""


@cache
def long_thread(root: Path, count: int) -> LongThread:
    """Built once for all rows, at durability "os", which makes the same file sooner."""
    path = Path(tempfile.mkdtemp(dir=root)) / "ours.db"
    messages = spoken(count)
    saver = ours(path, durable=False)
    ids = Thread(saver).grow(messages, 1, count)
    what = kept(saver)
    saver.close()
    return LongThread(path, messages, ids, file_bytes(path), what)


def kept(saver: PerdureSaver) -> str:
    """What a store's files hold, in words."""
    sizes = saver.store.sizes()
    return (
        f"{sizes.commits:,} commits: headers {Figure(sizes.header_bytes, 'B')}, "
        f"payloads {Figure(sizes.payload_bytes, 'B')}; {sizes.snapshots} snapshots "
        f"{Figure(sizes.snapshot_bytes, 'B')} with {sizes.leaves} leaves of "
        f"{Figure(sizes.leaf_bytes, 'B')}"
    )


def copied(workplace: Workplace, thread: LongThread) -> Path:
    """The thread's store, for a row to write to."""
    path = workplace.folder() / "ours.db"
    shutil.copyfile(thread.path, path)
    return path


def duplicate(saver: SqliteSaver, name: str, other: str) -> None:
    """The rows of a thread once more, under another name: what its steps would have stored."""
    saver.conn.execute(
        "INSERT INTO checkpoints SELECT ?, checkpoint_ns, checkpoint_id, parent_checkpoint_id, "
        "type, checkpoint, metadata FROM checkpoints WHERE thread_id = ?",
        (other, name),
    )
    saver.conn.commit()


class Counted(TypedDict):
    count: Annotated[int, operator.add]
    messages: Annotated[list[AnyMessage], add_messages]


def chain(
    nodes: int, saver: BaseCheckpointSaver[Any] | None, at_once: int = 1
) -> Callable[..., None]:
    """A graph of so many nodes in a row, or so many at once, each of which counts one; what invokes
    it."""
    app = _chained(nodes, at_once, lambda state: {"count": 1}, saver)

    def invoke(thread: str, messages: Sequence[BaseMessage], durability: str) -> None:
        found = app.invoke(*_call(nodes, thread, messages), **_waiting(saver, durability))
        assert found["count"] == nodes

    return invoke


def async_chain(
    nodes: int, saver: BaseCheckpointSaver[Any] | None, at_once: int = 1
) -> Callable[..., Any]:
    """The same of coroutines, which await nothing."""

    async def node(state: Counted) -> dict[str, Any]:
        return {"count": 1}

    app = _chained(nodes, at_once, node, saver)

    async def invoke(thread: str, messages: Sequence[BaseMessage], durability: str) -> None:
        found = await app.ainvoke(*_call(nodes, thread, messages), **_waiting(saver, durability))
        assert found["count"] == nodes

    return invoke


def _chained(nodes: int, at_once: int, node: Any, saver: BaseCheckpointSaver[Any] | None) -> Any:
    graph = StateGraph(Counted)
    before = [START]
    for first in range(0, nodes, at_once):
        names = [f"node-{number}" for number in range(first, min(first + at_once, nodes))]
        for name in names:
            graph.add_node(name, node)
            graph.add_edge(before if len(before) > 1 else before[0], name)
        before = names
    return graph.compile(checkpointer=saver)


def _call(nodes: int, thread: str, messages: Sequence[BaseMessage]) -> tuple[Any, RunnableConfig]:
    given = {"count": 0, "messages": list(messages)}
    return given, {**config(thread), "recursion_limit": nodes + 2}


def _waiting(saver: BaseCheckpointSaver[Any] | None, durability: str) -> dict[str, Any]:
    return {} if saver is None else {"durability": durability}
