"""More of them: runs, of both kinds of functions, their handles, and workers."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import perdure
from perdure.agents import Agent
from perdure.aio import AsyncStore
from perdure.engine.control.run_handle import RunHandle
from perdure.engine.dispatch.worker import Worker
from perdure.store import Store
from perdure.types import WorkerEvent
from tests.faults.checking import State
from tests.faults.scenes import Call, begun, scene


@perdure.step
def double(n: int) -> int:
    return 2 * n


@perdure.tool(on_crash="retry")
def pay(n: int) -> str:
    return f"paid {n}"


@perdure.tool(on_crash="retry")
async def apay(n: int) -> str:
    await asyncio.sleep(0)
    return f"paid {n}"


@perdure.step
async def add(n: int) -> int:
    await asyncio.sleep(0)
    return n + 1


@perdure.agent(State)
def stepping(run: perdure.Run[State]) -> int:
    n = double(run.state.n)
    with run.edit("doubled") as draft:
        draft.n = n
    return n


@perdure.agent(State)
def paying(run: perdure.Run[State]) -> str:
    return pay(3)


@perdure.agent(State)
def asking(run: perdure.Run[State]) -> bool:
    return bool(run.ask("Go on?", timeout=timedelta(milliseconds=1), default=True))


@perdure.agent(State)
def hearing(run: perdure.Run[State]) -> Any:
    return run.wait_for("word")


@perdure.agent(State)
async def gathering(run: perdure.AsyncRun[State]) -> int:
    found = await asyncio.gather(*(add(n) for n in range(3)))
    async with run.edit("gathered") as draft:
        draft.n = sum(found)
    return sum(found)


@perdure.agent(State)
async def counting(run: perdure.AsyncRun[State]) -> int:
    first = run.state

    async def looks() -> None:
        for _ in range(2):
            await add(run.state.n)

    async def counts() -> None:
        for _ in range(2):
            async with run.edit("counted") as draft:
                draft.n += 1
                draft.items.append("counted")

    await asyncio.gather(looks(), counts())
    assert run.state is first
    return len(run.state.items)


def _run(store: Store, function: Any, agent: Agent[State], result: object) -> Call:
    def call() -> None:
        found = store.run(function, agent.id)
        assert found == result, f"{found!r} is not {result!r}"

    return call


@scene
def run_step(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    return agent, _run(store, stepping, agent, 4)


@scene
def run_tool(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    return agent, _run(store, paying, agent, "paid 3")


@scene
def run_ask(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    return agent, _run(store, asking, agent, True)


@scene
def run_signal(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    store.start(hearing, name).signal("word", 7)
    return agent, _run(store, hearing, agent, 7)


@scene
def run_gather(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)

    async def main() -> None:
        found = await AsyncStore(store).run(gathering, name)
        assert found == 6, found

    return agent, lambda: asyncio.run(main())


@scene
def run_edit_beside(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    before = len(agent.state.items)

    async def main() -> None:
        found = await AsyncStore(store).run(counting, name)
        assert found == before + 2, found

    return agent, lambda: asyncio.run(main())


@scene
def start_and_signal(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)

    def call() -> None:
        handle = store.start(hearing, name)
        handle.signal("word", 7)
        handle.cancel()

    return agent, call


@perdure.agent(State)
def asking_long(run: perdure.Run[State]) -> Any:
    return run.ask("Go on?")


def _waiting(store: Store, function: Any, name: str) -> RunHandle[Any]:
    """A run that a worker left where it waits."""

    def stop_at_waiting(event: WorkerEvent) -> None:
        if event.kind == "waiting":
            worker.stop()

    worker = Worker(store, [function], queues=[name], on_event=stop_at_waiting)
    handle = store.options(queue=name).start(function, name)
    worker.run(signals=False)
    return handle


@scene
def run_answer(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    handle = _waiting(store, asking_long, name)

    def call() -> None:
        if handle.questions():
            handle.answer(True, by="somebody")
        assert store.run(asking_long, name) is True

    return agent, call


@scene
def cancel(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    handle = _waiting(store, hearing, name)

    def call() -> None:
        if handle.status != "cancelled":
            handle.cancel("enough")
        assert handle.status == "cancelled"

    return agent, call


@perdure.agent(State)
def mapping(run: perdure.Run[State]) -> list[int]:
    return run.map(double, range(3), limit=2)


@perdure.agent(State)
def threading_(run: perdure.Run[State]) -> int:
    with run.executor(2) as threads:
        futures = [threads.submit(double, n) for n in range(3)]
    return sum(future.result() for future in futures)


@perdure.agent(State)
async def grouping(run: perdure.AsyncRun[State]) -> int:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(add(n)) for n in range(3)]
    return sum(task.result() for task in tasks)


@perdure.agent(State)
async def async_everything(run: perdure.AsyncRun[State]) -> int:
    """A step, a tool, an edit, a question, and calls side by side, by `map`."""
    n = await add(run.state.n)
    paid = await apay(n)
    async with run.edit("paid") as draft:
        draft.items.append(paid)
    await run.ask("Go on?", timeout=timedelta(milliseconds=1), default=True)
    found: list[int] = await run.map(add, range(3))
    return sum(found)


@perdure.tool(on_crash="retry", checkpoint=True)
def book(n: int) -> str:
    return f"booked {n}"


@perdure.agent(State)
def going_back(run: perdure.Run[State]) -> list[int]:
    """Each way back, a keyed edit, and a tool before which the state is named."""
    point = run.checkpoint("before")
    with run.edit("more", key="more", group="turn") as draft:
        draft.n += 10
    book(3)
    seen = [run.state.n]
    for move in (run.undo, run.redo):
        move()
        seen.append(run.state.n)
    run.rollback(point)
    return [*seen, run.state.n]


@perdure.agent(State)
async def going_back_async(run: perdure.AsyncRun[State]) -> list[int]:
    point = await run.checkpoint("before")
    async with run.edit("more", key="more") as draft:
        draft.n += 10
    seen = [run.state.n]
    await run.undo()
    seen.append(run.state.n)
    await run.redo()
    await asyncio.gather(run.rollback(point), add(1))
    return [*seen, run.state.n]


@perdure.agent(State)
def starting(run: perdure.Run[State]) -> int:
    child = run.options(queue=run.agent).start(stepping, f"{run.agent}-child")
    run.sleep(0.001)
    return int(child.result()) + int(run.random() < 2)


@scene
def run_map(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    return agent, _run(store, mapping, agent, [0, 2, 4])


@scene
def run_going_back(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    n = agent.state.n
    return agent, _run(store, going_back, agent, [n + 10, n, n + 10, n])


@scene
def run_going_back_async(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    n = agent.state.n
    return agent, _run_async(store, going_back_async, agent, [n + 10, n, n])


@scene
def run_executor(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    return agent, _run(store, threading_, agent, 6)


def _run_async(store: Store, function: Any, agent: Agent[State], result: object) -> Call:
    async def main() -> None:
        found = await AsyncStore(store).run(function, agent.id)
        assert found == result, found

    return lambda: asyncio.run(main())


@scene
def run_task_group(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    return agent, _run_async(store, grouping, agent, 6)


@scene
def run_async_everything(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    return agent, _run_async(store, async_everything, agent, 6)


def _to_do(store: Store, name: str) -> bool:
    return bool(store.runs(agent=name, status=["pending", "running", "waiting"]))


def worked_off(store: Store, worker: Worker, name: str) -> None:
    """A worker works until nothing of this agent's is left to do."""
    over = threading.Event()

    def stop() -> None:
        while _to_do(store, name) and not over.wait(0.002):
            pass
        worker.stop()

    # Not by what the worker tells: what comes in there is only logged.
    threading.Thread(target=stop, daemon=True).start()
    try:
        worker.run(signals=False)
    finally:
        over.set()


@scene
def run_worker(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    handle = store.options(queue=name).start(stepping, name)

    def call() -> None:
        worked_off(store, Worker(store, [stepping], queues=[name]), name)
        assert handle.result(0.0) == 4

    return agent, call


@scene
def run_worker_async(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    handle = store.options(queue=name).start(gathering, name)

    def call() -> None:
        worked_off(store, Worker(store, [gathering], queues=[name]), name)
        assert handle.result(0.0) == 6

    return agent, call


@scene
def run_child(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    begun(store, f"{name}-child", 1)
    handle = store.options(queue=name).start(starting, name)

    def call() -> None:
        worked_off(store, Worker(store, [starting, stepping], queues=[name]), name)
        assert handle.result(0.0) == 3

    return agent, call
