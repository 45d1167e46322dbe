"""More of them: runs that are steered from outside, set back, forked, and gone over again."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import perdure
from perdure.agents import Agent
from perdure.aio import AsyncStore
from perdure.engine.control.run_handle import RunHandle
from perdure.engine.dispatch.worker import Worker
from perdure.errors import Conflict, NeedsAttention
from perdure.store import Store
from tests.faults.checking import State
from tests.faults.run_scenes import (
    _run_async,
    _waiting,
    add,
    apay,
    asking_long,
    double,
    hearing,
    pay,
    stepping,
    worked_off,
)
from tests.faults.scenes import Call, begun, scene

UNFINISHED = ("pending", "running", "waiting", "needs_attention")


class Away(BaseException):
    """Leaves a function as a crash would, where it is ready to be left."""


leaves: set[str] = set()
"""The agents whose runs are to be left once."""


def leave_once(name: str) -> None:
    if name in leaves:
        leaves.discard(name)
        raise Away


def left(store: Store, function: Any, name: str) -> RunHandle[Any]:
    """A run that was left where it calls `leave_once`: who runs it goes over what is recorded."""
    leaves.add(name)
    with suppress(Away):
        store.run(function, name)
    return store.handle(store.runs(agent=name)[-1].id)


@perdure.tool(on_crash="ask")
def doubtful(agent: str) -> str:
    leave_once(agent)
    return "paid"


@perdure.agent(State)
def doubting(run: perdure.Run[State]) -> str:
    return doubtful(run.agent)


def in_doubt(store: Store, name: str) -> tuple[Agent[State], perdure.RunHandle[Any]]:
    """An agent whose run stopped, as nobody knows what became of a call."""
    agent = begun(store, name)
    handle = left(store, doubting, name)
    with suppress(NeedsAttention):
        store.run(doubting, name)
    return agent, handle


@scene
def run_settle(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent, handle = in_doubt(store, name)

    def call() -> None:
        if handle.status == "needs_attention":
            handle.settle("doubtful#1", done="said so", by="somebody")
        assert store.run(doubting, name) == "said so"

    return agent, call


@scene
def run_resume(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent, handle = in_doubt(store, name)

    def call() -> None:
        if handle.status == "needs_attention":
            handle.resume()
        handle.why()
        handle.report()
        assert handle.effects()[0].open

    return agent, call


@perdure.agent(State)
def going_over(run: perdure.Run[State]) -> int:
    n = double(1)
    paid = pay(n)
    with run.edit("paid") as draft:
        draft.items.append(paid)
    n += double(n) + int(run.random() < 2)
    leave_once(run.agent)
    return n + sum(run.map(double, range(3), limit=2)) + len(run.state.items)


@scene
def run_again_behind_a_crash(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    left(store, going_over, name)

    def call() -> None:
        assert store.run(going_over, name) == 16

    return agent, call


@perdure.agent(State)
async def agoing_over(run: perdure.AsyncRun[State]) -> int:
    first = run.state
    found = await asyncio.gather(*(add(n) for n in range(3)))
    paid = await apay(1)
    async with run.edit("paid") as draft:
        draft.items.append(paid)
    await asyncio.gather(add(run.state.n), _edits(run))
    leave_once(run.agent)
    more: list[int] = await run.map(add, range(3))
    assert run.state is first
    return sum(found) + sum(more) + len(run.state.items)


async def _edits(run: perdure.AsyncRun[State]) -> None:
    async with run.edit("beside") as draft:
        draft.items.append("beside")


@scene
def run_async_again_behind_a_crash(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)

    async def main() -> None:
        await AsyncStore(store).run(agoing_over, name)

    leaves.add(name)
    with suppress(Away):
        asyncio.run(main())
    return agent, _run_async(store, agoing_over, agent, 16)


@scene
def run_retry(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    store.run(stepping, name)
    handle = store.handle(store.runs(agent=name)[-1].id)

    def call() -> None:
        if handle.status == "done":
            handle.retry("double#1", effects="live")
        assert store.run(stepping, name) == 4

    return agent, call


@scene
def run_fork(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    store.run(stepping, name)
    handle = store.handle(store.runs(agent=name)[-1].id)

    def call() -> None:
        with suppress(Conflict):  # it is there: of the time before
            handle.fork("double#1", branch="side", key="forked", effects="live")
        assert store.options(key="forked").run(stepping, name) == 4
        assert agent.branch("side").state.n == 4

    return agent, call


@perdure.agent(State)
def turning(run: perdure.Run[State], turns: int) -> Any:
    with run.edit("turn") as draft:
        draft.items.append(f"turn {turns}")
    run.progress("on its way", 0.5)
    return run.again(turns - 1) if turns > 1 else double(turns)


@scene
def run_turns(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)

    def call() -> None:
        assert store.run(turning, name, 3) == 2
        assert store.agent(name, State).state.items[-3:] == ["turn 3", "turn 2", "turn 1"]

    return agent, call


@perdure.agent(State)
def choosing(run: perdure.Run[State]) -> Any:
    found = run.select(word=perdure.Signal("word"), late=perdure.Timer(3600))
    return found.name, found.value


@scene
def run_select(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    store.start(choosing, name).signal("word", 7)

    def call() -> None:
        assert tuple(store.run(choosing, name)) == ("word", 7)

    return agent, call


@scene
def run_ended_by_a_move(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    handle = _waiting(store, hearing, name)

    def call() -> None:
        if handle.status != "cancelled":
            agent.rollback(2, cancel_run=True)
        assert handle.status == "cancelled"

    return agent, call


@perdure.agent(State)
async def ahearing(run: perdure.AsyncRun[State]) -> Any:
    return await run.wait_for("word")


@scene
def run_async_steered(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)

    async def main() -> None:
        other = AsyncStore(store)
        handle = await other.start(ahearing, name)
        if await handle.status() in UNFINISHED:
            await handle.signal("word", 7, key="k")
        assert await other.run(ahearing, name) == 7
        assert await handle.result(0.0) == 7

    return agent, lambda: asyncio.run(main())


@scene
def run_async_answer(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    handle = _waiting(store, asking_long, name)

    async def main() -> None:
        other = await AsyncStore(store).handle(handle.id)
        if await other.questions():
            await other.answer(True, by="somebody")
        worked_off(store, Worker(store, [asking_long], queues=[name]), name)
        assert await other.result(0.0) is True

    return agent, lambda: asyncio.run(main())


@perdure.agent(State)
async def astarting(run: perdure.AsyncRun[State]) -> int:
    child = await run.options(queue=run.agent).start(stepping, f"{run.agent}-child")
    return int(await child.result()) + 1


@scene
def run_async_child(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    begun(store, f"{name}-child", 1)
    handle = store.options(queue=name).start(astarting, name)

    def call() -> None:
        worked_off(store, Worker(store, [astarting, stepping], queues=[name]), name)
        assert handle.result(0.0) == 3

    return agent, call


def saver_scene(body: Any) -> Any:
    """Of a function of a saver on a thread of two checkpoints, and of that thread's name."""

    def made(store: Store, name: str) -> tuple[Agent[State], Call]:
        from perdure.integrations.langgraph import PerdureSaver
        from tests.faults.framework_scenes import VERSIONS, checkpoint, config

        agent = begun(store, name)
        saver = PerdureSaver(store)
        at = saver.put(config(name), checkpoint(), {"step": 1}, VERSIONS)
        saver.put_writes(at, [("messages", "two")], "task")
        saver.put(at, checkpoint(2), {"step": 2}, {"n": "2"})
        return agent, lambda: body(saver, name)

    made.__name__ = body.__name__
    return scene(made)


@saver_scene
def saver_copy(saver: Any, name: str) -> None:
    from tests.faults.framework_scenes import config

    saver.delete_thread(f"{name}-other-thread")
    saver.copy_thread(f"{name}-thread", f"{name}-other-thread")
    assert [one.metadata["step"] for one in saver.list(config(f"{name}-other"))] == [2, 1]


@saver_scene
def saver_prune(saver: Any, name: str) -> None:
    from tests.faults.framework_scenes import config

    saver.prune([f"{name}-thread"])
    assert [one.metadata["step"] for one in saver.list(config(name))] == [2]
    assert saver.get_tuple(config(name)).checkpoint["channel_values"]["n"] == 2
