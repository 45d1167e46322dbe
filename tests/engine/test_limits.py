"""The limit of `run.map` and `run.executor`: what ends the program in one of the calls, and limits
that were lowered under a run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import perdure
from tests.engine.conftest import Async, CrashError, Crashes, Place

Calls = Callable[[Any, Callable[[int], Any], int], list[Any]]


def mapped(run: Any, function: Callable[[int], Any], limit: int) -> list[Any]:
    found: list[Any] = run.map(function, range(4), limit=limit)
    return found


def executed(run: Any, function: Callable[[int], Any], limit: int) -> list[Any]:
    with run.executor(limit) as threads:
        futures = [threads.submit(function, number) for number in range(4)]
        return [future.result() for future in futures]


@perdure.step
def look(number: int) -> int:
    return number * 10


@pytest.mark.usefixtures("stalls_soon")
@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("limit", [1, 2, 8])
@pytest.mark.parametrize("calls", [mapped, executed])
def test_a_program_that_ends_in_one_of_the_calls_can_be_gone_on_with(
    place: Place, crash: Crashes, calls: Calls, limit: int, end: type[BaseException]
) -> None:
    """`sys.exit()` in the function of a map with one thread: that went on with the other items, and
    recorded what they did. From then on the first item waited for those, which had no thread to
    come to it on: the run needed attention, at each try."""
    store = place.open()
    ends = [end(3)]

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> list[int]:
        def one(number: int) -> int:
            if number == 0 and ends:
                raise ends.pop()
            return look(number)

        return calls(run, one, limit)

    with pytest.raises(end):
        store.run(act, "a")
    assert store.run(act, "a") == [0, 10, 20, 30]


@pytest.mark.parametrize("limit", [1, 8])
@pytest.mark.parametrize(
    ("calls", "told"), [(mapped, SystemExit), (executed, (SystemExit, perdure.PerdureError))]
)
def test_an_end_of_the_program_counts_whatever_others_raised(
    place: Place, calls: Calls, limit: int, told: Any
) -> None:
    """An item raised an error, and one behind it `sys.exit()`: the run failed with the error, for
    good, and nobody heard of the other. Of threads the function can ask for what each came to, and
    has gone on where it did not."""
    store = place.open()
    ends = [SystemExit(3)]

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> list[int]:
        def one(number: int) -> int:
            if number == 0:
                raise ValueError("no such thing")
            if number == 2 and ends:
                raise ends.pop()
            return look(number)

        return calls(run, one, limit)

    with pytest.raises(told, match=r"SystemExit left|^3$"):
        store.run(act, "a")
    with pytest.raises(ValueError, match="no such thing"):
        store.run(act, "a")


@pytest.mark.usefixtures("stalls_soon")
def test_one_that_is_caught_does_not_let_the_run_go_on(place: Place) -> None:
    store = place.open()
    ends = [SystemExit(3)]

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> Any:
        def one(number: int) -> int:
            if number == 1 and ends:
                raise ends.pop()
            return look(number)

        try:
            return mapped(run, one, 1)
        except SystemExit:
            return look(7)

    with pytest.raises(SystemExit):
        store.run(act, "a")
    assert store.run(act, "a") == [0, 10, 20, 30]


@pytest.mark.usefixtures("stalls_soon")
@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize("calls", [mapped, executed])
def test_a_limit_may_be_lowered_under_a_run(
    place: Place, crash: Crashes, calls: Calls, limit: int
) -> None:
    """Four items went side by side, and the last of them was the only one that had recorded
    something when the process died. With fewer threads from then on the first waited for that, and
    held the thread on which it would have come: the run needed attention, and no hint spoke of the
    limit."""
    store = place.open()
    last = threading.Event()
    limits = [4]

    @perdure.step
    def slowly(number: int) -> int:
        if number < 3 and not last.is_set():
            assert last.wait(30)
            raise CrashError
        crash.note(number)
        return number * 10

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> list[int]:
        def one(number: int) -> int:
            found = slowly(number)
            if number == 3:
                last.set()
            return found + look(number)

        return calls(run, one, limits[-1])

    with pytest.raises(CrashError):
        store.run(act, "a")
    limits.append(limit)
    assert store.run(act, "a") == [0, 20, 40, 60]
    assert sorted(crash.calls) == [0, 1, 2, 3]


@pytest.mark.usefixtures("stalls_soon")
def test_threads_that_were_lent_are_given_back(place: Place) -> None:
    """Those that are over the limit end with what they went on with: what comes behind it keeps to
    the limit that there is now."""
    store = place.open()
    last, limits = threading.Event(), [4]
    lock, going, most = threading.Lock(), [0], [0]

    @perdure.step
    def slowly(number: int) -> int:
        if number < 3 and not last.is_set():
            assert last.wait(30)
            raise CrashError
        return number

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> list[int]:
        def one(number: int) -> int:
            slowly(number)
            if number == 3:
                last.set()
            if number > 6:
                with lock:
                    going[0] += 1
                    most[0] = max(most[0], going[0])
                threading.Event().wait(0.02)
                with lock:
                    going[0] -= 1
            return number

        return run.map(one, range(20), limit=limits[-1])

    with pytest.raises(CrashError):
        store.run(act, "a")
    limits.append(1)
    assert store.run(act, "a") == [*range(20)]
    assert most == [1]


@pytest.mark.usefixtures("stalls_soon")
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_limit_may_be_lowered_under_an_asynchronous_run(
    runs: Async, crash: Crashes, limit: int
) -> None:
    """The same, with tasks."""
    limits, ends = [4], [CrashError() for _ in range(3)]

    @perdure.step
    async def slowly(number: int) -> int:
        if number < 3 and ends:
            await asyncio.sleep(0.2)
            raise ends.pop()
        crash.note(number)
        return number * 10

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> list[int]:
        async def one(number: int) -> int:
            return await slowly(number) + await run.call(look, number)

        return await run.map(one, range(6), limit=limits[-1])

    runs.crash(act)
    ends.clear()  # a task that was late has not raised
    limits.append(limit)
    assert runs.run(act) == [0, 20, 40, 60, 80, 100]
    assert sorted(crash.calls) == [*range(6)]
