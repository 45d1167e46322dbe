"""What a new version of a program does to the runs that are under way: nothing that cannot be put
right by the next version."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure.engine.execution.current_run import current
from perdure.errors import NeedsAttention
from perdure.store import Store
from tests.engine.conftest import Async, CrashError, Crashes
from tests.engine.working import BOUND_S, wait_until, working

charged: list[int] = []


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    charged.clear()
    caplog.set_level(logging.CRITICAL, "perdure")


@perdure.tool
def charge(cents: int) -> int:
    charged.append(cents)
    return cents


def sync_order(begin: Callable[[], None]) -> Any:
    @perdure.agent(dict, name="order")
    def order(run: perdure.Run[dict]) -> str:
        begin()
        charge(5)
        return f"sent {run.wait_for('shipped')}"

    return order


def async_order(begin: Callable[[], None]) -> Any:
    @perdure.agent(dict, name="order")
    async def order(run: perdure.AsyncRun[dict]) -> str:
        begin()
        await run.call(charge, 5)
        return f"sent {await run.wait_for('shipped')}"

    return order


def fine() -> None: ...


def bad() -> None:
    raise NameError("name 'confg' is not defined")


@pytest.mark.parametrize("order", [sync_order, async_order])
def test_a_deploy_that_raises_fails_no_run_that_waits(store: Store, order: Any) -> None:
    """A function with an error on its first line ended every waiting run as failed, for good: what
    they had recorded and waited for was lost with one bad deploy."""
    with working(store, order(fine)) as events:
        handle = store.start(order(fine), "a")
        events.wait_for("waiting", handle.id)
    with working(store, order(bad)) as events:
        handle.signal("shipped", "by train")
        events.wait_for("needs_attention", handle.id)
    problem = str(handle.info.problem)
    assert "raised NameError: name 'confg' is not defined" in problem
    assert "where it had recorded tool charge#1(cents=5)" in problem
    assert "put the old code back" in problem
    handle.resume()
    with working(store, order(fine)):
        assert handle.result(BOUND_S) == "sent by train"
    assert charged == [5]


def test_an_error_behind_all_that_is_recorded_is_the_functions_own(
    store: Store, crash: Crashes
) -> None:
    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> None:
        charge(7)
        crash("before the end")
        raise ValueError("no such invoice")

    crash.arm("before the end")
    with pytest.raises(CrashError):
        store.run(f, "a")
    with pytest.raises(ValueError, match="no such invoice"):
        store.run(f, "a")
    assert store.handle("a/f/main").status == "failed" and charged == [7]


def test_an_async_function_that_raises_cancels_its_tasks_and_fails(
    runs: Async, crash: Crashes, fetch: Any
) -> None:
    """What its other tasks had recorded is nothing that it did not come to."""

    async def twice() -> None:
        await fetch("a")
        await fetch("b", 30.0)

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> None:
        import asyncio

        other = asyncio.create_task(twice())
        await fetch("c", 0.02)
        crash("in the middle")
        assert not other.done()
        raise ValueError("that is all")

    crash.arm("in the middle")
    runs.crash(act)
    with pytest.raises(ValueError, match="that is all"):
        runs.run(act)
    assert runs.info().status == "failed"


# -- draining --------------------------------------------------------------------------------------


class Beats:
    """What is under way shows that it lives, once the worker has been told to end."""

    def __init__(self) -> None:
        self.inside = threading.Event()
        self.begun = 0

    def __call__(self) -> int:
        self.begun += 1
        self.inside.set()
        frame = current()
        assert frame is not None and frame.run is not None
        run = frame.run
        wait_until(lambda: run.asked_to_stop is not None)
        perdure.heartbeat({"moved": 2})
        perdure.heartbeat()
        return self.begun


def sync_mover(move: Any) -> Any:
    @perdure.agent(dict, name="mover")
    def mover(run: perdure.Run[dict]) -> Any:
        moved = move()
        run.call(abs, 1)
        return moved

    return mover


def async_mover(move: Any) -> Any:
    @perdure.agent(dict, name="mover")
    async def mover(run: perdure.AsyncRun[dict]) -> Any:
        moved = await run.call(move)
        await run.call(abs, 1)
        return moved

    return mover


@pytest.mark.parametrize("mover", [sync_mover, async_mover])
@pytest.mark.parametrize("kind", [perdure.step, perdure.tool])
def test_a_call_that_is_under_way_comes_to_its_end_before_a_worker_ends(
    store: Store, mover: Any, kind: Any
) -> None:
    """`heartbeat` raised as soon as its worker was told to end: every rolling restart left a tool
    in doubt that did what one is told to do, and show that it lives."""
    beats = Beats()
    function = mover(kind(name="move")(beats))
    with working(store, function) as events:
        handle = store.start(function, "a")
        assert beats.inside.wait(BOUND_S)
    assert "left" in events.kinds(handle.id)
    assert [effect.state for effect in handle.effects()] == ["done"] * (kind is perdure.tool)
    with working(store, function):
        assert handle.result(BOUND_S) == 1
    assert beats.begun == 1


@pytest.mark.parametrize("kind", [perdure.step, perdure.tool])
def test_a_step_may_end_early_when_its_run_is_cancelled_and_a_tool_does_not(
    store: Store, kind: Any
) -> None:
    """A tool was left in doubt by whoever cancelled its run, whatever it had done."""
    ended: list[str] = []
    inside = threading.Event()

    @kind(name="work")
    def work() -> None:
        inside.set()
        frame = current()
        assert frame is not None and frame.run is not None
        run = frame.run
        wait_until(lambda: run.context.backend.inbox(run.id, kind="cancel"))
        run.news()
        perdure.heartbeat("so far")
        ended.append("by itself")

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> None:
        work()
        run.call(abs, 1)

    handle = store.start(f, "a")
    with working(store, f) as events:
        assert inside.wait(BOUND_S)
        handle.cancel("not wanted")
        events.wait_for("cancelled", handle.id)
    if kind is perdure.tool:
        assert ended == ["by itself"]
        assert [effect.state for effect in handle.effects()] == ["done"]
    else:
        assert ended == []


# -- runs inside of runs ---------------------------------------------------------------------------


def inner_of(crash: Crashes) -> Any:
    @perdure.tool
    def pay(cents: int) -> int:
        crash("while paying")
        return cents

    @perdure.agent(dict)
    def inner(run: perdure.Run[dict]) -> int:
        return pay(1)

    return inner


@pytest.mark.parametrize("as_step", [True, False])
def test_a_run_inside_of_a_run_that_is_put_right_does_not_stop_the_outer_for_good(
    store: Store, crash: Crashes, as_step: bool
) -> None:
    """That the inner one needed attention was recorded as the outer one's error: settling the inner
    did not help, the outer one stopped again at each try, or had failed."""
    inner = inner_of(crash)

    @perdure.agent(dict)
    def outer(run: perdure.Run[dict]) -> Any:
        return run.call(store.run, inner, "in") if as_step else store.run(inner, "in")

    crash.arm("while paying")
    with pytest.raises(CrashError):
        store.run(outer, "out")
    handle = store.handle("out/outer/main")
    with pytest.raises(NeedsAttention, match=r"pay#1"):
        store.run(outer, "out")
    assert handle.status == "needs_attention"
    store.handle("in/inner/main").settle("pay#1", done=1)
    assert store.run(outer, "out") == 1


def test_an_async_step_that_asks_for_attention_is_made_again(runs: Async, crash: Crashes) -> None:
    """As above: the step had failed for good, and the run with it."""
    right: list[bool] = []

    @perdure.step(retry=3)
    async def look() -> str:
        crash.note("looked")
        if not right:
            raise NeedsAttention("the scale is not level", hint="level it")
        return "level"

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        return await look()

    for _ in range(2):
        with pytest.raises(NeedsAttention, match="the scale is not level"):
            runs.run(act)
        assert runs.info().status == "needs_attention"
    assert len(crash.calls) == 2, "it is for a person, and not for another attempt"
    right.append(True)
    assert runs.run(act) == "level"


def test_a_tool_that_asks_for_attention_is_in_doubt(store: Store, crash: Crashes) -> None:
    """As above; but what a tool did before that, nobody knows."""

    @perdure.tool
    def send() -> str:
        raise NeedsAttention("the printer is out of paper")

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> str:
        return send()

    with pytest.raises(NeedsAttention, match="out of paper"):
        store.run(f, "a")
    handle = store.handle("a/f/main")
    assert [effect.state for effect in handle.effects()] == ["in doubt"]
    with pytest.raises(NeedsAttention, match="nobody knows whether it took effect"):
        store.run(f, "a")
    handle.settle("send#1", done="printed")
    assert store.run(f, "a") == "printed"


@pytest.mark.parametrize("raises", [True, False])
def test_what_wrong_code_noted_is_not_held_against_the_right_one(
    store: Store, crash: Crashes, raises: bool
) -> None:
    """The time that the wrong code asked for in a thread of its own was committed along with the
    stop: the right code did not come to that, and was the wrong one now, for good."""

    @perdure.agent(dict, name="f")
    def right(run: perdure.Run[dict]) -> int:
        found = charge(3)
        crash("end")
        return found

    @perdure.agent(dict, name="f")
    def wrong(run: perdure.Run[dict]) -> int:
        run.map(lambda _: run.now(), [1])
        if raises:
            raise KeyError("confg")
        return 0

    crash.arm("end")
    with pytest.raises(CrashError):
        store.run(right, "a")
    with pytest.raises(NeedsAttention, match=r"where it had recorded tool charge#1"):
        store.run(wrong, "a")
    assert store.run(right, "a") == 3
