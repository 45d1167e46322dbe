"""A child that is forked off while other threads of its parent are at work."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from perdure.core import schema
from perdure.core.locks import Lock, ReentrantLock
from perdure.core.schema import Schema
from tests.source_tree import SOURCE

BOUND_S = 20


def _child(call: Callable[[], object]) -> int:
    """The exit code of a child that makes a call: 7 where that comes to its end."""
    child = os.fork()
    if not child:
        signal.alarm(BOUND_S)  # the end of one that hangs
        with suppress(BaseException):
            call()
            os._exit(7)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("kind", [Lock, ReentrantLock])
def test_a_child_does_not_wait_for_a_thread_that_it_does_not_have(kind: type[Lock]) -> None:
    """A lock that another thread held when a process was forked off looked held for ever there,
    by a call that went on in the parent alone."""
    lock = kind()
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            done.wait(2 * BOUND_S)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()

    def take() -> None:
        with lock:
            pass

    try:
        assert _child(take) == 7
        assert lock.held
    finally:
        done.set()
        thread.join()
    assert not lock.held


def test_a_child_meets_new_types_whatever_its_parent_was_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python 3.11's `functools.cached_property` has one lock for all instances of a class. A child
    that was forked off while a thread of its parent met a new type waited for it for ever, at its
    own first schema, also in a store of its own."""
    inside, done = threading.Event(), threading.Event()
    registry: Callable[[Any], Any] = vars(schema)["Registry"]

    def slow(kind: Any) -> Any:
        if threading.current_thread().name == "meets":
            inside.set()
            done.wait(2 * BOUND_S)
        return registry(kind)

    monkeypatch.setattr(schema, "Registry", slow)
    thread = threading.Thread(target=lambda: Schema(dict).root, name="meets")
    thread.start()
    inside.wait()
    try:
        assert _child(lambda: Schema(list).root) == 7
    finally:
        done.set()
        thread.join()


def test_no_cached_property_of_pythons_own_is_used() -> None:
    paths = (SOURCE / "perdure").rglob("*.py")
    assert not [path for path in paths if "@functools.cached_property" in path.read_text()]
    assert not [path for path in paths if "@cached_property" in path.read_text()]
