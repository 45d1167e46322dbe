"""The agent as a LangGraph graph with its own SqliteSaver: `FOLDER ORDER [--key]`.

Begun with the order; after a crash gone on with by `invoke(None)` on the same thread, each step
saved before the next begins (`durability="sync"`). With --key the company gets the task's id.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import get_runtime

from bench.crash import card


class Order(TypedDict, total=False):
    order: str
    receipt: str
    said: str


def thank(state: Order) -> Order:
    card.moment(card.NEXT)
    return {"said": f"thank you for {state['receipt']}"}


def run_graph(saver: BaseCheckpointSaver[Any], order: str, charge: Callable[[str], str]) -> str:
    """Begin the order's thread, or go on with it where it stands."""

    def pay(state: Order) -> Order:
        return {"receipt": charge(state["order"])}

    graph = StateGraph(Order)
    graph.add_node("pay", pay)
    graph.add_node("thank", thank)
    graph.add_edge(START, "pay")
    graph.add_edge("pay", "thank")
    graph.add_edge("thank", END)
    app = graph.compile(checkpointer=saver)
    thread: RunnableConfig = {"configurable": {"thread_id": order}}
    begun = app.get_state(thread).values
    found = app.invoke(None if begun else {"order": order}, thread, durability="sync")
    return str(found["said"])


def charge_with_key(order: str) -> str:
    execution = get_runtime().execution_info
    assert execution is not None
    return card.charge(order, execution.task_id)


def main(folder: str, order: str, *options: str) -> None:
    charge = charge_with_key if "--key" in options else card.charge
    with SqliteSaver.from_conn_string(str(Path(folder) / "graph.db")) as saver:
        said = run_graph(saver, order, charge)
    card.report(card.FINISHED, said)


if __name__ == "__main__":
    main(*sys.argv[1:])
