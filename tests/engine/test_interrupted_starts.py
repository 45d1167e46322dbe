"""Ctrl-C where a thread of the library's own is being started: it runs, and is not forgotten."""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType, SimpleNamespace
from typing import Any

import pytest

import perdure
from perdure.system import threads


@pytest.fixture
def interrupt_start(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has the next start of a thread of that name be interrupted where the thread runs already."""
    start, names = threading.Thread.start, set[str]()

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if thread.name in names:
            names.discard(thread.name)
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    return names.add


@perdure.agent(dict)
def act(run: perdure.Run[dict]) -> str:
    run.progress("begun")
    return "done"


def alive(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


@pytest.mark.parametrize("name", ["perdure-committer", "perdure-heartbeat", "perdure-listener"])
def test_a_store_is_closed_behind_an_interrupted_start(
    tmp_path: Path, interrupt_start: Callable[[str], None], name: str
) -> None:
    """The committer's thread ran, and was not known. A second one was made, and the word to end was
    taken by the first: closing waited for the second for ever. A heartbeat that nobody knew of
    warned every three seconds that its store was closed, until the process ended."""
    before = {*alive(name)}
    store = perdure.open(tmp_path / "a.db")
    interrupt_start(name)
    for key in ("a", "b"):
        with suppress(KeyboardInterrupt, perdure.PerdureError):
            store.options(key=key).run(act, "a")
    closing = threading.Thread(target=store.close, daemon=True)
    closing.start()
    closing.join(30)
    assert not closing.is_alive()
    for thread in {*alive(name)} - before:
        thread.join(30)
        assert not thread.is_alive()


def test_a_committer_whose_thread_was_forgotten_ends_with_both(
    tmp_path: Path, interrupt_start: Callable[[str], None]
) -> None:
    """As it is where the interrupt comes before the thread itself says that it runs."""
    before = {*alive("perdure-committer")}
    store = perdure.open(tmp_path / "a.db")
    committer: Any = store.runner.context.committer
    committer._summon()
    committer._servants._begun.clear()
    committer._summon()
    both = {*alive("perdure-committer")} - before
    assert len(both) == 2
    store.close()
    for thread in both:
        thread.join(30)
        assert not thread.is_alive()


def test_a_store_is_closed_behind_two_housekeepers(
    tmp_path: Path, interrupt_start: Callable[[str], None]
) -> None:
    """The first one ran, and was not known; it took the word to end, and closing waited for the
    second for ever."""
    before = {*alive("perdure-housekeeper")}
    store = perdure.open(tmp_path / "a.db")
    backend: Any = store.runner.context.backend
    housekeeper = backend._writer._housekeeper
    interrupt_start("perdure-housekeeper")
    with pytest.raises(KeyboardInterrupt):
        housekeeper._kick()
    housekeeper._servants._begun.clear()  # as it is before the thread says that it runs
    housekeeper._kick()
    both = {*alive("perdure-housekeeper")} - before
    assert len(both) == 2
    closing = threading.Thread(target=store.close, daemon=True)
    closing.start()
    closing.join(30)
    assert not closing.is_alive()
    for thread in both:
        thread.join(30)
        assert not thread.is_alive()


@pytest.mark.parametrize("left", [KeyboardInterrupt(), RuntimeError("release unlocked lock")])
def test_no_thread_is_started_where_a_signal_may_come_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: BaseException
) -> None:
    """Ctrl-C came in Python's own part of a start, as it took a lock. The new thread waited for
    that lock for ever: 49 of them were left of 3,594 stores. Or another error took its place, and
    a caller was told that the process had too many threads."""
    wait, main = threading.Event.wait, threading.main_thread().ident

    def interrupted(event: Any, timeout: float | None = None) -> bool:
        starts = sys._getframe(1).f_code is threading.Thread.start.__code__
        if starts and threading.get_ident() == main:
            event._cond.acquire()  # and nobody gives it back
            raise left
        return wait(event, timeout)

    before = {*threading.enumerate()}
    with monkeypatch.context() as patch, perdure.open(tmp_path / "a.db") as store:
        patch.setattr(threading.Event, "wait", interrupted)
        assert store.run(act, "a") == "done"
    for thread in {*threading.enumerate()} - before:
        thread.join(30)
        assert not thread.is_alive()


def test_a_thread_that_is_being_started_starts_nevertheless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start, ran = _thread.start_new_thread, threading.Event()

    def interrupted(*args: Any) -> None:
        start(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(threads, "_thread", SimpleNamespace(start_new_thread=interrupted))
        threads.begin(threading.Thread(target=ran.set))
    assert ran.wait(30)


def test_who_waits_again_for_a_thread_does_not_go_on_beside_it() -> None:
    """Ctrl-C came as a store's closing waited for its thread. Python took the thread for one that
    had ended, and who closed again went on while it worked."""
    go_on, main = threading.Event(), threading.get_ident()

    def interrupt_once_it_is_waited_for() -> None:
        while threads.await_end.__code__ not in codes(sys._current_frames()[main]):
            time.sleep(0.001)
        signal.pthread_kill(main, signal.SIGALRM)
        go_on.wait(30)

    def ring(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    servants = threads.Servants("perdure-tested")
    before = signal.signal(signal.SIGALRM, ring)
    try:
        servants.begin(interrupt_once_it_is_waited_for)
        with pytest.raises(KeyboardInterrupt):
            servants.join()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert servants.any_lives
    waiting = threading.Thread(target=servants.join, daemon=True)
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    go_on.set()
    waiting.join(30)
    assert not waiting.is_alive() and not servants.any_lives


def codes(frame: FrameType | None) -> list[CodeType]:
    found = []
    while frame is not None:
        found.append(frame.f_code)
        frame = frame.f_back
    return found
