"""How far many writers, or weaker durability, come towards what the CPU allows."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.harness import Costs, Ratio, interleave_turns
from bench.registry import row
from bench.report import Figure, Line, Target
from bench.rows.plain import APPEND, appending, stored_bytes
from bench.workplace import Message, Ticket, Workplace, append, messages, open_ticket
from perdure import Agent
from perdure.aio import AsyncAgent, AsyncStore
from perdure.model import Durability
from perdure.storage.appending import Append, Outcome
from perdure.storage.sqlite.backend import SqliteBackend
from perdure.store import Store

SHARE_OF_CEILING_MIN = 0.7


class CountingBackend(SqliteBackend):
    """Counts transactions and the commits in them."""

    def __init__(self, path: Path, durability: Durability = "sync") -> None:
        super().__init__(str(path), durability=durability)
        self.transactions = self.commits = 0

    def append(self, batch: Sequence[Append]) -> list[Outcome]:
        self.transactions += 1
        self.commits += len(batch)
        return super().append(batch)


@row("writers")
def writers(workplace: Workplace) -> Iterator[Line]:
    """64 writing threads, 64 coroutines, on 64 agents; one writer at durability "group" and "os".

    Sharing an fsync, or doing without, saves the wait for it; it cannot save CPU. So one writer's
    throughput could grow by (CPU + fsync wait) / CPU per commit: the ceiling. CPU per commit is one
    writer's at "sync" (user and system, all threads); the wait is that of the plain append with
    fdatasync, its wall-clock less its CPU time. All take turns; medians over the rounds.
    """
    folder = workplace.folder()
    backends = {
        "one": CountingBackend(folder / "one.db"),
        "threads": CountingBackend(folder / "threads.db"),
        "tasks": CountingBackend(folder / "tasks.db"),
        "group": CountingBackend(folder / "group.db", "group"),
        "os": CountingBackend(folder / "os.db", "os"),
    }
    stores = {name: Store(backend) for name, backend in backends.items()}
    count, commits = workplace.sizes.writers, workplace.sizes.writer_commits
    given = messages(count * commits // 4 + 1)
    turns: dict[str, Callable[[], int]] = {
        name: _alone(open_ticket(stores[name], "a"), given) for name in ("one", "group", "os")
    }
    agents = [open_ticket(stores["threads"], f"a{number}") for number in range(count)]
    turns["threads"] = lambda: _together(agents, given[:commits])
    tasks = _Tasks(stores["tasks"], count)
    turns["tasks"] = lambda: tasks.write(given[:commits])
    with appending(folder / "plain", stored_bytes(agents[0])) as plain:

        def plainly() -> int:
            for number in range(len(given)):
                plain(number)
            return len(given)

        for name in ("threads", "tasks"):
            backends[name].transactions = backends[name].commits = 0
        costs = interleave_turns({**turns, APPEND: plainly}, workplace.sizes.rounds)
    tasks.close()
    for store in stores.values():
        store.close()
    for what, name in (("writers", "threads"), ("coroutines", "tasks")):
        batch = backends[name].commits / backends[name].transactions
        yield _line(f"{count} {what}, throughput", name, costs, f"mean batch {batch:.1f}; ")
    yield _line('one writer at "group", throughput', "group", costs)
    yield _line('one writer at "os", throughput', "os", costs)


def _alone(agent: Agent[Ticket], given: list[Message]) -> Callable[[], int]:
    def write() -> int:
        for message in given:
            append(agent, message)
        return len(given)

    return write


def _together(agents: list[Agent[Ticket]], given: list[Message]) -> int:
    def write(agent: Agent[Ticket]) -> None:
        for message in given:
            append(agent, message)

    threads = [threading.Thread(target=write, args=(agent,)) for agent in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(agents) * len(given)


class _Tasks:
    """Coroutines that write through the async face, on an event loop that stays."""

    def __init__(self, store: Store, count: int) -> None:
        self._runner = asyncio.Runner()
        names = [open_ticket(store, f"a{number}").id for number in range(count)]
        self._agents = self._runner.run(self._open(store, names))

    async def _open(self, store: Store, names: list[str]) -> list[AsyncAgent[Ticket]]:
        opened = AsyncStore(store)
        return [await opened.agent(name, Ticket) for name in names]

    def write(self, given: list[Message]) -> int:
        async def write(agent: AsyncAgent[Ticket]) -> None:
            for message in given:
                async with agent.edit("user message added") as draft:
                    draft.messages.append(message)

        async def together() -> None:
            await asyncio.gather(*(write(agent) for agent in self._agents))

        self._runner.run(together())
        return len(self._agents) * len(given)

    def close(self) -> None:
        self._runner.close()


def _line(what: str, name: str, costs: dict[str, Costs], note: str = "") -> Line:
    one, ours = costs["one"], costs[name]
    wait = costs[APPEND].waiting
    ceiling = _ceiling(one, wait)
    shares = [
        share
        for parts in zip(*(_thirds(cost) for cost in (ours, one, costs[APPEND])), strict=False)
        if (share := _share(*parts))
    ]
    limit = ceiling / one.wall.median
    by_cpu = costs["os"].cpu.median / ours.wall.median
    return Line(
        what,
        Figure(1 / ours.wall.median, "/s"),
        Figure(limit, "/s", "ceiling"),
        Ratio(_share(ours, one, costs[APPEND]), min(shares), max(shares)),
        Target(SHARE_OF_CEILING_MIN, at_least=True),
        f"{note}one writer {1 / one.wall.median:,.0f} /s, speed-up "
        f"{one.wall.median / ours.wall.median:.2f} of {ceiling:.2f}; CPU per commit "
        f"{Figure(ours.cpu.median)}, one writer's {Figure(one.cpu.median)} and "
        f"{Figure(one.waiting)} waiting; plain fsync wait {Figure(wait)}; "
        f'of what the CPU alone allows (1 / CPU per commit at "os"): {by_cpu:.2f}',
        samples={"ours": ours.wall, "one": one.wall, "one, CPU": one.cpu},
    )


def _ceiling(one: Costs, wait: float) -> float:
    return (one.cpu.median + wait) / one.cpu.median


def _share(ours: Costs, one: Costs, plain: Costs) -> float:
    """Our speed-up over one writer, as a share of the ceiling."""
    return one.wall.median / ours.wall.median / _ceiling(one, plain.waiting)


def _thirds(cost: Costs) -> list[Costs]:
    return [Costs(*pair) for pair in zip(cost.wall.parts(), cost.cpu.parts(), strict=True)]
