"""In a real graph: `compile(store=…)`, and what the runtime hands to nodes."""

# mypy: disable-error-code="arg-type, union-attr, call-overload"

import asyncio
from typing import TypedDict

from langgraph.config import get_store
from langgraph.func import entrypoint
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore

from perdure.integrations.langgraph.store.memory_store import PerdureStore


class State(TypedDict):
    question: str
    answer: str


class User(TypedDict):
    user: str


def embed(texts):
    return [[float(text.lower().count(letter)) for letter in "catdogfish"] for text in texts]


INDEX = {"dims": 10, "embed": embed, "fields": ["text"]}


def remember(state: State, runtime: Runtime[User]):
    space = ("memories", runtime.context["user"])
    runtime.store.put(space, state["question"], {"text": state["question"]})
    return {}


def recall(state: State, *, store: BaseStore):
    found = store.search(("memories",), query=state["question"], limit=2)
    return {"answer": " | ".join(item.value["text"] for item in found)}


def build():
    graph = StateGraph(State, context_schema=User)
    graph.add_node("recall", recall)
    graph.add_node("remember", remember)
    graph.add_edge(START, "recall")
    graph.add_edge("recall", "remember")
    graph.add_edge("remember", END)
    return graph


def test_a_graph_remembers_over_processes(tmp_path):
    def ask(question, user):
        with PerdureStore.from_url(tmp_path / "agents.db", index=INDEX) as store:
            graph = build().compile(store=store)
            return graph.invoke({"question": question}, context={"user": user})["answer"]

    assert ask("my cat", "ann") == ""
    assert ask("a fish", "bob") == "my cat"
    assert ask("cat cat", "ann").startswith("my cat")
    with PerdureStore.from_url(tmp_path / "agents.db") as store:
        assert store.list_namespaces() == [("memories", "ann"), ("memories", "bob")]
        causes = [
            commit.cause.what
            for commit in store.store.agent_of(store.store.find("store:memories")).log()
        ]
        assert causes[1:] == [
            "put memories/ann my cat",
            "put memories/bob a fish",
            "put memories/ann cat cat",
        ]


def test_async_nodes_side_by_side(tmp_path):
    async def node(state: State, runtime: Runtime[User]):
        store = runtime.store
        await asyncio.gather(*(store.aput(("n",), f"{n}", {"text": f"cat {n}"}) for n in range(10)))
        found = await store.asearch(("n",), query="cat", limit=20)
        return {"answer": str(len(found))}

    async def main():
        async with PerdureStore.from_url(tmp_path / "agents.db", index=INDEX) as store:
            graph = StateGraph(State, context_schema=User)
            graph.add_node("node", node)
            graph.add_edge(START, "node")
            return await graph.compile(store=store).ainvoke(
                {"question": ""}, context={"user": "ann"}
            )

    assert asyncio.run(main())["answer"] == "10"


def test_the_functional_api():
    with PerdureStore.from_url("memory://") as store:

        @entrypoint(store=store)
        def flow(name: str) -> int:
            get_store().put(("seen",), name, {"text": name})
            return len(get_store().search(("seen",)))

        assert [flow.invoke(name) for name in ("a", "b", "a")] == [1, 2, 2]
