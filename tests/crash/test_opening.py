"""What opening a store and reading a little takes, in counts: programs do so for each request."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

import perdure
from perdure.state.event_loop.loop_waits import in_own_thread
from perdure.system import process_id


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "store.db")
    with perdure.open(path) as store:
        agent = store.agent("a", initial={"items": []})
        for number in range(10):
            with agent.edit() as draft:
                draft["items"].append(number)
    return path


@pytest.fixture
def said(path: str) -> Iterator[list[str]]:
    """What is said to SQLite from now on: ``open``, and statements."""
    said: list[str] = []

    def spoken(_: object, sql: str, __: object) -> bool:
        said.append(sql)
        return True

    def opened(connection: apsw.Connection) -> None:
        said.append("open")
        connection.exec_trace = spoken

    apsw.connection_hooks.append(opened)
    yield said
    apsw.connection_hooks.remove(opened)


def test_a_look_opens_one_connection_and_makes_few_statements(path: str, said: list[str]) -> None:
    with perdure.open(path) as store:
        opening = len(said)
        assert store.agent("a").state["items"] == list(range(10))
        reading = said[opening:]
    assert said.count("open") == 1
    assert opening <= 13, said[:opening]
    assert len(reading) == 4, reading  # the agent, its log's end, its branch, its commits


def test_a_store_that_was_opened_leaves_nothing_behind(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each opening left three hooks for forks behind, which the system never lets go: a server
    that opened its store for each request grew, and each of its forks went over all of them."""
    perdure.open(path).close()
    gc.collect()
    before = len(process_id._renewed)
    monkeypatch.setattr(os, "register_at_fork", lambda **_: pytest.fail("one more for ever"))
    for _ in range(3):
        _open_and_close(path)
    gc.collect()
    assert len(process_id._renewed) == before


def _open_and_close(path: str) -> None:
    with perdure.open(path) as store:
        store.runner.close()  # made when it is asked for


def test_a_call_on_a_thread_of_its_own_starts_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    start = threading.Thread.start

    def count(thread: threading.Thread) -> None:
        begun.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", count)
    assert asyncio.run(in_own_thread(lambda: threading.current_thread().name)) == "perdure-own"
    assert begun == ["perdure-own"]


def test_what_a_call_on_its_own_thread_raises_is_raised() -> None:
    async def call() -> None:
        await in_own_thread(lambda: 1 // 0)

    with pytest.raises(ZeroDivisionError):
        asyncio.run(call())


def test_a_call_on_its_own_thread_that_is_cancelled_is_awaited() -> None:
    """Else a store that was being opened would be open behind the back of who was cancelled."""
    ended: list[bool] = []
    go_on = threading.Event()

    async def call() -> None:
        task = asyncio.ensure_future(in_own_thread(lambda: ended.append(go_on.wait(20))))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(call())
    assert ended == [True]
