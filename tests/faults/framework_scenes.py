"""What frameworks call: LangGraph's saver and store, the OpenAI Agents SDK's session."""

from __future__ import annotations

import asyncio
from typing import Any, TypedDict

from perdure.agents import Agent
from perdure.store import Store
from tests.faults.checking import State
from tests.faults.scenes import Call, begun, scene


class Numbers(TypedDict):
    n: int


VALUES: dict[str, Any] = {"messages": ["one"], "n": 1}
VERSIONS: Any = {"messages": "1", "n": "1"}


def config(name: str) -> Any:
    return {"configurable": {"thread_id": f"{name}-thread", "checkpoint_ns": ""}}


def checkpoint(number: int = 1) -> Any:
    from langgraph.checkpoint.base import empty_checkpoint

    made = {**empty_checkpoint(), "id": f"1f0-{number}", "channel_values": {**VALUES, "n": number}}
    made["channel_versions"] = {"messages": "1", "n": str(number)}
    return made


@scene
def saver_put(store: Store, name: str) -> tuple[Agent[State], Call]:
    from perdure.integrations.langgraph import PerdureSaver

    agent = begun(store, name)  # what is asked of the store is asked of it
    saver, at_first = PerdureSaver(store), config(name)

    def call() -> None:
        at = saver.put(at_first, checkpoint(), {"step": 1}, VERSIONS)
        saver.put_writes(at, [("messages", "two")], "task")
        found = saver.get_tuple(at_first)
        assert found is not None and found.checkpoint["channel_values"] == VALUES

    return agent, call


@scene
def saver_next(store: Store, name: str) -> tuple[Agent[State], Call]:
    """On a thread that it has read before: writes, a further checkpoint, and what is listed."""
    from perdure.integrations.langgraph import PerdureSaver

    agent = begun(store, name)
    saver = PerdureSaver(store)
    at = saver.put(config(name), checkpoint(), {"step": 1}, VERSIONS)

    def call() -> None:
        saver.put_writes(at, [("messages", "two"), ("n", 2)], "task")
        saver.put(at, checkpoint(2), {"step": 2}, {"n": "2"})
        found = list(saver.list(config(name)))
        assert [one.checkpoint["channel_values"]["n"] for one in found] == [2, 1], found
        assert found[1].pending_writes == [("task", "messages", "two"), ("task", "n", 2)], found

    return agent, call


@scene
def saver_delete(store: Store, name: str) -> tuple[Agent[State], Call]:
    from perdure.integrations.langgraph import PerdureSaver

    agent = begun(store, name)
    saver = PerdureSaver(store)
    saver.put(config(name), checkpoint(), {"step": 1}, VERSIONS)

    def call() -> None:
        saver.delete_thread(f"{name}-thread")
        assert saver.get_tuple(config(name)) is None

    return agent, call


@scene
def async_saver(store: Store, name: str) -> tuple[Agent[State], Call]:
    from perdure.integrations.langgraph import PerdureSaver

    agent = begun(store, name)
    saver, at_first = PerdureSaver(store), config(name)

    async def main() -> None:
        at = await saver.aput(at_first, checkpoint(), {"step": 1}, VERSIONS)
        await asyncio.gather(
            saver.aput_writes(at, [("messages", "two")], "task"),
            saver.aput_writes(at, [("messages", "three")], "other"),
        )
        found = [one async for one in saver.alist(at_first)]
        assert len(found) == 1, found
        assert len(found[0].pending_writes or ()) == 2, found
        last = await saver.aget_tuple(at_first)
        assert last is not None and last.checkpoint["channel_values"] == VALUES

    return agent, lambda: asyncio.run(main())


@scene
def graph(store: Store, name: str) -> tuple[Agent[State], Call]:
    """A graph of two nodes that is invoked with our saver."""
    from perdure.integrations.langgraph import PerdureSaver

    agent = begun(store, name)
    compiled = _graph(PerdureSaver(store))

    def call() -> None:
        found = compiled.invoke({"n": 1}, config(name), durability="sync")
        assert found["n"] == 3, found
        assert len(list(compiled.get_state_history(config(name)))) >= 4

    return agent, call


def _graph(saver: Any) -> Any:
    from langgraph.graph import END, START, StateGraph

    def more(state: Any) -> Any:
        return {"n": state["n"] + 1}

    made = StateGraph(Numbers)
    made.add_node("one", more)
    made.add_node("two", more)
    made.add_edge(START, "one")
    made.add_edge("one", "two")
    made.add_edge("two", END)
    return made.compile(checkpointer=saver)


@scene
def memory_store(store: Store, name: str) -> tuple[Agent[State], Call]:
    from perdure.integrations.langgraph import PerdureStore

    agent = begun(store, name)
    kept = PerdureStore(store, prefix=f"{name}-")
    kept.put(("people", "a"), "one", {"age": 1})

    def call() -> None:
        kept.put(("people", "a"), "two", {"age": 2})
        kept.put(("places", "b"), "one", {"size": 3})
        found = kept.get(("people", "a"), "two")
        assert found is not None and found.value == {"age": 2}
        assert [one.key for one in kept.search(("people",), filter={"age": 1})] == ["one"]
        kept.delete(("places", "b"), "one")
        assert sorted(kept.list_namespaces()) == [("people", "a")]

    return agent, call


@scene
def async_memory_store(store: Store, name: str) -> tuple[Agent[State], Call]:
    from perdure.integrations.langgraph import PerdureStore

    agent = begun(store, name)
    kept = PerdureStore(store, prefix=f"{name}-")

    async def main() -> None:
        await asyncio.gather(
            kept.aput(("people", "a"), "one", {"age": 1}),
            kept.aput(("people", "b"), "two", {"age": 2}),
        )
        found = await kept.aget(("people", "b"), "two")
        assert found is not None and found.value == {"age": 2}
        assert len(await kept.asearch(("people",))) == 2

    return agent, lambda: asyncio.run(main())


@scene
def session(store: Store, name: str) -> tuple[Agent[State], Call]:
    from perdure.integrations.openai_agents import PerdureSession

    agent = begun(store, name)

    async def main() -> None:
        talk = PerdureSession(f"{name}-talk", store=store)
        await talk.clear_session()
        await talk.add_items([{"role": "user", "content": word} for word in ("one", "two")])
        assert await talk.pop_item() == {"role": "user", "content": "two"}
        await talk.add_items([{"role": "user", "content": "three"}])
        found = [one["content"] for one in await talk.get_items()]  # type: ignore[typeddict-item]
        assert found == ["one", "three"], found
        assert await talk.get_items(1) == [{"role": "user", "content": "three"}]
        await talk.close()

    return agent, lambda: asyncio.run(main())
