"""Sessions of the OpenAI Agents SDK in the field: `FOLDER sqlite|perdure`.

A step is one `add_items` of one item, which is what the SDK does as a turn goes on.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from agents import SQLiteSession

from bench.peers.contest import LISTED, Contestant, contend, message, timed
from bench.peers.serving import Answer, Missing, result


def item(text: str) -> Any:
    return {"role": "user", "content": text}


class Sessions(Contestant):
    """The SDK's own."""

    package: ClassVar[str] = "openai-agents"
    file = "session.db"

    def __init__(self, folder: str, *options: str) -> None:
        super().__init__(folder, *options)
        self.path = Path(folder) / self.file
        self.loop = asyncio.Runner()

    def new(self, name: str) -> Any:
        return SQLiteSession(name, self.path)

    def open(self) -> int:
        self.session = self.new("conversation")
        self._said = len(self.loop.run(self.session.get_items()))
        return self._said

    def close(self) -> None:
        self.session.close()

    async def _add(self, session: Any, texts: Sequence[str]) -> None:
        for text in texts:
            await session.add_items([item(text)])

    def _timed(self, session: Any, texts: Sequence[str]) -> Answer:
        with timed() as clock:
            self.loop.run(self._add(session, texts))
        return clock.answer(len(texts))

    def say(self, count: int) -> Answer:
        first = self._said + 1
        self._said += count
        return self._timed(self.session, [message(first + number) for number in range(count)])

    def steps(self, count: int) -> Answer:
        return self._timed(self.new(self.new_name()), [result(number) for number in range(count)])

    def tools(self, count: int) -> Answer:
        raise Missing("keeps items, not calls")

    def concurrent(self, runs: int, count: int) -> Answer:
        sessions = [self.new(self.new_name()) for _ in range(runs)]
        texts = [result(number) for number in range(count)]

        async def together() -> None:
            await asyncio.gather(*(self._add(session, texts) for session in sessions))

        with timed() as clock:
            self.loop.run(together())
        return clock.answer(runs * count)

    def recent(self) -> Answer:
        with timed() as clock:
            found = self.loop.run(self.session.get_items(LISTED))
        assert found
        return clock.answer(1)

    def delete(self) -> Answer:
        with timed() as clock:
            self.loop.run(self.session.clear_session())
        return clock.answer(1)


class OurSessions(Sessions):
    """Ours, which has forks and past states besides."""

    file = "ours.db"

    def __init__(self, folder: str, *options: str) -> None:
        super().__init__(folder, *options)
        self.ours = import_module("perdure.integrations.openai_agents")
        import_module("perdure.storage.sqlite.backend")

    def new(self, name: str) -> Any:
        return self.ours.PerdureSession(name, self.path)

    def close(self) -> None:
        self.loop.run(self.session.close())

    def fork(self, at: int) -> Answer:
        name = self.new_name()

        async def forked() -> None:
            branch = await self.session.fork(name, at=at + 1)
            await branch.add_items([item("another way")])

        with timed() as clock:
            self.loop.run(forked())
        return clock.answer(1)

    def past(self, at: int) -> Answer:
        async def read() -> int:
            agent = await self.session.agent()
            return len((await agent.at(at + 1)).state.items)

        with timed() as clock:
            found = self.loop.run(read())
        assert found == at
        return clock.answer(1)

    def delete(self) -> Answer:
        raise Missing("clears as one more commit: its log stays")


if __name__ == "__main__":
    folder, kind, *options = sys.argv[1:]
    contend({"sqlite": Sessions, "perdure": OurSessions}[kind](folder, *options))
