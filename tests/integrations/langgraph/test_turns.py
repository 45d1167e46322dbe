"""Coroutines on one thread of LangGraph, one after the other on one of the store's own threads."""

from __future__ import annotations

import asyncio
import gc
import operator
import sys
import threading
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph

from perdure.integrations.langgraph import PerdureSaver
from perdure.integrations.langgraph.threads import coroutine_queue
from perdure.integrations.langgraph.threads.coroutine_queue import CoroutineTurns
from perdure.system.thread_pool import Job

THREAD: RunnableConfig = {"configurable": {"thread_id": "t"}, "recursion_limit": 30}
FOR_EVER_S = 60.0


def _extend(old: list[Any] | None, batches: list[list[Any]]) -> list[Any]:
    return [*(old or []), *(item for batch in batches for item in batch)]


class Delta(TypedDict):
    log: Annotated[list[int], DeltaChannel(_extend)]


class Plain(TypedDict):
    log: Annotated[list[int], operator.add]


@pytest.mark.parametrize("schema", [Plain, Delta])
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_graph_of_coroutines_needs_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schema: Any, durability: Any
) -> None:
    """It had seven of the store's eight threads wait for each other, and wake each other: a third
    of the CPU of its steps."""
    monkeypatch.setattr(coroutine_queue, "TURN_MAX_S", FOR_EVER_S)
    used: set[int] = set()
    run = Job.run

    def watched(self: Any, *args: Any) -> None:
        used.add(threading.get_ident())
        run(self, *args)

    monkeypatch.setattr(Job, "run", watched)

    async def node(state: Any) -> dict[str, Any]:
        return {"log": [len(state["log"])]}

    graph: Any = StateGraph(schema)
    names = [f"n{number}" for number in range(10)]
    for name in names:
        graph.add_node(name, node)
    for before, after in zip([START, *names], names, strict=False):
        graph.add_edge(before, after)

    async def main() -> Any:
        async with PerdureSaver.from_url(tmp_path / "ours.db") as saver:
            app = graph.compile(checkpointer=saver)
            for _ in range(2):
                await app.ainvoke({"log": [-1]}, THREAD, durability=durability)
            return await app.aget_state(THREAD)

    assert len(asyncio.run(main()).values["log"]) == 22
    assert len(used) == 1


def test_each_comes_behind_the_one_before() -> None:
    order: list[str] = []

    async def call(queue: CoroutineTurns, name: str, wanted: asyncio.Event) -> None:
        async with queue.next():
            order.append(f"{name} in")
            await wanted.wait()
            order.append(f"{name} out")

    async def main() -> None:
        queue, go = CoroutineTurns(), asyncio.Event()
        calls = [asyncio.create_task(call(queue, name, go)) for name in "abcd"]
        while not order:
            await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
        assert order == ["a in"]
        calls[3].cancel()  # while it waits
        go.set()
        await asyncio.gather(*calls, return_exceptions=True)
        assert [one.cancelled() for one in calls] == [False, False, False, True]
        async with queue.next():
            order.append("end")

    asyncio.run(main())
    assert order == ["a in", "a out", "b in", "b out", "c in", "c out", "end"]


def test_an_end_that_was_lost_holds_nobody_up_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception may come between any two instructions, those of an end included. And who comes
    from another loop does not wait: it could not be woken."""
    queue = CoroutineTurns()

    async def lost() -> None:
        await queue.next().__aenter__()

    async def entered() -> bool:
        async with queue.next():
            return True

    async def both() -> bool:
        await lost()
        return await entered()

    monkeypatch.setattr(coroutine_queue, "TURN_MAX_S", 0.01)
    assert asyncio.run(both())
    monkeypatch.setattr(coroutine_queue, "TURN_MAX_S", FOR_EVER_S)
    asyncio.run(lost())
    assert asyncio.run(asyncio.wait_for(entered(), FOR_EVER_S / 2))


def test_a_loop_that_is_closed_in_the_middle_of_it_is_left_quietly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What waits there is thrown away, and wakes what waited for it: that has no loop any more."""
    monkeypatch.setattr(coroutine_queue, "TURN_MAX_S", FOR_EVER_S)
    queue, problems = CoroutineTurns(), list[object]()
    monkeypatch.setattr(sys, "unraisablehook", problems.append)

    async def call() -> None:
        async with queue.next():
            await asyncio.sleep(FOR_EVER_S)

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # that tasks are thrown away, which is so
    calls = [loop.create_task(call()) for _ in range(3)]
    for _ in range(3):
        loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    coroutines = [one.get_coro() for one in calls]
    calls.clear()
    for coroutine in coroutines:
        coroutine.close()
    gc.collect()
    assert problems == []
