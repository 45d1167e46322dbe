"""More of them: runs that steer those that they started, and whose time is counted."""

from __future__ import annotations

from typing import Any

import perdure
from perdure.agents import Agent
from perdure.engine.dispatch.worker import Worker
from perdure.errors import RunFailed
from perdure.model import UNFINISHED
from perdure.store import Store
from tests.faults.checking import State, WrongError
from tests.faults.control_scenes import ahearing
from tests.faults.run_scenes import hearing, worked_off
from tests.faults.scenes import Call, begun, scene


@perdure.agent(State)
def signalling(run: perdure.Run[State]) -> Any:
    child = run.options(queue=run.agent).start(hearing, f"{run.agent}-child")
    child.signal("word", 7)
    return child.result(), child.status


@perdure.agent(State)
async def asignalling(run: perdure.AsyncRun[State]) -> Any:
    child = await run.options(queue=run.agent).start(ahearing, f"{run.agent}-child")
    await child.signal("word", 7)
    return await child.result()


@perdure.agent(State)
def cancelling(run: perdure.Run[State]) -> str:
    child = run.options(queue=run.agent).start(hearing, f"{run.agent}-child")
    child.cancel("enough")
    try:
        return str(child.result())
    except RunFailed as error:
        return error.problem


@perdure.agent(State)
def impatient(run: perdure.Run[State]) -> Any:
    """The child is cancelled, as it takes too long."""
    child = run.options(queue=run.agent).start(hearing, f"{run.agent}-child")
    return child.result(timeout=0.001, default="late")


@perdure.agent(State)
def bounding(run: perdure.Run[State]) -> Any:
    """Its deadline passes on, and both have a limit."""
    options = run.options(queue=run.agent, time_limit=3000, deadline=3500)
    child = options.start(hearing, f"{run.agent}-child")
    child.signal("word", 7)
    run.sleep(0.001)
    return child.result()


def family(function: Any, below: Any, result: object, **options: Any) -> Any:
    """A scene of a run and of one that it starts."""

    def made(store: Store, name: str) -> tuple[Agent[State], Call]:
        agent = begun(store, name)
        begun(store, f"{name}-child", 1)
        handle = store.options(queue=name, **options).start(function, name)

        def call() -> None:
            worked_off(store, Worker(store, [function, below], queues=[name]), name)
            found = handle.result(0.0)
            assert found == result, found

        return agent, call

    return made


def add(name: str, made: Any) -> None:
    made.__name__ = name
    scene(made)


add("run_child_signalled", family(signalling, hearing, (7, "done")))
add("run_async_child_signalled", family(asignalling, ahearing, 7))
add("run_child_cancelled", family(cancelling, hearing, "was cancelled: enough"))
add("run_child_too_late", family(impatient, hearing, "late"))
add("run_child_in_time", family(bounding, hearing, 7, deadline=3600, time_limit=3600))


@scene
def run_in_time(store: Store, name: str) -> tuple[Agent[State], Call]:
    """A run with a limit is resumed: what it has taken is read, and noted."""
    agent = begun(store, name)

    def stop(event: Any) -> None:
        if event.kind == "waiting":
            worker.stop()

    worker = Worker(store, [hearing], queues=[name], on_event=stop)
    options = store.options(queue=name, time_limit=3600, deadline=3600)
    handle = options.start(hearing, name)
    worker.run(signals=False)

    def call() -> None:
        if handle.status in UNFINISHED:
            left = handle.why().time_left
            if left is None or not 3000 < left.total_seconds() <= 3600:
                raise WrongError(f"{left} is left")
            handle.signal("word", 7, key="k")
        assert store.run(hearing, name) == 7

    return agent, call


@perdure.agent(State)
def stuck(run: perdure.Run[State]) -> None:
    run.options(queue=run.agent).start(hearing, f"{run.agent}-child")
    run.wait_for("never")


@scene
def run_late(store: Store, name: str) -> tuple[Agent[State], Call]:
    """Its time is up while it waits: the run that it started ends with it."""
    agent = begun(store, name)
    begun(store, f"{name}-child", 1)
    limited: Any = store.options(queue=name, time_limit=0.05)

    def call() -> None:
        try:
            limited.run(stuck, name)
        except perdure.TimedOut:
            for child in store.runs(agent=f"{name}-child"):
                asked = store.handle(child.id).why().asked_to_end
                if child.status in UNFINISHED and asked is None:
                    raise WrongError(f"its child is {child.status}") from None

    return agent, call
