"""Trains a dictionary for payloads: ``python -m tests.compat.make_dictionary FILE``.

Run once for each dictionary; the files are never made anew after that, because stores need them for
as long as they live. What it is trained on is what Perdure itself writes: commits of states, of
runs and of LangGraph's threads, their texts being the pages of this repository.
"""

from __future__ import annotations

import random
import re
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import zstandard
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from typing_extensions import TypedDict

import perdure
from perdure.core.format import envelope
from perdure.integrations.langgraph import PerdureSaver

ROOT = Path(__file__).resolve().parents[2]
SIZE = 4096
THREADS, STEPS = 150, 8
AGENTS, EDITS = 60, 6
RUNS = 40

source = random.Random(1)


def prose() -> str:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    text = " ".join(re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.S) for page in pages)
    return re.sub(r"\s+", " ", re.sub(r"[|`*#\[\]_<>]", "", text))


PROSE = prose()


def text() -> str:
    """Words in a row, as in a message."""
    start = PROSE.index(" ", source.randrange(len(PROSE) - 3000)) + 1
    return PROSE[start : PROSE.index(" ", start + source.choice((40, 150, 400, 700, 1200)))]


def uuid() -> str:
    return str(UUID(int=source.getrandbits(128), version=4))


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    done: int


def answer(state: Chat) -> dict[str, Any]:
    call = {"name": "search", "args": {"query": text()[:40]}, "id": "call_" + uuid()[:24]}
    usage = {"input_tokens": 812, "output_tokens": 45, "total_tokens": 857}
    made = {"finish_reason": "stop", "model_name": "a-model", "model_provider": "openai"}
    calls: Any = [call] if source.random() < 0.3 else []
    message = AIMessage(
        text(), id="run-" + uuid(), tool_calls=calls, response_metadata=made, usage_metadata=usage
    )
    return {"messages": [message], "done": source.randrange(100)}


def look(state: Chat) -> dict[str, Any]:
    return {"messages": [ToolMessage(text(), tool_call_id="call_" + uuid()[:24], name="search")]}


def threads(path: Path) -> None:
    graph = StateGraph(Chat)
    graph.add_node("agent", answer)
    graph.add_node("tools", look)
    graph.add_edge(START, "agent")
    graph.add_edge("agent", "tools")
    with PerdureSaver.from_url(path, durability="os") as saver:
        app = graph.compile(checkpointer=saver)
        for _ in range(THREADS):
            for _ in range(source.randrange(1, STEPS)):
                said: Any = {"messages": [HumanMessage(text(), id=uuid())]}
                app.invoke(said, {"configurable": {"thread_id": uuid()}})


def states(store: perdure.Store) -> None:
    for number in range(AGENTS):
        agent = store.agent(f"ticket-{number}", dict, initial={"messages": [], "status": "pending"})
        for _ in range(EDITS):
            with agent.edit("message added") as draft:
                role = source.choice(("user", "assistant", "system", "tool"))
                draft["messages"].append({"role": role, "content": text()})
            with agent.edit("status") as draft:
                draft["status"] = source.choice(("running", "waiting", "completed", "failed"))
                draft["updated_at"] = datetime.fromtimestamp(source.randrange(2**31), UTC)


@perdure.step
def look_up(customer: str) -> dict[str, Any]:
    return {"customer": customer, "name": text()[:20], "results": [text()], "score": 0.5}


@perdure.tool(on_crash="retry")
def send(to: str, body: str) -> str:
    return uuid()


@perdure.agent(dict)
def work(run: perdure.Run[dict[str, Any]], question: str) -> str:
    for _ in range(3):
        found = look_up(uuid())
        with run.edit("looked up") as draft:
            draft["found"] = found
        send(found["name"], text())
    return text()


def runs(store: perdure.Store) -> None:
    for number in range(RUNS):
        store.run(work, f"worker-{number}", text())


def payloads(path: Path) -> Iterator[bytes]:
    db = sqlite3.connect(path)
    for (data,) in db.execute("SELECT payload FROM commits"):
        yield envelope.open_envelope(data, "sample")
    db.close()


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "samples.db"
        threads(path)
        with perdure.open(path, durability="os") as store:
            states(store)
            runs(store)
        samples: list[Any] = list(payloads(path))
    made = zstandard.train_dictionary(SIZE, samples, k=256, d=8, steps=4).as_bytes()
    target.write_bytes(made)
    print(f"{len(samples)} samples, {sum(map(len, samples)):,} bytes: {target}, {len(made)} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
