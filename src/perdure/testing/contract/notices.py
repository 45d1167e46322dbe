"""The contract of the storage port on notices: listeners are told, and nobody is hurt."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest

from perdure.errors import StoreUnavailable
from perdure.model import Message
from perdure.storage.capabilities import NOTICES, Backend
from perdure.testing.pen import Contract, Pen, needs

SOON_S = 20
"""Far more than a notice takes, for machines that are busy."""

NEVER_S = 0.2


class NoticeRecorder:
    """A callback that remembers its calls."""

    def __init__(self) -> None:
        self._runs: SimpleQueue[str] = SimpleQueue()

    def __call__(self, run_id: str) -> None:
        self._runs.put(run_id)

    def next(self) -> str:
        return self._runs.get(timeout=SOON_S)

    def nothing(self) -> bool:
        with suppress(Empty):
            self._runs.get(timeout=NEVER_S)
            return False
        return True


def in_child(work: Callable[[], object]) -> int:
    """Forks, does the work in the child, and returns the exit code; -9 if it had to be killed."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    until = time.monotonic() + SOON_S
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@needs(NOTICES)
class NoticesContract(Contract):
    """Tests of notices."""

    def test_all_who_listen_are_told(self, backend: Backend) -> None:
        one, two = NoticeRecorder(), NoticeRecorder()
        backend.listen("one", one)
        backend.listen("two", two)
        for run_id in ("a/f/main", "é/\U0001f600/main~2"):
            backend.notify(run_id)
            assert one.next() == two.next() == run_id

    def test_a_notice_reaches_other_openers(self, place: Path) -> None:
        if not self.durable:
            return
        one, other = self.open(place), self.open(place)
        heard = NoticeRecorder()
        one.listen("one", heard)
        other.notify("r")
        assert heard.next() == "r"
        assert in_child(lambda: other.notify("from a child")) == 0
        assert heard.next() == "from a child"
        one.close()
        other.notify("no listener is there")
        other.close()

    def test_who_tells_may_be_left_out(self, backend: Backend) -> None:
        one, two = NoticeRecorder(), NoticeRecorder()
        backend.listen("one", one)
        backend.listen("two", two)
        backend.notify("r", besides="one")
        assert two.next() == "r"
        backend.notify("s")
        assert one.next() in ("r", "s")

    def test_nobody_has_to_listen(self, backend: Backend) -> None:
        backend.notify("r")

    def test_who_ended_is_told_nothing(self, backend: Backend) -> None:
        one, two = NoticeRecorder(), NoticeRecorder()
        end = backend.listen("one", one)
        backend.listen("two", two)
        end()
        end()
        backend.notify("r")
        assert two.next() == "r"
        assert one.nothing()

    def test_a_second_one_replaces_the_first(self, backend: Backend) -> None:
        first, second = NoticeRecorder(), NoticeRecorder()
        end_first = backend.listen("one", first)
        backend.listen("one", second)
        end_first()  # late: it ends nothing of the second
        backend.notify("r")
        assert second.next() == "r"
        assert first.nothing()

    def test_what_a_listener_raises_is_its_own(
        self, backend: Backend, caplog: pytest.LogCaptureFixture
    ) -> None:
        heard = NoticeRecorder()

        def listener(run_id: str) -> None:
            heard(run_id)
            if run_id == "bad":
                raise ValueError(run_id)

        with caplog.at_level(logging.CRITICAL):
            backend.listen("one", listener)
            for run_id in ("bad", "good"):
                backend.notify(run_id)
                assert heard.next() == run_id

    def test_a_slow_listener_holds_up_nobody(self, backend: Backend) -> None:
        go_on, two = threading.Event(), NoticeRecorder()

        def slow(_: str) -> None:
            go_on.wait(SOON_S)

        backend.listen("one", slow)
        backend.listen("two", two)
        begun = time.monotonic()
        for n in range(2000):  # more than any buffer holds: the rest is lost, or waits
            backend.notify(f"r{n}")
        assert time.monotonic() - begun < SOON_S / 2
        assert two.next().startswith("r")
        go_on.set()

    def test_a_listener_may_use_the_store(self, backend: Backend) -> None:
        heard = NoticeRecorder()
        end: list[Callable[[], None]] = []

        def listener(run_id: str) -> None:
            backend.inbox(run_id)
            backend.notify("again")
            end[0]()
            heard(run_id)

        end.append(backend.listen("one", listener))
        backend.notify("r")
        assert heard.next() == "r"

    def test_in_a_forked_child_nobody_listens(self, backend: Backend) -> None:
        heard_here = NoticeRecorder()
        heard: list[str] = []

        def listener(run_id: str) -> None:
            heard.append(run_id)
            heard_here(run_id)

        end = backend.listen("one", listener)

        def child() -> None:
            backend.notify("from the child")
            time.sleep(NEVER_S)
            assert heard == []
            end()  # ends nothing of the parent's

        assert in_child(child) == 0
        backend.notify("r")
        # The child shares the store, or has a copy of it.
        assert heard_here.next() == "r" or heard_here.next() == "r"

    def test_a_closed_store_takes_no_messages(self, place: Path) -> None:
        backend = self.open(place)
        Pen(backend).write()
        heard = NoticeRecorder()
        end = backend.listen("one", heard)
        backend.close()
        backend.notify("r")
        end()
        assert heard.nothing()
        for use in (
            lambda: backend.send(Message("r", "a", "start", "f")),
            lambda: backend.inbox(),
            lambda: backend.ready(0, 1),
            lambda: backend.next_wake(),
            lambda: backend.executors(),
            lambda: backend.listen("one", heard),
        ):
            with pytest.raises(StoreUnavailable):
                use()
