"""A session that is opened to be read: what it costs, and what it must not cost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.core.types import nodes
from perdure.integrations.openai_agents import PerdureSession
from perdure.storage.sqlite.writer import Writer


def in_a_loop(test: Callable[..., Any]) -> Callable[..., None]:
    """A test that is a coroutine, run to its end."""

    @wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))

    return run


def message(number: int) -> Any:
    return {"role": "user", "content": [{"type": "input_text", "text": f"word {number}"}]}


@in_a_loop
async def test_a_cold_read_opens_one_connection_and_builds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To open a conversation and read it took 7.6 ms where the SDK's own session takes 1.4: a
    second connection was opened, and each item was built as a typed value and compared with what
    is stored, to be copied then."""
    path = tmp_path / "agents.db"
    items = [message(number) for number in range(30)]
    session = PerdureSession("c", path)
    await session.add_items(items)
    await session.close()

    connections: list[str] = []
    connect = Writer.connect

    def counted(self: Writer, **more: Any) -> Any:
        connections.append("one")
        return connect(self, **more)

    def refused(*_: Any) -> None:
        raise AssertionError("something typed is built")

    threads: list[threading.Thread] = []
    start = threading.Thread.start

    def started(self: threading.Thread) -> None:
        threads.append(self)
        start(self)

    monkeypatch.setattr(Writer, "connect", counted)
    monkeypatch.setattr(nodes.ListNode, "build", refused)
    monkeypatch.setattr(threading.Thread, "start", started)
    async with PerdureSession("c", path) as session:
        assert await session.get_items() == items
        assert len(threads) == 1  # to open the store, find the agent and read it were three
        assert await session.get_items(3) == items[-3:]
        assert await session.get_items(0) == []
    assert len(connections) == 1


@in_a_loop
async def test_what_is_given_out_is_not_what_is_kept(tmp_path: Path) -> None:
    async with PerdureSession("c", tmp_path / "agents.db") as session:
        assert await session.get_items() == []
        await session.add_items([message(1)])
        given: Any = (await session.get_items())[0]
        given["content"][0]["text"] = "changed by the caller"
        given["content"].append("more")
        assert await session.get_items() == [message(1)]
        agent = await session.agent()
        assert agent.exists
        assert agent.state.items == [message(1)]
        assert await agent.drift() == []


@in_a_loop
async def test_a_read_sees_what_others_wrote_and_the_handle_moves_on(tmp_path: Path) -> None:
    url = tmp_path / "agents.db"
    async with PerdureSession("c", url) as one, PerdureSession("c", url) as two:
        for number in range(4):
            writer, reader = (one, two) if number % 2 else (two, one)
            await writer.add_items([message(number)])
            assert len(await reader.get_items()) == number + 1
        agent = await one.agent()
        assert len(agent.state.items) == 4
        assert agent.seq == (await two.agent()).seq


@in_a_loop
async def test_expired_items_go_in_the_commit_that_compacts(tmp_path: Path) -> None:
    """`EncryptedSession` says at a compaction which of the oldest items have expired. That was
    dropped, so expired ciphertext stayed in the conversation for ever."""
    expired = [{"role": "user", "content": f"expired {number}"} for number in range(5)]
    live = [{"role": "user", "content": f"live {number}"} for number in range(4)]
    items: Any = [*expired[:4], live[0], expired[4], *live[1:]]
    asked: list[Any] = []

    def is_expired(item: Any) -> bool:
        asked.append(item)
        return str(item["content"]).startswith("expired")

    async with PerdureSession("c", tmp_path / "agents.db") as session:
        await session.add_items(items)
        tail = await session._get_compaction_snapshot(2, prune_prefix=is_expired)
        assert tail is not None
        assert not tail.complete
        agent = await session.agent()
        before = agent.seq
        assert await tail.replace_suffix(0, [{"role": "assistant", "content": "in short"}])
        found: Any = await session.get_items()
        kept = [live[0], expired[4], live[1]]
        assert found == [*kept, {"role": "assistant", "content": "in short"}]
        assert asked == items[:5]  # it ends at the first that lives: what is behind stays
        await agent.refresh()
        assert agent.seq == before + 1
        again = await session._get_compaction_snapshot(2, prune_prefix=is_expired)
        assert again is not None
        await session.add_items(items[:1])
        assert not await again.replace_suffix(0, [])  # somebody was faster: nothing goes
        assert len(await session.get_items()) == 5


def test_a_store_that_was_only_read_tidies_its_wal_away(tmp_path: Path) -> None:
    """The connection of the opening reads; who writes opens one. The last to close tidies up."""
    path = tmp_path / "agents.db"
    wal = Path(f"{path}-wal")
    with perdure.open(path) as first, first.agent("a").edit("begin") as draft:
        draft["n"] = 1
        with perdure.open(path) as second:
            assert second.find("a") is None
    assert not wal.exists()
    with perdure.open(path) as store:
        assert store.agent("a").state == {"n": 1}
        assert wal.exists()
    assert not wal.exists()
