"""Conversations of coroutines side by side, many of whose calls are cancelled at some moment."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig

from perdure.integrations.langgraph import PerdureSaver
from tests.integrations.langgraph.checkpoints import checkpoint, config, id_of
from tests.integrations.langgraph.conftest import Place

CONVERSATIONS, STEPS = 6, 25


@pytest.mark.parametrize("seed", range(4))
def test_what_returned_is_there_and_what_was_cancelled_leaves_nothing_behind(
    place: Place, seed: int
) -> None:
    async def main() -> None:
        saver = place.open()
        names = [f"conversation {number}" for number in range(CONVERSATIONS)]
        await asyncio.gather(*(_converse(saver, name, f"{seed} {name}") for name in names))
        for name in names:
            assert saver._thread(name).queue._spaces == {}
            saver.store.agent_of(saver.store.find(name)).verify()  # type: ignore[arg-type]

    asyncio.run(main())


async def _converse(saver: PerdureSaver, name: str, seed: str) -> None:
    chance = random.Random(seed)
    at = await saver.aput(config(name), checkpoint({"n": 0}, 1), {}, {})
    for step in range(1, STEPS + 1):
        numbers = range(chance.choice([1, 1, 2, 5, 9]))
        writes = [
            asyncio.create_task(saver.aput_writes(at, [("out", number)], f"task {number}"))
            for number in numbers
        ]
        await _cancel_some(chance, writes, of_ten=4)
        child = asyncio.create_task(saver.aput(at, checkpoint({"n": step}, step + 1), {}, {}))
        await _cancel_some(chance, [child], of_ten=2)
        ends = await asyncio.gather(*writes, return_exceptions=True)
        assert {type(end) for end in ends} <= {type(None), asyncio.CancelledError}
        await asyncio.wait([child])
        found = await saver.aget_tuple(at)
        assert found is not None
        there = {value for _, _, value in found.pending_writes or []}
        returned = {number for number, end in zip(numbers, ends, strict=True) if end is None}
        assert returned <= there <= set(numbers)
        at = await _latest(saver, name)
        if id_of(at) == id_of(found.config):  # the cancelled one is not there
            assert child.cancelled()
            at = await saver.aput(at, checkpoint({"n": step}, step + 1), {}, {})


async def _cancel_some(chance: random.Random, tasks: list[asyncio.Task[Any]], of_ten: int) -> None:
    if chance.random() < 0.5:
        await asyncio.sleep(chance.choice([0, 0.001, 0.002, 0.03]))
    for task in tasks:
        if chance.randrange(10) < of_ten:
            task.cancel()


async def _latest(saver: PerdureSaver, name: str) -> RunnableConfig:
    found = await saver.aget_tuple(config(name))
    assert found is not None
    return found.config
