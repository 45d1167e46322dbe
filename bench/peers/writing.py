"""Many agents of one process that write at the same time."""

from __future__ import annotations

import asyncio
import time

import perdure
from bench.peers.serving import Answer
from bench.workplace import Message, Ticket, messages, ticket
from perdure.aio import AsyncAgent


class Writing:
    """Agents side by side on one event loop, each with a commit under way at a time."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.Runner()
        self._store = self._loop.run(perdure.open_async(url).__aenter__())
        self._agents: list[AsyncAgent[Ticket]] = []

    def prepare(self, name: str, agents: int) -> Answer:
        """Make so many agents, and open them."""

        async def opened(number: int) -> AsyncAgent[Ticket]:
            agent = await self._store.agent(f"{name}-{number}", Ticket, initial=ticket(10))
            await self._write(agent, messages(1)[:1])
            return agent

        async def all_opened() -> list[AsyncAgent[Ticket]]:
            return list(await asyncio.gather(*(opened(number) for number in range(agents))))

        self._agents = self._loop.run(all_opened())
        return {}

    def write(self, count: int) -> Answer:
        """So many commits on each; when that began and ended, and the CPU seconds it took."""
        given = messages(count)

        async def together() -> None:
            await asyncio.gather(*(self._write(agent, given) for agent in self._agents))

        began, cpu = time.monotonic(), time.process_time()
        self._loop.run(together())
        return {"began": began, "ended": time.monotonic(), "cpu": time.process_time() - cpu}

    async def _write(self, agent: AsyncAgent[Ticket], given: list[Message]) -> None:
        for message in given:
            async with agent.edit("user message added") as draft:
                draft.messages.append(message)
