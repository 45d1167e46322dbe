"""A store whose closing is interrupted is closed by the next call: nothing of it is left."""

from __future__ import annotations

import gc
import itertools
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import perdure
from perdure.store import Store
from tests.faults.checking import State
from tests.faults.injecting import KINDS, Helper, count, inject

_numbers = itertools.count()

LEFT_S = 20.0

STRIDE = 41
"""`make faults` comes to each instruction."""


@perdure.step
def work() -> int:
    return 1


@perdure.agent(State)
def act(run: perdure.Run[State]) -> int:
    run.progress("begun")
    with run.edit("begun") as draft:
        draft.n = 1
    return work()


@pytest.fixture(params=["memory", "sqlite"])
def begin(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Opens a store that has done all that makes a thread, a socket or a file."""

    def begun() -> Store:
        number, group = next(_numbers), request.param == "sqlite"
        url = f"sqlite:///{tmp_path}/{number}.db" if group else f"memory://{tmp_path.name}-{number}"
        store = perdure.open(url, durability="group" if group else "sync")
        assert store.run(act, "a") == 1
        store.runner.context._own_threads()._pool.submit(lambda: None, lambda job: None)
        return store

    return begun


def interrupted(call: Callable[[], object], at: int) -> None:
    """Make the call, and forget the exception that comes in it."""
    injected = inject(call, at, KINDS[at % len(KINDS)])
    injected.raised = None


def _threads(before: Sequence[threading.Thread]) -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one not in before]


def _open_files(folder: Path) -> list[str]:
    """What this process has open in there; where the system shows that."""
    found: list[str] = []
    for number in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        try:
            found.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:  # the one that lists them
            continue
    return [name for name in found if name.startswith(str(folder))]


def test_what_an_interrupted_closing_left_is_ended_by_the_next(
    begin: Callable[[], Store], tmp_path: Path
) -> None:
    """Ctrl-C came in `store.close()`, and who closed it again waited for ever for an event's lock:
    once in 200 times. Once in ten, the thread that listens was left with its socket: it had been
    forgotten before it was told to end."""
    helper = Helper()
    before = threading.enumerate()
    for at in range(1, count(begin().close) + 1, STRIDE):
        store = begin()
        interrupted(store.close, at)
        helper.call(store.close, LEFT_S)
        for thread in _threads(before):
            thread.join(LEFT_S)
        assert not _threads(before), at
        if _open_files(tmp_path):
            gc.collect()  # the frames of the exception have what they had at hand
        assert not _open_files(tmp_path), at
        if store.url.startswith("sqlite"):
            assert os.listdir(store.url.removeprefix("sqlite:///") + "-executors") == [], at
            assert not os.path.exists(store.url.removeprefix("sqlite:///") + "-wal"), at


@pytest.mark.filterwarnings("ignore:unclosed file")  # what an exception's frames had is closed so
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_first_start_that_is_interrupted_is_no_other_executor(tmp_path: Path) -> None:
    """Ctrl-C came as a store took the lock of its own file. It was held by nobody from then on, and
    no run could be begun in that open store: "somebody else holds the executor's file"."""

    def begun() -> tuple[Store, Callable[[], None]]:
        store = perdure.open(f"sqlite:///{tmp_path}/{next(_numbers)}.db", durability="os")
        return store, store.runner.liveness.start

    helper = Helper()
    opened, call = begun()
    points = count(call)
    opened.close()
    for at in range(1, points + 1, 11):
        store, call = begun()
        interrupted(call, at)
        helper.call(call, LEFT_S)
        helper.call(store.close, LEFT_S)


def test_an_executor_that_is_interrupted_as_it_is_named_has_a_name() -> None:
    """Ctrl-C came as an open store was given the id of its executor: that was an empty text from
    then on, in all that was written, and no run could be begun."""

    def begun() -> tuple[Store, Callable[[], str]]:
        store = perdure.open("memory://")
        return store, lambda: store.runner.context.executor

    for at in range(1, count(begun()[1]) + 1):
        store, call = begun()
        interrupted(call, at)
        assert call() and call() == call()
        store.close()
