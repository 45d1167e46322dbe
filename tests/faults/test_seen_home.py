"""Exceptions that come to a coroutine when its commit is queued, and before it waits for that."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure.state.event_loop.loop_waits import LoopWait
from perdure.storage.log.committer import Committer

HELD_MAX_S = 20.0


def test_i1_a_commit_that_nobody_waited_for_yet_is_seen_home(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A MemoryError came where the wait for an edit's commit was about to begin. The edit was left
    at once, and its commit landed later, behind a refresh of the same handle: the next edit was
    told of a conflict, though nobody else had written."""
    commit, wait = Committer._commit, LoopWait.wait
    may_land, landed = threading.Event(), threading.Event()

    def held(committer: Committer, batch: Any) -> None:
        assert may_land.wait(HELD_MAX_S)
        commit(committer, batch)
        landed.set()

    async def torn(self: LoopWait, withdraw: Callable[[], bool]) -> None:
        if "commit" not in withdraw.__qualname__:  # of a read
            return await wait(self, withdraw)
        monkeypatch.setattr(LoopWait, "wait", waited)
        while not committers[0]._batch:  # the store's thread has it: it cannot be withdrawn
            await asyncio.sleep(0)
        raise MemoryError("injected")

    async def waited(self: LoopWait, withdraw: Callable[[], bool]) -> None:
        if "commit" in withdraw.__qualname__:
            may_land.set()
        await wait(self, withdraw)

    async def main() -> None:
        async with perdure.open_async("memory://") as store:
            agent = await store.agent("a", dict)
            async with agent.edit("one") as draft:
                draft["n"] = 1
            committers.append(agent._home.context.committer)
            while committers[0]._batch:  # that is still of the first edit
                await asyncio.sleep(0)
            monkeypatch.setattr(Committer, "_commit", held)
            monkeypatch.setattr(LoopWait, "wait", torn)
            with pytest.raises(MemoryError, match="injected"):
                async with agent.edit("two") as draft:
                    draft["n"] = 2
            try:
                assert landed.wait(HELD_MAX_S / 4)  # who waits is woken just before that
            finally:
                may_land.set()
            await agent.refresh()
            async with agent.edit("three") as draft:
                draft["n"] += 1
            assert agent.state == {"n": 3}

    committers: list[Committer] = []
    asyncio.run(main())
