"""Threads that an interrupted caller leaves usable."""

from __future__ import annotations

import gc
import queue
import threading
import time
from collections.abc import Callable

import pytest

from perdure.system.thread_pool import ThreadPool
from tests.faults.injecting import KINDS, Helper, count, inject


def _answers(pool: ThreadPool) -> bool:
    over = threading.Event()
    pool.submit(lambda: None, lambda _: over.set())
    return over.wait(20.0)


def test_a_caller_who_is_interrupted_leaves_a_pool_that_works() -> None:
    """Ctrl-C came in a coroutine where a read was handed to the store's threads: in Python's own
    pool, between taking a lock and giving it back. From then on every read by any coroutine waited
    for ever, and so did the end of the process."""
    helper = Helper()
    made = ThreadPool(2, "test")
    pools = [made]

    def submit() -> None:
        pools[-1].submit(lambda: None, lambda _: None)

    for fresh in (False, True):
        points = count(lambda: ThreadPool(2, "test").submit(lambda: None, lambda _: None))
        for at in range(1, points + 1):
            if fresh:
                pools.append(ThreadPool(2, "test"))
            inject(submit, at, KINDS[at % len(KINDS)])
            helper.call(lambda: _answers(pools[-1]) or pytest.fail("nobody answers"))
    for pool in pools:
        helper.call(pool.close)


def test_a_job_that_was_taken_back_is_not_done_and_one_that_began_is() -> None:
    pool, go, ran = ThreadPool(1, "test"), threading.Event(), list[int]()
    first = pool.submit(lambda: go.wait(20.0), lambda _: None)
    second = pool.submit(lambda: ran.append(2), lambda _: None)
    refused = list[bool]()
    third = pool.submit(lambda: ran.append(3), lambda job: refused.append(job.cancel()))
    while not first._fate:
        time.sleep(0.001)
    assert second.cancel() and not first.cancel()
    closer = threading.Thread(target=pool.close)
    closer.start()
    while not refused:
        time.sleep(0.001)
    assert closer.is_alive()  # it waits for what has begun
    go.set()
    closer.join(20.0)
    assert first.outcome() is True and third.cancel() and refused == [True] and ran == []
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(lambda: None, lambda _: None)


def test_it_makes_no_more_threads_than_it_may_and_uses_them_again() -> None:
    pool, threads, over = ThreadPool(3, "test"), set[int](), threading.Semaphore(0)
    for _ in range(50):
        pool.submit(lambda: threads.add(threading.get_ident()), lambda _: over.release())
    assert all(over.acquire(timeout=20.0) for _ in range(50))
    assert 1 <= len(threads) <= 3
    pool.close()


def test_who_calls_one_after_the_other_needs_one_thread() -> None:
    """A thread that had told what its job came to was not counted as free yet: the next job, which
    came at once, had another one made for it, up to eight in each open store. Coroutines on a
    LangGraph thread took a quarter more CPU for that than on one thread."""
    pool, used = ThreadPool(8, "test"), list[int]()
    answers = queue.SimpleQueue[None]()

    def call() -> None:
        pool.submit(lambda: used.append(threading.get_ident()), told)

    def told(_: object) -> None:  # as who waits may do at once, from wherever
        answers.put(None) if len(used) == 50 else call()

    call()
    answers.get(timeout=20.0)
    assert len(set(used)) == 1
    gate = threading.Barrier(9)
    jobs = [pool.submit(lambda: gate.wait(20.0), lambda _: answers.put(None)) for _ in range(8)]
    gate.wait(20.0)  # as many as may be at once
    for _ in jobs:
        answers.get(timeout=20.0)
    pool.close()


def test_jobs_from_all_sides_are_all_done() -> None:
    """Whatever threads are counted on by whom: no job is left alone in the queue."""
    pool, done = ThreadPool(3, "test"), queue.SimpleQueue[int]()

    def bring() -> None:
        for number in range(400):
            job = pool.submit(lambda: None, lambda _: done.put(0))
            if number % 3 == 0:
                while not job.over:
                    time.sleep(0)

    callers = [threading.Thread(target=bring) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60.0)
    for _ in range(1600):
        done.get(timeout=20.0)
    pool.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_nobody_counts_on_a_thread_that_ended() -> None:
    """It ended between counting itself as free and taking the next job, which then waited for it
    for ever."""
    pool = ThreadPool(2, "test")

    def end(_: object) -> None:
        raise SystemExit

    thread = pool.submit(lambda: threading.current_thread(), end)
    while not thread.over:
        time.sleep(0)
    thread.result.join(20.0)
    assert _answers(pool)
    pool.close()


def test_threads_of_a_pool_that_nobody_has_end() -> None:
    pool = ThreadPool(2, "nobody's")
    assert _answers(pool)
    del pool
    gc.collect()
    _until(lambda: not [one for one in threading.enumerate() if one.name.startswith("nobody's")])


def _until(holds: Callable[[], bool]) -> None:
    for _ in range(2000):
        if holds():
            return
        time.sleep(0.01)
    raise AssertionError("not in time")
