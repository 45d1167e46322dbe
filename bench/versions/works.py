"""`python -m bench.versions.works FOLDER [URL]`: does turns of a work, with the Perdure it finds.

Only what every revision has is used here, so that an older one can do the same.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import perdure
from bench.peers.serving import Answer, result, serve, spent
from bench.workplace import Ticket, append, messages, open_ticket, ticket
from perdure import Store

MESSAGES = 200
"""Of a state that is opened and read."""

Work = Callable[[int], int]
"""Does about so many operations, and says how many it did."""


class Leaving(BaseException):
    """Leaves a run in the middle, as `SystemExit` would."""


@perdure.step
def answer(number: int) -> str:
    return result(number)


@perdure.step
async def answer_soon(number: int) -> str:
    return result(number)


@perdure.tool(on_crash="fail")
def act(number: int) -> str:
    return result(number)


@perdure.step
def leave() -> None:
    raise Leaving


@perdure.agent(dict)
def answering(run: perdure.Run[dict[str, object]], steps: int) -> int:
    return sum(len(answer(number)) for number in range(steps))


@perdure.agent(dict)
def acting(run: perdure.Run[dict[str, object]], calls: int) -> int:
    return sum(len(act(number)) for number in range(calls))


@perdure.agent(dict)
async def answering_soon(run: perdure.AsyncRun[dict[str, object]], steps: int) -> int:
    return sum([len(await answer_soon(number)) for number in range(steps)])


@perdure.agent(dict)
async def side_by_side(run: perdure.AsyncRun[dict[str, object]], steps: int) -> int:
    return sum(map(len, await asyncio.gather(*map(answer_soon, range(steps)))))


@perdure.agent(dict)
def answering_and_leaving(run: perdure.Run[dict[str, object]], steps: int) -> None:
    for number in range(steps):
        answer(number)
    leave()


class Works:
    """The works of one store, each with an agent of its own."""

    def __init__(self, folder: Path, url: str = "") -> None:
        self._where = url or folder / "store.db"
        self._store: Store = perdure.open(self._where)
        self._numbers = count()
        self._said = messages(1000)
        self._ticket = open_ticket(self._store, "edited")
        self._agents = {"updated": self._store.agent("updated", Ticket, initial=ticket(10))}
        self._kept = 0
        self._quiet = url or folder / "quiet.db"
        self._beside = perdure.open(self._quiet)
        open_ticket(self._beside, "read", MESSAGES)

    def edit(self, times: int) -> int:
        for _ in range(times):
            append(self._ticket, self._said[next(self._numbers) % len(self._said)])
        return times

    def update(self, times: int) -> int:
        agent = self._agents["updated"]
        for _ in range(times):
            agent.update(_count)
        return times

    def steps(self, times: int) -> int:
        return self._run(answering, times)

    def tools(self, times: int) -> int:
        return self._run(acting, times)

    def async_steps(self, times: int) -> int:
        return self._run_soon(answering_soon, times)

    def gather(self, times: int) -> int:
        return self._run_soon(side_by_side, times)

    def replay(self, times: int) -> int:
        """The first time makes them, and is the one that warms up."""
        self._kept = self._kept or times
        try:
            self._store.run(answering_and_leaving, "replayed", self._kept)
        except Leaving:
            return self._kept
        raise AssertionError("the run ended")

    def open(self, times: int) -> int:
        """Opens a store that somebody has open, reads an agent of so many messages, closes it. In
        SQLite it is one that no other work writes to: what lies behind the end of a WAL is looked
        through, and how much that is would depend on where the works before have left it."""
        for _ in range(max(times // 10, 1)):
            with perdure.open(self._quiet) as store:
                assert len(store.agent("read", Ticket).state.messages) > MESSAGES
        return max(times // 10, 1)

    def fork(self, times: int) -> int:
        for _ in range(times):
            self._ticket.fork(f"side-{next(self._numbers)}")
        return times

    def _run(self, function: Callable[..., Any], times: int) -> int:
        key = f"turn {next(self._numbers)}"
        self._store.options(key=key).run(function, function.__name__, times)
        return times

    def _run_soon(self, function: Callable[..., Any], times: int) -> int:
        async def run() -> None:
            async with await perdure.open_async(self._where) as store:
                await store.options(key=f"turn {next(self._numbers)}").run(function, name, times)

        name = function.__name__
        asyncio.run(run())
        return times


def _count(state: Ticket) -> None:
    state.turns += 1


NAMES = ("edit", "update", "steps", "tools", "async_steps", "gather", "replay", "open", "fork")


def main(folder: str, url: str = "") -> None:
    works = Works(Path(folder), url)
    result(0)  # makes them all
    commands: Mapping[str, Callable[..., Answer]] = {
        name: partial(_turn, getattr(works, name)) for name in NAMES
    }
    serve({"perdure": str(Path(perdure.__file__).parent)}, commands)


def _turn(work: Work, times: int) -> Answer:
    return spent(lambda: work(times))


if __name__ == "__main__":
    main(*sys.argv[1:])
