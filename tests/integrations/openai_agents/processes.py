"""What other processes do to a session. They come from a server that has imported the SDK once."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from multiprocessing.process import BaseProcess
from typing import Any

from agents import Runner

from perdure.integrations.openai_agents import PerdureRunStates, PerdureSession
from tests.integrations.openai_agents.speaking import QUIET, refunded, says, support, user

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([__name__])


def start(function: Any, *args: Any) -> BaseProcess:
    process = _context.Process(target=function, args=args)
    process.start()
    return process


def add_many(url: str, name: str, batches: int) -> None:
    async def main() -> None:
        async with PerdureSession("shared", url=url) as session:
            for number in range(batches):
                await session.add_items([user(f"{name}-{number}-a"), user(f"{name}-{number}-b")])

    asyncio.run(main())


def pop_some(url: str, count: int, out: str) -> None:
    async def main() -> None:
        async with PerdureSession("shared", url=url) as session:
            popped = [await session.pop_item() for _ in range(count)]
        with open(out, "w", encoding="utf-8") as file:
            file.write("\n".join(str(item["content"]) for item in popped if item))  # type: ignore[typeddict-item]

    asyncio.run(main())


def add_until_killed(url: str, pipe: Any) -> None:
    """Writes the number of each batch to a pipe once it is added."""

    async def main() -> None:
        acknowledged = pipe.detach()
        session = PerdureSession("shared", url=url)
        for number in range(1_000_000):
            await session.add_items([user(f"{number}-a"), user(f"{number}-b")])
            os.write(acknowledged, f"{number}\n".encode())

    asyncio.run(main())


def approve_and_resume(url: str, out: str) -> None:
    """What a process does that comes later and knows the conversation's name only."""

    async def main() -> None:
        agent = support([says("done")])
        session = PerdureSession("c-1", url=url)
        state = await PerdureRunStates(url).take("c-1", agent)
        for item in state.get_interruptions():
            state.approve(item)
        result = await Runner.run(agent, state, session=session, run_config=QUIET)
        with open(out, "w", encoding="utf-8") as file:
            file.write(f"{result.final_output} {refunded}")

    asyncio.run(main())
