"""Graphs whose threads are in a file of LangGraph's own saver. `Invoice` is a user's own type."""

import contextlib
import operator
import sqlite3
from pathlib import Path
from typing import Annotated, Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.sqlite import SqliteSaver
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


def fill(path: Path) -> None:
    """All that a thread may have, but values of unregistered types."""
    with SqliteSaver.from_conn_string(str(path)) as saver:
        talk(saver, "chat", 4)
        travel(saver, "travel")
        review(saver).invoke({"log": []}, at("asked"))
        review(saver).invoke({"log": []}, at("answered"))
        review(saver).invoke(Command(resume="yes"), at("answered"))
        with contextlib.suppress(ValueError):
            fan(saver).invoke({"log": []}, at("fan/größe"))


def settle(path: Path) -> None:
    """Out of the WAL, so that the file may be copied alone."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
