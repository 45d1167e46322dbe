"""`Worker(lifespan=…)`: what lives as long as a worker, and is reached by what it executes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

import perdure
from perdure.errors import OutsideRun
from tests.engine.conftest import Place

told: list[str] = []


@pytest.fixture(autouse=True)
def nothing_told() -> None:
    told.clear()


@contextmanager
def pools() -> Iterator[str]:
    told.append("open")
    yield "a pool"
    told.append("close")


@asynccontextmanager
async def pools_async() -> AsyncIterator[Any]:
    async with asyncio.TaskGroup():
        told.append("open")
        yield asyncio.get_running_loop()
        told.append("close")


@perdure.resource
def connection() -> Iterator[str]:
    yield f"a connection of {perdure.lifespan()}"
    told.append("connection closed")


@perdure.step
def use() -> str:
    return f"{perdure.lifespan()}, {connection.get()}"


@perdure.agent(dict)
def act(run: perdure.Run[dict]) -> list[str]:
    return [use(), *run.map(lambda _: str(perdure.lifespan()), range(2))]


@perdure.step
async def use_async() -> bool:
    return perdure.lifespan() is asyncio.get_running_loop()


@perdure.agent(dict)
async def act_async(run: perdure.AsyncRun[dict]) -> list[bool]:
    return list(await asyncio.gather(use_async(), use_async()))


def test_its_value_is_there_for_runs_and_their_resources(place: Place) -> None:
    store = place.open()
    worker = perdure.Worker(store, [act], lifespan=pools)
    for turn in range(2):  # a worker may work again
        thread = threading.Thread(target=worker.run)
        thread.start()
        handle = store.start(act, f"a{turn}")
        assert handle.result(timeout=60) == [
            "a pool, a connection of a pool",
            "a pool",
            "a pool",
        ]
        worker.stop()
        thread.join(60)
    assert told == ["open", "connection closed", "close"] * 2


def test_an_async_one_lives_in_the_loop_of_the_runs(place: Place) -> None:
    """A pool belongs to its event loop: made in another one, it could not be used."""
    store = place.open()
    worker = perdure.Worker(store, [act_async], lifespan=pools_async)
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert store.start(act_async, "a").result(timeout=60) == [True, True]
    worker.stop()
    thread.join(60)
    assert told == ["open", "close"]


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("when", ["begin", "end"])
def test_what_fails_in_it_ends_the_worker_with_that(place: Place, kind: str, when: str) -> None:
    @contextmanager
    def failing() -> Iterator[None]:
        if when == "begin":
            raise ConnectionError("no pool")
        yield
        raise ConnectionError("no pool")

    @asynccontextmanager
    async def failing_async() -> AsyncIterator[None]:
        with failing():
            yield

    store = place.open()
    made: Any = failing if kind == "sync" else failing_async
    worker = perdure.Worker(store, [act], lifespan=made)
    worker.stop()
    if when == "begin":
        with pytest.raises(ConnectionError, match="no pool"):
            worker.run()
        return
    failed: list[BaseException] = []

    def run() -> None:
        try:
            worker.run()
        except ConnectionError as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert not thread.is_alive() and len(failed) == 1


def test_it_is_left_when_its_runs_are(place: Place) -> None:
    """The pool was closed while a run was still in a step that used it."""
    store = place.open()
    begun, go = threading.Event(), threading.Event()

    @perdure.step
    def hold() -> None:
        begun.set()
        assert go.wait(60)
        told.append("step over")

    @perdure.agent(dict)
    def holding(run: perdure.Run[dict]) -> None:
        hold()

    worker = perdure.Worker(store, [holding], lifespan=pools)
    thread = threading.Thread(target=worker.run)
    thread.start()
    store.start(holding, "a")
    assert begun.wait(60)
    worker.stop()
    go.set()
    thread.join(60)
    assert told == ["open", "step over", "close"]


def test_without_a_worker_there_is_none(place: Place) -> None:
    @perdure.agent(dict)
    def alone(run: perdure.Run[dict]) -> Any:
        with pytest.raises(OutsideRun, match="no worker with a lifespan"):
            perdure.lifespan()
        return perdure.lifespan("none")

    assert place.open().run(alone, "a") == "none"


def test_what_is_no_lifespan_is_refused(place: Place) -> None:
    store = place.open()
    with pytest.raises(TypeError, match="lifespan="):
        perdure.Worker(store, [act], lifespan=pools())  # type: ignore[arg-type]
    worker = perdure.Worker(store, [act], lifespan=lambda: 7)  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match="is no context manager"):
        worker.run()
