"""Workers on threads of a test's own process, and functions for them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import perdure
from perdure.store import Store

BOUND_S = 30.0


def wait_until(true: Callable[[], object]) -> None:
    until = time.monotonic() + BOUND_S
    while not true():
        assert time.monotonic() < until, "it does not come to that"
        time.sleep(0.01)


class Events(list[perdure.types.WorkerEvent]):
    """What a worker said that it did."""

    def kinds(self, run: str = "") -> list[str]:
        return [event.kind for event in self if event.run == run]

    def wait_for(self, kind: str, run: str = "") -> None:
        wait_until(lambda: kind in self.kinds(run))


@contextmanager
def working(store: Store, *functions: Any, **more: Any) -> Iterator[Events]:
    """A worker on a thread of this process; drained in the end."""
    events = Events()
    one = perdure.Worker(store, functions, on_event=events.append, **more)
    thread = threading.Thread(target=one.run)
    thread.start()
    try:
        yield events
    finally:
        one.stop()
        thread.join(BOUND_S)
    assert not thread.is_alive(), "it does not drain"
    assert one.running == []
    assert events.kinds()[-1] == "stopped"


@perdure.step
def double(n: int) -> int:
    return n * 2


@perdure.agent(dict)
def doubling(run: perdure.Run[dict], n: int) -> int:
    doubled = double(n)
    with run.edit("doubled") as draft:
        draft["n"] = doubled
    return doubled


@perdure.agent(dict)
def approval(run: perdure.Run[dict]) -> str:
    return "approved by " + str(run.wait_for("approve"))


@perdure.agent(dict)
def failing(run: perdure.Run[dict]) -> None:
    raise ValueError("no such invoice")


@perdure.agent(dict)
async def gathering(run: perdure.AsyncRun[dict], n: int) -> list[int]:
    async def one(i: int) -> int:
        return await run.call(double, i)

    found = await asyncio.gather(*(one(i) for i in range(n)))
    return [*found, await run.wait_for("more")]
