"""Graphs whose threads LangGraph's own savers write. `Invoice` is a user's own type."""

import contextlib
import operator
import sqlite3
from pathlib import Path
from typing import Annotated, Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict


class Invoice(BaseModel):
    number: str
    cents: int = 0


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


class Log(TypedDict):
    log: Annotated[list[str], operator.add]


def extend(old: list[str] | None, writes: list[Any]) -> list[str]:
    return [*(old or []), *(item for write in writes for item in write)]


class Diary(TypedDict):
    log: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=3)]


class Billing(TypedDict):
    invoices: list[Any]


def at(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


def chat(saver: Any) -> Any:
    graph = StateGraph(Chat)
    graph.add_node("answer", lambda state: {"messages": [AIMessage(f"a {len(state['messages'])}")]})
    graph.add_edge(START, "answer")
    return graph.compile(checkpointer=saver)


def talk(saver: Any, thread: str, turns: int) -> None:
    for number in range(turns):
        chat(saver).invoke({"messages": [HumanMessage(f"question {number}")]}, at(thread))


def review(saver: Any) -> Any:
    """A subgraph with a memory of its own asks a person."""
    inner = StateGraph(Log)
    inner.add_node("ask", lambda state: {"log": [f"said {interrupt({'good': '?'})}"]})
    inner.add_edge(START, "ask")
    graph = StateGraph(Log)
    graph.add_node("draft", lambda state: {"log": ["draft"]})
    graph.add_node("review", inner.compile(checkpointer=True))
    graph.add_edge(START, "draft")
    graph.add_edge("draft", "review")
    return graph.compile(checkpointer=saver)


def fan(saver: Any) -> Any:
    """Three tasks in one step, of which one fails."""

    def work(state: Any) -> Log:
        if state["n"] == 2:
            raise ValueError("no second")
        return {"log": [f"worked {state['n']}"]}

    graph = StateGraph(Log)
    graph.add_node("plan", lambda state: {"log": ["plan"]})
    graph.add_node("work", work)
    graph.add_edge(START, "plan")
    graph.add_conditional_edges("plan", lambda _: [Send("work", {"n": n}) for n in (1, 2, 3)])
    return graph.compile(checkpointer=saver)


def bill(saver: Any, thread: str, *invoices: Any) -> None:
    graph = StateGraph(Billing)
    graph.add_node("bill", lambda state: {"invoices": list(invoices)})
    graph.add_edge(START, "bill")
    graph.compile(checkpointer=saver).invoke({"invoices": []}, at(thread))


def travel(saver: Any, thread: str) -> None:
    """Go back to an older checkpoint, twice."""
    graph = chat(saver)
    talk(saver, thread, 2)
    older = list(graph.get_state_history(at(thread)))[-3]
    graph.invoke(None, older.config)
    edited = graph.update_state(older.config, {"messages": [HumanMessage("edited")]})
    graph.invoke(None, edited)


def diary(saver: Any) -> Any:
    """Its channel is stored as writes, and once in a while as a whole."""
    graph = StateGraph(Diary)
    graph.add_node("write", lambda state: {"log": [f"wrote {len(state['log'])}"]})
    graph.add_edge(START, "write")
    return graph.compile(checkpointer=saver)


THREADS = ["answered", "asked", "chat", "diary", "fan/größe", "travel"]


def fill(saver: Any) -> None:
    """All that a thread may have, but values of unregistered types."""
    talk(saver, "chat", 4)
    travel(saver, "travel")
    review(saver).invoke({"log": []}, at("asked"))
    review(saver).invoke({"log": []}, at("answered"))
    review(saver).invoke(Command(resume="yes"), at("answered"))
    for number in range(3):
        diary(saver).invoke({"log": [f"day {number}"]}, at("diary"))
    with contextlib.suppress(ValueError):
        fan(saver).invoke({"log": []}, at("fan/größe"))


def settle(path: Path) -> None:
    """Out of the WAL, so that the file may be copied alone."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


# -- moving them ---------------------------------------------------------------------------

DIES = """
import os, signal, sys
from perdure.integrations.langgraph import PerdureSaver
name, left = sys.argv.pop(1), int(sys.argv.pop(1))
call = getattr(PerdureSaver, name)
def dying(*args, **more):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    return call(*args, **more)
setattr(PerdureSaver, name, dying)
from perdure.cli import main
main()
"""
"""A perdure that is killed at the n-th call of a method of the saver."""


# -- what came over ------------------------------------------------------------------------


def tuples(saver: Any, thread: str) -> list[Any]:
    listed = list(saver.list(at(thread)))  # SqliteSaver hangs when it is asked meanwhile
    return [saver.get_tuple(one.config) for one in listed]


def types_of(value: Any) -> Any:
    """The types of all parts, which == does not compare."""
    if isinstance(value, dict):
        return {key: types_of(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value), [types_of(item) for item in value]
    return type(value)


def alike(theirs: Any, ours: Any, thread: str) -> int:
    """How many checkpoints LangGraph's saver and ours have of a thread, all alike."""
    there, here = tuples(theirs, thread), tuples(ours, thread)
    assert [one.config for one in here] == [one.config for one in there]
    for a, b in zip(there, here, strict=True):
        assert (b.checkpoint, b.metadata, b.parent_config) == (
            a.checkpoint,
            a.metadata,
            a.parent_config,
        )
        assert types_of(b.checkpoint) == types_of(a.checkpoint)
        assert [tuple(one) for one in b.pending_writes] == [tuple(one) for one in a.pending_writes]
    return len(there)
