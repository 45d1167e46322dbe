"""The graphs of the rows `langgraph-turns`: shapes of a turn on a thread that has messages already.

Imported by the rows when they run: others are not to pay for LangGraph's modules.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from langchain_core.messages import AnyMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from bench.rows import langgraph_savers as lg

Shape = Literal["in a row", "ten at once", "chat turns", "interrupt and resume"]
Kind = Literal["plain", "delta"]
Durability = Literal["sync", "async", "exit"]

SHAPES: tuple[Shape, ...] = ("in a row", "ten at once", "chat turns", "interrupt and resume")
KINDS: tuple[Kind, ...] = ("plain", "delta")
DURABILITIES: tuple[Durability, ...] = ("sync", "async", "exit")

NODES = 10
"""Steps of a turn in a row, nodes of one at once."""

TURNS = 4
"""Turns of one step, one after the other on one thread."""

BEHIND = 60
"""Steps since the last snapshot of a delta channel, of which LangGraph makes one every 100."""


def _extend(old: list[Any] | None, batches: Any) -> list[Any]:
    return [*(old or []), *(message for batch in batches for message in batch)]


class Plain(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


class Delta(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(_extend)]


SCHEMAS: dict[Kind, Any] = {"plain": Plain, "delta": Delta}


@dataclass(frozen=True, slots=True)
class Cell:
    """What is measured. `waits`: from a coroutine."""

    shape: Shape
    kind: Kind
    durability: Durability
    waits: bool = False


class Talk:
    """One cell's graph on one saver; `loop` None: `invoke`, else `ainvoke`."""

    def __init__(
        self, saver: Any, cell: Cell, loop: asyncio.Runner | None, spoken: Sequence[BaseMessage]
    ) -> None:
        self._shape, self._durability, self._loop = cell.shape, cell.durability, loop
        self._spoken = iter(spoken)
        self._app = self._build(cell.kind).compile(checkpointer=saver)
        self._config: RunnableConfig = {**lg.config(), "recursion_limit": 2 * NODES}

    def _build(self, kind: Kind) -> Any:
        def answer(state: Any) -> dict[str, Any]:
            return {"messages": [next(self._spoken)]}

        async def async_answer(state: Any) -> dict[str, Any]:
            return {"messages": [next(self._spoken)]}

        def ask(state: Any) -> dict[str, Any]:
            assert interrupt("go on?")
            return {"messages": [next(self._spoken)]}

        graph: Any = StateGraph(SCHEMAS[kind])
        node: Any = answer if self._loop is None else async_answer
        if self._shape == "interrupt and resume":
            node = ask
        count = 1 if self._shape in ("chat turns", "interrupt and resume") else NODES
        for number in range(count):
            graph.add_node(f"n{number}", node)
        graph.add_edge(START, "n0")
        for number in range(1, count):
            graph.add_edge(
                START if self._shape == "ten at once" else f"n{number - 1}", f"n{number}"
            )
        return graph

    def turn(self) -> None:
        """What is measured."""
        if self._shape == "chat turns":
            for _ in range(TURNS):
                self.say({"messages": [next(self._spoken)]})
            return
        self.say({"messages": [next(self._spoken)]})
        if self._shape == "interrupt and resume":
            self.say(Command(resume=True))

    def say(self, given: Any) -> None:
        more: Any = {"durability": self._durability}
        if self._loop is None:
            self._app.invoke(given, self._config, **more)
        else:
            self._loop.run(self._app.ainvoke(given, self._config, **more))

    def update(self, messages: list[BaseMessage]) -> None:
        """All of these at once."""
        given = {"messages": messages}
        if self._loop is None:
            self._app.update_state(self._config, given)
        else:
            self._loop.run(self._app.aupdate_state(self._config, given))

    def look(self) -> int:
        """How many messages there are."""
        if self._loop is None:
            found = self._app.get_state(self._config)
        else:
            found = self._loop.run(self._app.aget_state(self._config))
        return len(found.values["messages"])


Opened = Callable[[Path, "asyncio.Runner | None"], Any]


@contextmanager
def ours(path: Path, loop: asyncio.Runner | None) -> Iterator[Any]:
    with lg.ours(path) as saver:
        yield saver


@contextmanager
def official(path: Path, loop: asyncio.Runner | None) -> Iterator[Any]:
    """As shipped."""
    with lg.official(path) if loop is None else lg.official_async(path, loop) as saver:
        yield saver


def seed(path: Path, opened: Opened, kind: Kind, spoken: list[BaseMessage]) -> None:
    """A closed file with a thread of these messages: the last ones were said in turns."""
    turns = min(BEHIND, len(spoken) - 1) // 2
    first = len(spoken) - 2 * turns
    with opened(path, None) as saver:
        last = iter(spoken[first:])
        talk = Talk(saver, Cell("chat turns", kind, "sync"), None, ())
        talk._spoken = last
        talk.update(spoken[:first])
        for _ in range(turns):
            talk.say({"messages": [next(last)]})
        assert talk.look() == len(spoken)


def copied(path: Path, folder: Path) -> Path:
    """A copy of a closed file, to write to."""
    to = folder / path.name
    for old in folder.glob(path.name + "*"):
        old.unlink()
    shutil.copyfile(path, to)
    return to
