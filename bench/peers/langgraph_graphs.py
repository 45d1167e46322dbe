"""The graphs of the field: one that adds a message a superstep, and one whose state stays small.

The messages are in a channel as LangGraph's own `MessagesState` has them, or, with delta, in a
`DeltaChannel` with the reducer that LangGraph brings for messages.
"""

from __future__ import annotations

import time
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base.id import uuid6
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages

from bench.peers.contest import answer_of
from bench.peers.serving import Answer, result


class Saying(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


class SayingDeltas(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]


class Working(TypedDict):
    last: str


def said(text: str) -> HumanMessage:
    """A message with an id, as LangGraph gives them."""
    return HumanMessage(text, id=str(uuid6()))


class Turn:
    """One `invoke`: what its node gives, superstep by superstep, and when the node was called.

    From one call of the node to the next is a superstep: its result applied, and its checkpoint
    durable. So a turn of n supersteps times n - 1, and neither its beginning nor its end.
    """

    def __init__(self, updates: list[Any]) -> None:
        self._updates = updates
        self._calls: list[tuple[float, float]] = []

    def next(self) -> Any:
        self._calls.append((time.perf_counter(), time.process_time()))
        return self._updates[len(self._calls) - 1]

    @property
    def done(self) -> bool:
        return len(self._calls) == len(self._updates)

    def answer(self) -> Answer:
        (wall, cpu), (last_wall, last_cpu) = self._calls[0], self._calls[-1]
        return answer_of(len(self._calls) - 1, last_wall - wall, last_cpu - cpu)


class Graph:
    """A node in a loop, compiled for a checkpointer; sync and async. Each thread has one turn at a
    time."""

    def __init__(self, state: type, key: str, saver: Any) -> None:
        self._key = key
        self._turns: dict[str, Turn] = {}
        built: Any = StateGraph(state)
        built.add_node("work", self._work)
        built.add_edge(START, "work")
        built.add_conditional_edges("work", self._next, ["work", END])
        self.app = built.compile(checkpointer=saver)

    def _work(self, state: Any, config: RunnableConfig) -> dict[str, Any]:
        return {self._key: self._turns[config["configurable"]["thread_id"]].next()}

    def _next(self, state: Any, config: RunnableConfig) -> str:
        # A fork asks as well, also in a process that had no turn of the thread yet.
        turn = self._turns.get(config["configurable"]["thread_id"])
        return END if turn is None or turn.done else "work"

    def begin(self, thread: str, updates: list[Any]) -> tuple[Turn, dict[str, Any]]:
        """A turn of a thread, and what its `invoke` takes."""
        turn = self._turns[thread] = Turn(updates)
        config = {"configurable": {"thread_id": thread}, "recursion_limit": len(updates) + 5}
        empty: Any = [] if self._key == "messages" else ""
        call: dict[str, Any] = {"input": {self._key: empty}, "config": config}
        if self.app.checkpointer is not None:
            call["durability"] = "sync"
        return turn, call


def saying(saver: Any, *, delta: bool) -> Graph:
    return Graph(SayingDeltas if delta else Saying, "messages", saver)


def working(saver: Any) -> Graph:
    return Graph(Working, "last", saver)


def results(count: int) -> list[str]:
    """What the supersteps of a turn of so many timed ones give."""
    return [result(number) for number in range(count + 1)]
