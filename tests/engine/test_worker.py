"""A worker runs what was asked for, and goes on with what waited."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import pytest

import perdure
from perdure.store import Store
from tests.engine.conftest import CrashError, Crashes, Place
from tests.engine.working import (
    BOUND_S,
    approval,
    double,
    doubling,
    gathering,
    wait_until,
    working,
)


def test_it_runs_what_was_started_before_and_after_it_began(store: Store) -> None:
    before = store.start(doubling, "a", 4)
    with working(store, doubling) as events:
        assert before.result(BOUND_S) == 8
        after = store.start(doubling, "b", 5)
        assert after.result(BOUND_S) == 10
        events.wait_for("done", after.id)
    assert events.kinds(after.id) == ["started", "done"]
    assert store.agent("b").state == {"n": 10}


def test_arguments_come_as_their_declared_types(store: Store, crash: Crashes) -> None:
    @perdure.agent(dict)
    def f(run: perdure.Run[dict], pause: timedelta, *, names: tuple[str, ...]) -> str:
        crash.note((pause, names))
        return "ok"

    with working(store, f):
        store.start(f, "a", timedelta(hours=1), names=("x", "y")).result(BOUND_S)
    assert crash.calls == [(timedelta(hours=1), ("x", "y"))]


def test_asynchronous_functions_share_one_event_loop_and_are_unloaded_too(store: Store) -> None:
    with working(store, gathering, limit=2) as events:
        handles = [store.start(gathering, f"a-{n}", 3) for n in range(4)]
        for handle in handles:
            events.wait_for("waiting", handle.id)
        loops = [t.name for t in threading.enumerate() if t.name == "perdure-worker-loop"]
        assert len(loops) == 1
        for handle in handles:
            handle.signal("more", 7)
        assert [handle.result(BOUND_S) for handle in handles] == [[0, 2, 4, 7]] * 4
    assert not [t.name for t in threading.enumerate() if t.name == "perdure-worker-loop"]


def test_a_waiting_run_is_in_no_workers_memory_and_another_worker_goes_on_with_it(
    place: Place,
) -> None:
    asking, first, second = place.open(), place.open(), place.open()
    handles = [asking.start(approval, f"a-{n}") for n in range(12)]
    one = perdure.Worker(first, [approval], limit=1)
    thread = threading.Thread(target=one.run)
    thread.start()
    wait_until(lambda: all(handle.status == "waiting" for handle in handles))
    wait_until(lambda: one.running == [])
    assert list(first.runner.wakeups._watches) == [None], "one watch for all that wait"
    assert [t for t in threading.enumerate() if t.name.startswith("perdure-run")] == []
    one.stop()
    thread.join(BOUND_S)
    with working(second, approval):
        for n, handle in enumerate(handles):
            handle.signal("approve", n)
        results = [handle.result(BOUND_S) for handle in handles]
    assert results == [f"approved by {n}" for n in range(12)]


def test_a_run_that_slept_is_woken_by_its_timer(store: Store) -> None:
    @perdure.agent(dict)
    def sleepy(run: perdure.Run[dict]) -> str:
        run.sleep(1.1)
        return "woke"

    with working(store, sleepy) as events:
        handle = store.start(sleepy, "a")
        assert handle.result(BOUND_S) == "woke"
        events.wait_for("done", handle.id)
    assert events.kinds(handle.id) == ["started", "waiting", "resumed", "done"]


def test_what_a_crashed_caller_left_goes_on_with_its_recorded_arguments(
    place: Place, crash: Crashes
) -> None:
    @perdure.agent(dict)
    def f(run: perdure.Run[dict], n: int) -> int:
        doubled = double(n)
        crash("after the step")
        return doubled + 1

    store = place.open()
    crash.arm("after the step")
    with pytest.raises(CrashError):
        store.run(f, "a", 4)
    with working(place.open(), f):
        assert store.handle("a/f/main").result(BOUND_S) == 9


def test_a_run_whose_arguments_were_not_stored_is_left_to_its_caller(
    place: Place, crash: Crashes
) -> None:
    @perdure.agent(dict)
    def f(run: perdure.Run[dict], client: object) -> str:
        crash("with a client")
        return "ok"

    store = place.open()
    client = threading.Lock()
    crash.arm("with a client")
    with pytest.raises(CrashError):
        store.run(f, "a", client)
    with working(place.open(), f) as events:
        events.wait_for("trouble", "a/f/main")
        time.sleep(0.7)
    assert events.kinds("a/f/main") == ["trouble"], "it is said once"
    assert store.run(f, "a", client) == "ok"


def test_runs_of_one_branch_come_one_after_the_other(store: Store) -> None:
    with working(store, approval, doubling) as events:
        first = store.start(approval, "a")
        events.wait_for("waiting", first.id)
        second = store.start(doubling, "a", 1)
        third = store.options(key="again").start(doubling, "a", 2)
        time.sleep(0.7)
        assert second.status == third.status == "pending"
        first.signal("approve", "me")
        assert second.result(BOUND_S) == 2 and third.result(BOUND_S) == 4
    assert [run.id for run in store.runs("a")] == [first.id, second.id, third.id]


def test_no_more_than_the_limit_at_a_time_and_those_that_wait_do_not_count(store: Store) -> None:
    at_once, most, lock = 0, 0, threading.Lock()

    @perdure.agent(dict)
    def busy(run: perdure.Run[dict]) -> str:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.1)
        with lock:
            at_once -= 1
        return "done"

    with working(store, busy, approval, limit=2) as events:
        waiting = [store.start(approval, f"w-{n}") for n in range(4)]
        for handle in waiting:
            events.wait_for("waiting", handle.id)
        for handle in [store.start(busy, f"a-{n}") for n in range(6)]:
            assert handle.result(BOUND_S) == "done"
    assert most == 2


def test_it_takes_its_own_queues_only(store: Store) -> None:
    with working(store, doubling, queues=("high", "low")):
        other = store.start(doubling, "a", 1)
        high = store.options(queue="high").start(doubling, "b", 2)
        low = store.options(queue="low").start(doubling, "c", 3)
        assert high.result(BOUND_S) == 4 and low.result(BOUND_S) == 6
        assert other.status == "pending"


def test_a_run_goes_on_with_the_code_of_its_version(store: Store) -> None:
    def defined(version: str) -> Any:
        @perdure.agent(dict, name="versioned", version=version)
        def versioned(run: perdure.Run[dict]) -> str:
            return f"{version} {run.wait_for('go')}"

        return versioned

    old = defined("1")
    handle = store.start(old, "a")
    with working(store, old) as events:
        events.wait_for("waiting", handle.id)
    new = defined("2")
    with working(store, new):
        handle.signal("go", "on")
        assert handle.result(BOUND_S) == "1 on"
        started = store.options(key="next").start(new, "b")
        started.signal("go", "on")
        assert started.result(BOUND_S) == "2 on"


def test_a_run_that_was_cancelled_before_it_began_never_begins(
    store: Store, crash: Crashes
) -> None:
    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> None:
        crash.note("called")

    handle = store.start(f, "a")
    handle.cancel("not wanted any more")
    assert handle.status == "cancelled", "nobody has to come for that"
    with working(store, f) as events:
        store.start(f, "b").result(BOUND_S)
    assert events.kinds(handle.id) == [] and crash.calls == ["called"]


def test_a_run_that_was_forked_goes_on_on_its_own_branch(place: Place, crash: Crashes) -> None:
    @perdure.step
    def look() -> int:
        crash.note("looked")
        return len(crash.calls)

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> int:
        first = double(4)
        found = look()
        with run.edit("looked") as draft:
            draft["found"] = first + found
        return first + found

    store = place.open()
    with working(place.open(), f):
        handle = store.start(f, "a")
        assert handle.result(BOUND_S) == 9
        forked = handle.fork("look#1", branch="what-if")
        assert forked.result(BOUND_S) == 10
    assert store.agent("a").state == {"found": 9}
    assert store.agent("a", branch="what-if").state == {"found": 10}


def test_two_functions_of_one_name_are_refused(store: Store) -> None:
    """The last one won, in silence: runs of the one were gone on with by the other's code."""

    def agents() -> tuple[Any, Any]:
        @perdure.agent(dict, name="order")
        def ours(run: perdure.Run[dict]) -> None: ...

        @perdure.agent(dict, name="order")
        async def theirs(run: perdure.AsyncRun[dict]) -> None: ...

        return ours, theirs

    ours, theirs = agents()
    with pytest.raises(ValueError, match=r"(?s)the name 'order'.*ours.*theirs.*another name="):
        perdure.Worker(store, [ours, theirs])
    assert perdure.Worker(store, [ours, ours]).functions == ["order"], "one, imported twice"

    @perdure.agent(dict, name="order", version="2")
    def new(run: perdure.Run[dict]) -> None: ...

    assert perdure.Worker(store, [ours, new]).functions == ["order"]
