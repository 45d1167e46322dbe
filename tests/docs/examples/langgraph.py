"""Examples of docs/reference/langgraph.md; see tests/docs/reference.py."""

import asyncio
import operator
import tempfile
from datetime import timedelta
from typing import Annotated, Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import START, StateGraph
from langgraph.store.base import PutOp

import perdure
from perdure.integrations.langgraph import PerdureSaver, PerdureStore


class State(TypedDict):
    log: Annotated[list[str], operator.add]


graph = StateGraph(State)
graph.add_node("work", lambda state: {"log": ["worked"]})
graph.add_edge(START, "work")
thread: RunnableConfig = {"configurable": {"thread_id": "chat-7"}}
folder = tempfile.mkdtemp()

# %% PerdureSaver PerdureSaver.from_url PerdureSaver.close PerdureSaver.setup
with PerdureSaver.from_url(f"{folder}/agents.db") as saver:
    app = graph.compile(checkpointer=saver)
    app.invoke({"log": ["begin"]}, thread)
    assert app.get_state(thread).values == {"log": ["begin", "worked"]}

store = perdure.open("memory://")
saver = PerdureSaver(store, on_race="conflict")  # on a store that is open; it stays yours
app = graph.compile(checkpointer=saver)
app.invoke({"log": ["begin"]}, thread)

# %% PerdureSaver.put PerdureSaver.put_writes PerdureSaver.get_tuple PerdureSaver.get_next_version
new: RunnableConfig = {"configurable": {"thread_id": "chat-8", "checkpoint_ns": ""}}
checkpoint = empty_checkpoint()  # LangGraph makes these calls by itself
version = saver.get_next_version(None)
checkpoint["channel_values"], checkpoint["channel_versions"] = {"log": ["a"]}, {"log": version}
stored = saver.put(new, checkpoint, {"source": "input", "step": -1}, {"log": version})
saver.put_writes(stored, [("log", ["b"])], task_id="task-1")
found = saver.get_tuple(stored)
assert found is not None and found.checkpoint["channel_values"] == {"log": ["a"]}
assert found.pending_writes == [("task-1", "log", ["b"])]

# %% PerdureSaver.list
assert [one.metadata["step"] for one in saver.list(thread, limit=2)] == [1, 0]
assert len(list(saver.list(None, filter={"source": "input"}))) == 2  # of all threads

# %% PerdureSaver.get_delta_channel_history
history = saver.get_delta_channel_history(config=stored, channels=["log"])
assert list(history) == ["log"]

# %% PerdureSaver.copy_thread PerdureSaver.delete_thread PerdureSaver.delete_for_runs
saver.copy_thread("chat-7", "chat-9")
assert store.agent_of(store.agents("chat-9")[0]).exists
saver.delete_thread("chat-9")
saver.delete_for_runs(["no-such-run"])

# %% PerdureSaver.prune PerdureSaver.trim
saver.prune(["chat-7"], strategy="keep_latest")
assert len(list(saver.list(thread))) == 1
assert [one.agent for one in saver.trim(timedelta(0), ["chat-7"])] == ["chat-7"]

# %% PerdureSaver.serde PerdureSaver.with_allowlist
print(saver.serde)  # for values of no kind of ours
assert saver.with_allowlist([("langchain_core.messages.ai", "AIMessage")]) is not None


# %% PerdureSaver.aput PerdureSaver.aput_writes PerdureSaver.aget_tuple PerdureSaver.alist
async def again() -> None:
    found = await saver.aget_tuple(stored)
    assert found is not None
    await saver.aput_writes(stored, [("log", ["c"])], task_id="task-2")
    assert len([one async for one in saver.alist(stored)]) == 1
    assert (await app.ainvoke({"log": ["more"]}, thread))["log"][-1] == "worked"


asyncio.run(again())

# %% PerdureStore PerdureStore.from_url PerdureStore.store PerdureStore.setup
with PerdureStore.from_url(f"{folder}/memory.db") as memory:  # for graph.compile(store=memory)
    memory.put(("users", "17"), "prefs", {"theme": "dark", "visits": 3})
    item = memory.get(("users", "17"), "prefs")
    assert item is not None and item.value["theme"] == "dark"
    found_items = memory.search(("users",), filter={"visits": {"$gte": 3}})
    assert [one.key for one in found_items] == ["prefs"]
    assert memory.list_namespaces() == [("users", "17")]
    memory.delete(("users", "17"), "prefs")
    assert memory.store.find("store:users") is not None  # each first label is an agent

# %% PerdureStore.batch PerdureStore.abatch
memory = PerdureStore(store)
values: list[dict[str, Any]] = [{"at": 1}, {"at": 2}]
memory.batch([PutOp(("users", "17"), f"note-{value['at']}", value) for value in values])
assert len(memory.search(("users", "17"))) == 2  # both in one commit


async def asking() -> None:
    async with PerdureStore.from_url("memory://") as other:
        await other.aput(("users",), "key", {"at": 1})
        assert await other.aget(("users",), "key") is not None


asyncio.run(asking())

# %% PerdureStore.sweep_ttl PerdureStore.start_ttl_sweeper PerdureStore.stop_ttl_sweeper
with PerdureStore.from_url("memory://", ttl={"default_ttl": 0.0001}) as cache:
    cache.put(("pages",), "one", {"text": "…"})
    cache.start_ttl_sweeper(sweep_interval_minutes=1)
    assert cache.stop_ttl_sweeper()
    assert cache.sweep_ttl() in {0, 1}  # what has expired
store.close()
