"""A LangGraph graph on a page that charges a card: what a crash in the middle of that does.

    python examples/charge.py               # kill it while the bank is slow, and start it again
    python examples/charge.py --official    # the same with LangGraph's own saver
    cat bank.txt                            # what was charged

A checkpointer keeps what a node returned. That a node *began* it does not know, so the graph calls
a node again that a crash interrupted, under any saver: with LangGraph's own the card is charged
twice. Here the call is a durable run, in the same store as the thread. Its intent is on disk before
the bank hears of it, so after the crash it is in doubt, and what the tool's author declared
decides: the bank is asked. With `--ask` it cannot be, and then a person must say.

The bank is a file and the model a stand-in. It needs langgraph and langgraph-checkpoint-sqlite.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import InjectedToolCallId
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

import perdure
from perdure.integrations.langgraph import PerdureSaver

BANK = Path("bank.txt")
THREAD: RunnableConfig = {"configurable": {"thread_id": "order-7"}}

slowness_s = 3.0
"""How long the bank takes to answer when it has charged: a good moment to kill this."""


def call_bank(reference: str, cents: int) -> str:
    BANK.touch(0o600)
    with BANK.open("a") as ledger:
        ledger.write(f"{reference} {cents}\n")
    time.sleep(slowness_s)
    return f"charged {cents} cents"


def find_charge(cents: int) -> object:
    """Asks the bank whether the charge in doubt was made."""
    ledger = BANK.read_text() if BANK.exists() else ""
    return f"charged {cents} cents" if perdure.idempotency_key() in ledger else perdure.NOT_DONE


@perdure.tool(on_crash="probe", probe=find_charge)
def charge(cents: int) -> str:
    return call_bank(perdure.idempotency_key(), cents)


@perdure.tool(on_crash="ask")
def charge_blindly(cents: int) -> str:
    return call_bank(perdure.idempotency_key(), cents)


@perdure.agent(dict)
def charging(run: perdure.Run[dict[str, Any]], cents: int, ask: bool) -> str:
    return charge_blindly(cents) if ask else charge(cents)


def model(state: MessagesState) -> dict[str, Any]:
    """Stands for a language model: it wants the card charged, and tells what came of it."""
    last = state["messages"][-1]
    if last.type == "tool":
        return {"messages": [AIMessage(f"Thank you, we have {last.content}.")]}
    call = {"name": "pay", "args": {"cents": 4200}, "id": "call-1-of-order-7"}
    return {"messages": [AIMessage("", tool_calls=[call])]}


def serve(saver: BaseCheckpointSaver[Any], pay: Callable[..., str]) -> str:
    """The graph, begun, or gone on with where its thread stands."""
    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", ToolNode([pay]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    app = graph.compile(checkpointer=saver)
    question = MessagesState(messages=[HumanMessage("Yes, I take the boots.")])
    begun = app.get_state(THREAD).values
    found = app.invoke(None if begun else question, THREAD, durability="sync")
    return str(found["messages"][-1].content)


def with_perdure(ask: bool) -> str:
    with perdure.open("orders.db") as store:

        def pay(cents: int, call: Annotated[str, InjectedToolCallId]) -> str:
            """Charge the customer's card."""
            return store.run(charging, call, cents, ask)  # begins it, or goes on, or has its result

        return serve(PerdureSaver(store), pay)


def with_official_saver() -> str:
    def pay(cents: int) -> str:
        """Charge the customer's card."""
        return call_bank("order-7", cents)

    with SqliteSaver.from_conn_string("official.db") as saver:
        return serve(saver, pay)


def main() -> None:
    global slowness_s
    parser = argparse.ArgumentParser()
    parser.add_argument("--official", action="store_true", help="with LangGraph's SqliteSaver")
    parser.add_argument("--ask", action="store_true", help="the bank cannot be asked")
    parser.add_argument("--slowness", type=float, default=slowness_s, metavar="SECONDS")
    options = parser.parse_args()
    slowness_s = options.slowness
    print(with_official_saver() if options.official else with_perdure(options.ask))


if __name__ == "__main__":
    main()
