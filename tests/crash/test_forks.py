"""A child that is forked off while other threads of its parent are at work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.core.schema import schema
from perdure.core.schema.schema import Schema
from perdure.system.locks import PASSED_MAX, Lock, ReentrantLock, first_frame
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


@pytest.mark.parametrize("kind", [Lock, ReentrantLock])
def test_a_child_keeps_no_lock_for_a_thread_that_it_does_not_have(kind: type[Lock]) -> None:
    """A lock is kept for a waiter whom others passed by too often. In a child that was forked off
    meanwhile nobody waits."""
    lock = kind()

    def wait() -> None:
        with lock:
            pass

    def use() -> None:
        lock.give_back(first_frame())
        for _ in range(2 * PASSED_MAX):
            with lock:
                pass

    waiter = threading.Thread(target=wait)
    lock.take(first_frame())
    waiter.start()
    while not lock._waiting:
        time.sleep(0.001)
    assert _child(use) == 7
    lock.give_back(first_frame())
    waiter.join(BOUND_S)
    assert not waiter.is_alive()


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


ANOTHER = """
import perdure, sys
with perdure.open(sys.argv[1]) as store:
    store.agent("other").save({"n": 1})
"""


@pytest.mark.parametrize("where", ["a step", "the program"])
def test_i1_a_fork_leaves_its_parent_a_store_that_works(tmp_path: Path, where: str) -> None:
    """SQLite's connections are closed before a fork, and with them their locks. Another process
    that closed the store was the last one then, and tidied the WAL away. The parent took that for
    a file deleted under it: its run was thrown out, and all of its store was `Corrupt`."""
    path = str(tmp_path / "agents.db")
    # No heartbeat opens the files again before the other process has come that far.
    store = perdure.open(path, lease_ttl=timedelta(hours=1))

    @perdure.step
    def fork() -> int:
        code = _child(lambda: None)
        subprocess.run([sys.executable, "-c", ANOTHER, path], check=True)
        assert not os.path.exists(path + "-wal"), "this test must see it go"
        return code

    @perdure.agent(dict)
    def forking(run: perdure.Run[dict[str, Any]]) -> int:
        with run.edit("before") as draft:
            draft["before"] = 1
        code = fork()
        with run.edit("behind") as draft:
            draft["behind"] = 1
        return code

    if where == "a step":
        assert store.run(forking, "forks") == 7
    else:
        store.agent("forks").save({"before": 1})
        assert fork() == 7
        store.agent("forks").save({"before": 1, "behind": 1})
    store.close()
    with perdure.open(path) as again:
        assert again.agent("forks").state == {"before": 1, "behind": 1}
        assert again.agent("other").state == {"n": 1}
        again.agent("forks").verify()
