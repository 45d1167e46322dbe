"""Ending a run from outside: wherever it is, it leaves, and what it did stays in the ledger."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

import perdure
from perdure.engine.control import noting
from perdure.errors import Conflict, RunFailed
from perdure.model import AgentInfo
from perdure.replication import Migration, Moved
from perdure.store import Store
from tests.engine.conftest import CrashError, Crashes, Place
from tests.engine.waits import Background, commits, go, records, until, verify_all
from tests.simulation.house import Once


@pytest.fixture(autouse=True)
def rows_follow_from_the_log(place: Place) -> Iterator[None]:
    yield
    verify_all(place)


class Stage:
    """A run that is in the middle of something until it is let go."""

    def __init__(self) -> None:
        self.inside = threading.Event()
        self.go_on = threading.Event()
        self.noted: list[Any] = []

    def hold(self) -> str:
        self.inside.set()
        assert self.go_on.wait(60)
        return "held"


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_an_executing_run_leaves_at_a_step(place: Place, stage: Stage) -> None:
    """From another process, which cannot write while the executor has the run. The news of it may
    take a moment: with one step only, a run on a busy machine once ended before it came."""

    @perdure.tool
    def act() -> str:
        return stage.hold()

    @perdure.agent(dict)
    def acting(run: perdure.Run[dict]) -> None:
        try:
            act()
            stage.noted.append("acted")
            for number in count():
                run.call(str, number)
        finally:
            stage.noted.append("cleaned up")

    running = Background(lambda: place.open().run(acting, "a"))
    until(lambda: stage.inside.is_set() or running.ended)
    handle = place.open().handle("a/acting/main")
    handle.cancel("enough")
    assert handle.status == "running", "nothing is taken from under it"
    stage.go_on.set()
    with pytest.raises(RunFailed, match="was cancelled: enough"):
        running.join()
    assert stage.noted == ["acted", "cleaned up"]
    assert (handle.status, handle.info.problem) == ("cancelled", "enough")
    assert [effect.state for effect in handle.effects()] == ["done"]
    with pytest.raises(RunFailed, match="enough"):
        handle.result(timeout=0)
    with pytest.raises(Conflict, match="cancelled already"):
        handle.cancel()


@pytest.mark.parametrize("fails", [False, True])
def test_one_that_is_in_its_last_call_is_cancelled_where_it_ends(
    place: Place, stage: Stage, fails: bool
) -> None:
    """There was no boundary behind that call. Who had asked was told nothing, the run was done, and
    the child that was to end with it waited for ever."""

    @perdure.agent(dict)
    def child(run: perdure.Run[dict]) -> None:
        run.wait_for("never")

    @perdure.agent(dict)
    def last(run: perdure.Run[dict]) -> str:
        run.options(key="begun").start(child, "b")
        run.call(stage.hold)
        if fails:
            raise ValueError("its own")
        return "there"

    running = Background(lambda: place.open().run(last, "a"))
    until(lambda: stage.inside.is_set() or running.ended)
    store = place.open()
    go(store, child, "b", key="begun")
    handle = store.handle("a/last/main")
    handle.signal("unused", 1)
    handle.cancel("enough")
    stage.go_on.set()
    with pytest.raises(RunFailed, match="was cancelled: enough"):
        running.join()
    assert (handle.status, handle.info.problem) == ("cancelled", "enough")
    [end] = records(store, "a", "run-cancelled")
    assert [one["name"] for one in end["left"]] == ["unused"]
    with pytest.raises(RunFailed, match="with a/last/main"):
        go(store, child, "b", key="begun")


def test_what_catches_everything_does_not_keep_it(store: Store, stage: Stage) -> None:
    """A framework that reports every error to its model as the tool's answer went on for an hour
    with a run that was to end; so would a `finally` that calls another tool."""

    @perdure.agent(dict)
    def stubborn(run: perdure.Run[dict]) -> str:
        run.call(stage.hold)
        for _ in range(3):
            try:
                run.call(str, 1)
            except BaseException as error:
                stage.noted.append(type(error).__name__)
        try:
            return "all is well"
        finally:
            with pytest.raises(perdure.RunInterrupted), run.edit("in the end") as draft:
                draft["n"] = 1

    running = Background(lambda: store.run(stubborn, "a"))
    until(lambda: stage.inside.is_set() or running.ended)
    store.handle("a/stubborn/main").cancel()
    stage.go_on.set()
    with pytest.raises(RunFailed, match="by request"):
        running.join()
    assert stage.noted == ["RunInterrupted"] * 3
    assert store.agent("a").state == {}


def test_one_that_waits_is_ended_at_once_and_by_nobodys_help(place: Place) -> None:
    @perdure.agent(dict)
    def waiting(run: perdure.Run[dict]) -> Any:
        return run.wait_for("s")

    go(place.open(), waiting)
    place.close()
    handle = place.open().handle("a/waiting/main")
    handle.cancel("enough")
    info = handle.info
    assert (info.status, info.waits, info.wake_at_micros, info.problem) == (
        "cancelled",
        "",
        0,
        "enough",
    )
    store = place.open()
    assert store.runner._context.backend.inbox() == []
    with pytest.raises(RunFailed, match="enough"):
        go(store, waiting)
    assert store.options(key="2").start(waiting, "a").status == "pending"


def test_one_that_waits_is_ended_beside_others_who_write(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edit came between the look at the branch and the commit of the end. That was taken for an
    executor which would hear of it: without a worker, the run waited on."""

    @perdure.agent(dict)
    def waiting(run: perdure.Run[dict]) -> None:
        run.wait_for("never")

    go(place.open(), waiting)
    place.close()
    store = place.open()
    run = store.handle("a/waiting/main")
    edits = iter(range(2))
    cancellation = noting.cancellation

    def beside(id: str, why: str) -> Any:
        make = cancellation(id, why)

        def noted(info: Any) -> Any:
            if (n := next(edits, None)) is not None:
                store.agent("a").update(lambda draft: draft.update(n=n))
            return make(info)

        return noted

    monkeypatch.setattr("perdure.engine.control.run_handle.cancellation", beside)
    run.cancel("no longer needed")
    assert run.status == "cancelled"
    assert store.agent("a").state == {"n": 1}


def test_one_whose_agent_is_on_its_way_elsewhere_is_ended_there(place: Place) -> None:
    """`cancel` raised that nothing was written, since its agent had moved. But the message was,
    and went after it: at the new place the run was cancelled all the same."""

    @perdure.agent(dict)
    def waiting(run: perdure.Run[dict]) -> Any:
        return run.wait_for("s")

    store = place.open()
    go(store, waiting)
    here, info = store.runner._context.backend, store.find("a")
    assert info is not None
    with perdure.open("memory://") as target:
        there = target.runner._context.backend

        class Late(Migration):
            def move(self, info: AgentInfo) -> Moved | None:
                stand = here.stand

                def closed(*args: Any, **more: Any) -> None:
                    stand(*args, **more)
                    del here.stand
                    store.handle("a/waiting/main").cancel("enough")

                here.stand = closed  # type: ignore[method-assign]
                return super().move(info)

        Late(here, there).run()
        Once(target, [waiting]).look_once()
        assert target.handle("a/waiting/main").status == "cancelled"


def test_one_that_has_not_begun_does_not_begin(store: Store, stage: Stage) -> None:
    @perdure.agent(dict)
    def acting(run: perdure.Run[dict]) -> None:
        stage.noted.append("began")

    handle = store.start(acting, "a")
    handle.cancel("changed my mind")
    with pytest.raises(RunFailed, match="changed my mind"):
        store.run(acting, "a")
    assert stage.noted == [] and handle.status == "cancelled"
    assert [c.cause.kind for c in commits(store)] == ["create", "run-cancelled"]
    assert [one["t"] for one in records(store, "a")] == ["run-started", "run-cancelled"]


def test_one_whose_process_died_is_ended(place: Place, crash: Crashes) -> None:
    @perdure.tool
    def act() -> None:
        crash("acting")

    @perdure.agent(dict)
    def acting(run: perdure.Run[dict]) -> None:
        act()

    store = place.open()
    crash.arm("acting")
    with pytest.raises(CrashError):
        store.run(acting, "a")
    store.close()
    handle = place.open().handle("a/acting/main")
    handle.cancel("enough")
    assert handle.status == "cancelled"
    assert [effect.state for effect in handle.effects()] == ["in doubt"], "still to be found out"


def test_it_is_heard_while_the_run_waits_in_place(store: Store) -> None:
    """Two threads of the run wait, which cannot be unloaded: they looked for signals only."""

    @perdure.agent(dict)
    def waiting(run: perdure.Run[dict]) -> list[Any]:
        return run.map(run.wait_for, ["a", "b"])

    running = Background(lambda: store.run(waiting, "a"))
    until(lambda: len(records(store, kind="wait-began")) == 2 if store.runs() else None)
    store.handle("a/waiting/main").cancel("enough")
    with pytest.raises(RunFailed, match="enough"):
        running.join()


def test_asked_for_twice_it_is_cancelled_once(store: Store, stage: Stage) -> None:
    @perdure.agent(dict)
    def acting(run: perdure.Run[dict]) -> None:
        run.call(stage.hold)
        run.call(str, 1)

    running = Background(lambda: store.run(acting, "a"))
    until(lambda: stage.inside.is_set() or running.ended)
    handle = store.handle("a/acting/main")
    for why in ("first", "second"):
        handle.cancel(why)
    stage.go_on.set()
    with pytest.raises(RunFailed, match="first"):
        running.join()
    assert len(records(store, kind="run-cancelled")) == 1
    assert store.runner._context.backend.inbox() == []


def test_one_that_was_set_back_can_be_cancelled_again(store: Store, stage: Stage) -> None:
    """Somebody retried a run that had been cancelled, saw that it did the wrong thing, and
    cancelled it again. That was taken for the same message, which had come already: nobody said so,
    and the run did all of it."""

    @perdure.agent(dict)
    def acting(run: perdure.Run[dict]) -> str:
        run.wait_for("go")
        run.call(stage.hold)
        run.call(stage.noted.append, "acted")
        return "done"

    go(store, acting)
    handle = store.handle("a/acting/main")
    for _ in range(2):
        handle.cancel("a mistake")
        handle.retry("wait_for:go#1")
    handle.signal("go")
    running = Background(lambda: store.run(acting, "a"))
    until(lambda: stage.inside.is_set() or running.ended)
    handle.cancel("once more")
    stage.go_on.set()
    with pytest.raises(RunFailed, match="once more"):
        running.join()
    assert (handle.status, stage.noted) == ("cancelled", [])
    assert store.runner._context.backend.inbox() == []


def test_what_it_waited_to_record_is_not_lost(store: Store, stage: Stage) -> None:
    @perdure.agent(dict)
    def acting(run: perdure.Run[dict]) -> None:
        run.call(stage.hold)
        run.random()
        run.call(str, 1)

    running = Background(lambda: store.run(acting, "a"))
    until(lambda: stage.inside.is_set() or running.ended)
    store.handle("a/acting/main").cancel()
    stage.go_on.set()
    with pytest.raises(RunFailed):
        running.join()
    assert len(records(store, kind="value")) == 1


# -- asynchronous ------------------------------------------------------------------------------


def test_an_asynchronous_run_leaves_at_once(place: Place, stage: Stage) -> None:
    """It awaited a model's answer for minutes, for a run that nobody wanted any more."""

    @perdure.agent(dict)
    async def acting(run: perdure.AsyncRun[dict]) -> None:
        async def for_ever() -> None:
            stage.inside.set()
            await asyncio.sleep(3600)

        async def calling() -> None:
            await run.call(for_ever)

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(for_ever())
                group.create_task(calling())
        except* Exception as caught:
            stage.noted.append(caught)
        finally:
            stage.noted.append("cleaned up")

    async def main() -> None:
        async with perdure.open_async(place.url, durability="os") as store:
            running = asyncio.ensure_future(store.run(acting, "a"))
            while not stage.inside.is_set() and not running.done():
                await asyncio.sleep(0.01)
            handle = await store.handle("a/acting/main")
            await handle.cancel("enough")
            with pytest.raises(RunFailed, match="enough"):
                await asyncio.wait_for(running, 60)
            assert await handle.status() == "cancelled"

    asyncio.run(main())
    assert stage.noted == ["cleaned up"]


def test_an_asynchronous_function_that_catches_cancellation_is_cancelled_all_the_same(
    place: Place, stage: Stage
) -> None:
    @perdure.agent(dict)
    async def acting(run: perdure.AsyncRun[dict]) -> str:
        try:
            stage.inside.set()
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            stage.noted.append("caught")
        try:
            await run.call(str, 1)
        except BaseException as error:
            stage.noted.append(type(error).__name__)
        return "all is well"

    async def main() -> None:
        async with perdure.open_async(place.url, durability="os") as store:
            running = asyncio.ensure_future(store.run(acting, "a"))
            while not stage.inside.is_set() and not running.done():
                await asyncio.sleep(0.01)
            await (await store.handle("a/acting/main")).cancel("enough")
            with pytest.raises(RunFailed, match="enough"):
                await asyncio.wait_for(running, 60)

    asyncio.run(main())
    assert stage.noted == ["caught", "RunInterrupted"]
