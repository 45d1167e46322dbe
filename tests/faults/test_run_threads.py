"""What an exception left behind once where a run has threads of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import as_completed
from typing import Any

import pytest

import perdure
from perdure.engine.execution import thread_futures
from perdure.engine.execution.thread_futures import RunFuture
from perdure.system.thread_pool import ThreadPool
from tests.faults.injecting import Helper
from tests.faults.run_scenes import double


def in_time(call: Callable[[perdure.Store], Any]) -> Any:
    """What a call gives that is not waited for in vain."""
    results: list[Any] = []
    with perdure.open("memory://") as store:
        Helper().call(lambda: results.append(call(store)), 20.0)
    return results[0]


def test_i8_a_future_that_an_interrupted_waiter_left_locked_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A time limit came as a run waited for a call on one of its threads, where Python takes the
    lock of a future's condition. The thread waited for that, to say what the call had come to, and
    the run for the thread, for ever."""
    monkeypatch.setattr(thread_futures, "BOOKS_MAX_S", 0.01)

    @perdure.agent(dict)
    def waiting(run: perdure.Run[dict]) -> int:
        with run.executor(1) as threads:
            go_on = threading.Event()
            held, other = threads.submit(go_on.wait), threads.submit(double, 2)
            held._condition.acquire()
            go_on.set()
        assert held.result()
        return other.result() + run.map(double, [3])[0]

    assert in_time(lambda store: store.run(waiting, "a")) == 10


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("kind", [MemoryError, KeyboardInterrupt])
def test_i8_a_call_that_was_submitted_and_not_noted_ends_with_its_run(
    monkeypatch: pytest.MonkeyPatch, kind: type[BaseException], behind: bool
) -> None:
    """A MemoryError came as a call was handed to a run's thread. The function took that for what
    `submit` raises, and went on; the call was made, and counted as one that had ended."""
    crashes, put = iter([True]), ThreadPool.put

    def interrupted(pool: ThreadPool, job: Any) -> None:
        monkeypatch.setattr(ThreadPool, "put", put)
        if behind:
            put(pool, job)
        raise kind("injected")

    @perdure.agent(dict)
    def submitting(run: perdure.Run[dict]) -> int:
        with run.executor(2) as threads:
            first = threads.submit(double, 1)
            if next(crashes, False):
                monkeypatch.setattr(ThreadPool, "put", interrupted)
            try:
                second = threads.submit(double, 2)
            except MemoryError:
                return -1
            return first.result() + second.result()

    def call(store: perdure.Store) -> int:
        words = "injected" if kind is KeyboardInterrupt else "MemoryError: injected"
        with pytest.raises((perdure.PerdureError, KeyboardInterrupt), match=words):
            store.run(submitting, "a")
        assert not [one for one in threading.enumerate() if one.name.startswith("perdure-run")]
        return store.run(submitting, "a")

    assert in_time(call) == 6


def test_i8_a_call_whose_submitter_was_interrupted_twice_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As above, and once more where the first one was seen to: no thread had the call, and nobody
    was told of it."""

    def interrupted(pool: ThreadPool, job: Any) -> None:
        raise KeyboardInterrupt("injected")

    @perdure.agent(dict)
    def submitting(run: perdure.Run[dict]) -> str:
        with run.executor(2) as threads:
            monkeypatch.setattr(ThreadPool, "put", interrupted)
            monkeypatch.setattr(threads._execution.leaving, "failed", ThreadPool.put)
            try:
                threads.submit(double, 2)
            except TypeError:  # of what is called instead
                return "went on"
        raise AssertionError

    assert in_time(lambda store: store.run(submitting, "a")) == "went on"


def test_a_time_limit_as_a_thread_is_started_is_what_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It came in Python's own part of the start, which stumbled over its books where it saw to
    that: a run failed for good, with a KeyError of a thread's."""
    start = threading.Thread.start

    def stumbling(thread: threading.Thread) -> None:
        if thread.name.startswith("perdure-run"):
            monkeypatch.setattr(threading.Thread, "start", start)
            try:
                raise MemoryError("injected")
            except MemoryError:
                start(thread)
                raise KeyError(thread)  # noqa: B904 - as it comes there
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", stumbling)

    @perdure.agent(dict)
    def mapping(run: perdure.Run[dict]) -> list[int]:
        return run.map(double, [1, 2])

    def call(store: perdure.Store) -> list[int]:
        with pytest.raises(perdure.PerdureError, match="MemoryError: injected"):
            store.run(mapping, "a")
        return store.run(mapping, "a")

    assert in_time(call) == [2, 4]


def test_what_python_knows_of_a_runs_futures_is_as_of_any() -> None:
    seen: list[str] = []

    def fail() -> None:
        raise LookupError

    @perdure.agent(dict)
    def using(run: perdure.Run[dict]) -> int:
        with run.executor(1) as threads:
            gate = threading.Event()
            first, second, third = (
                threads.submit(gate.wait),
                threads.submit(int),
                threads.submit(fail),
            )
            assert isinstance(first, RunFuture)
            dropped = threads.submit(int)
            assert dropped.cancel() and dropped.cancelled() and dropped.done()
            third.add_done_callback(lambda one: seen.append(type(one.exception()).__name__))
            with pytest.raises(TimeoutError):
                second.result(timeout=0)
            gate.set()
            assert {*as_completed([first, second, third, dropped])} == {
                first,
                second,
                third,
                dropped,
            }
            assert not first.cancel() and not first.running()
            with pytest.raises(LookupError):
                third.result()
        with pytest.raises(RuntimeError, match="after shutdown"):
            threads.submit(int)
        return second.result()

    assert in_time(lambda store: store.run(using, "a")) == 0
    assert seen == ["LookupError"]
