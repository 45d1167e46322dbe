"""A store of a million agents and ten million commits beside one that is almost empty."""

from __future__ import annotations

import random
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import perdure
from bench.harness import Operation, interleave, ratio
from bench.registry import row
from bench.report import Figure, Line, Target
from bench.rows.scale_building import COMMITS, SCHEMA, agent_name, caring, grow
from bench.workplace import Workplace, file_bytes
from perdure import Agent, Store
from perdure.storage.capabilities import Backend
from perdure.storage.locate import locate

FEW = 1000
"""Agents of the store that is almost empty."""

RATIO_MAX = 1.5
PAGE = 20
LISTED = 100
TURN, WARM_UP = 10, 10
READ_BYTES = 1 << 22
NEAR = 2
"""A commit that is not the last one of its agent."""


@row("scale", long=True)
def scale(workplace: Workplace) -> Iterator[Line]:
    """Commits, reads and lists in stores of 10,000, 100,000 and 1,000,000 agents of ten commits
    each, one tenth of them with a run that waits; against a store of 1,000 such agents.

    At durability "sync", in one process, on agents drawn by chance; turns of 10 operations. The
    file is in the system's memory: it was read once before. The stores are written by the library's
    committer (see `scale_building`): minutes for each million commits, and half a gigabyte.
    `--keep FOLDER` keeps them, and finds them again.
    """
    folder = workplace.keep or workplace.folder()
    before: Path | None = None
    for agents in workplace.sizes.scale_agents:
        large = folder / f"scale-{agents}.db"
        _build(large, agents, before)
        before = large
        _read(large)
        small, few = workplace.folder() / "small.db", min(FEW, agents)
        grow(small, 0, few)
        yield from _compare(workplace.sizes.scale_turns, large, agents, small, few)


def _read(path: Path) -> None:
    """Into the system's memory, before anybody has it open: closing it would let its locks go."""
    with path.open("rb", buffering=0) as file:
        while file.read(READ_BYTES):
            pass


def _build(path: Path, agents: int, smaller: Path | None) -> None:
    """Unless it is there: out of the next smaller one, which has grown by some since."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name("growing.db")
    for left in path.parent.glob(unfinished.name + "*"):
        left.unlink()
    first = 0
    if smaller is not None:
        shutil.copyfile(smaller, unfinished)
        first = int(smaller.stem.partition("-")[2])
    grow(unfinished, first, agents - first)
    unfinished.rename(path)


def _compare(turns: int, large: Path, agents: int, small: Path, few: int) -> Iterator[Line]:
    with ExitStack() as stack:
        sides = [
            _Side(stack, large, agents, turns),
            _Side(stack, small, few, turns),
        ]
        for what, operation in OPERATIONS.items():
            samples = interleave(
                {name: operation(side) for name, side in zip("ab", sides, strict=True)},
                turns,
                turn=TURN,
                warm_up=WARM_UP,
            )
            ours, theirs = samples.values()
            yield Line(
                f"{what}, {agents * COMMITS:,} commits",
                Figure(ours.median),
                Figure(theirs.median, name=f"{few:,} agents"),
                ratio(ours, theirs),
                Target(RATIO_MAX),
                f"p99 {Figure(ours.p99)}, and {Figure(theirs.p99)} of few; "
                f"the files have {Figure(file_bytes(large), 'B')}",
                samples=samples,
            )
        for side in sides:
            side.run_what_was_asked_for()


class _Side:
    """One of the two stores, open; and agents of it, drawn by chance, one for each operation."""

    def __init__(self, stack: ExitStack, path: Path, agents: int, turns: int) -> None:
        self.agents = agents
        self.store: Store = stack.enter_context(perdure.open(path))
        self.backend: Backend = locate(path)
        stack.callback(self.backend.close)
        self.dice = random.Random(agents)
        self.turns = turns + WARM_UP

    def name(self) -> str:
        return agent_name(self.dice.randrange(self.agents))

    def names(self) -> list[str]:
        return [self.name() for _ in range(self.turns)]

    def handles(self) -> list[Agent[dict[str, Any]]]:
        return [self.store.agent(name, SCHEMA) for name in self.names()]

    def new_names(self) -> list[str]:
        """Of agents that are not there, among the others in the order of names."""
        return [f"{self.name()}-{secrets.token_hex(8)}" for _ in range(self.turns)]

    def run_what_was_asked_for(self) -> None:
        """Or a store that is kept would have more of it each time."""
        for message in self.backend.inbox(kind="start"):
            self.store.run(caring, message.agent)


def _edit(agent: Agent[dict[str, Any]]) -> None:
    with agent.edit("user message added") as draft:
        draft["messages"].append({"role": "user", "content": "and another thing"})
        draft["turns"] += 1


def _first_commit(side: _Side) -> Operation:
    """A new agent: its beginning, and its first edit."""
    names = side.new_names()

    def commit(number: int) -> None:
        start: dict[str, Any] = {"customer": "c", "status": "open", "turns": 0, "messages": []}
        _edit(side.store.agent(names[number], SCHEMA, initial=start))

    return commit


def _next_commit(side: _Side) -> Operation:
    """An agent that is in memory."""
    handles = side.handles()
    for handle in handles:
        _ = handle.state
    return lambda number: _edit(handles[number])


def _cold_commit(side: _Side) -> Operation:
    """An agent that must be read before."""
    names = side.names()
    return lambda number: _edit(side.store.agent(names[number], SCHEMA))


def _latest(side: _Side) -> Operation:
    names = side.names()
    return lambda number: side.store.agent(names[number], SCHEMA).state


def _past(side: _Side) -> Operation:
    handles = side.handles()
    places = [side.dice.randrange(NEAR, COMMITS) for _ in handles]
    return lambda number: handles[number].at(places[number]).plain


def _log_page(side: _Side) -> Operation:
    handles = side.handles()
    return lambda number: list(islice(handles[number].log(newest_first=True), PAGE))


def _list(side: _Side) -> Operation:
    last = max(side.agents - LISTED - 1, 0)
    places = [agent_name(side.dice.randint(0, last)) for _ in range(side.turns)]
    return lambda number: side.store.agents(after=places[number], limit=LISTED)


def _agents_runs(side: _Side) -> Operation:
    names = side.names()
    return lambda number: side.store.runs(names[number])


def _unfinished(side: _Side) -> Operation:
    return lambda _: side.store.runs(unfinished=True, limit=PAGE)


def _newest(side: _Side) -> Operation:
    return lambda _: side.store.runs(limit=PAGE, newest_first=True)


def _ask_for_work(side: _Side) -> Operation:
    """What a worker asks for when it looks whether there is something to do."""
    return lambda _: side.backend.ready(side.backend.now(), PAGE)


def _start_and_find(side: _Side) -> Operation:
    """A run is asked for; it is found in the inbox, as workers find it."""
    names = side.new_names()

    def start(number: int) -> None:
        side.store.start(caring, names[number])
        side.backend.inbox(kind="start", limit=PAGE)

    return start


def _claim(side: _Side) -> Operation:
    """The lease of a branch, taken and given back."""
    found = [side.backend.agent(name) for name in side.names()]

    def claim(number: int) -> None:
        info = found[number]
        assert info is not None
        lease = side.backend.lease(info.no, "main", "an executor")
        assert isinstance(lease, perdure.model.Lease)
        side.backend.lease(info.no, "main", None, release=lease.epoch)

    return claim


OPERATIONS: dict[str, Callable[[_Side], Operation]] = {
    "a new agent's first commits": _first_commit,
    "an agent's next commit": _next_commit,
    "the same, read before": _cold_commit,
    "latest state": _latest,
    "state at a seq": _past,
    "page of a log": _log_page,
    f"list of {LISTED} agents": _list,
    "runs of an agent": _agents_runs,
    f"{PAGE} unfinished runs": _unfinished,
    f"{PAGE} newest runs": _newest,
    "asking for work": _ask_for_work,
    "taking and giving a lease": _claim,
    "asking for a run": _start_and_find,
}
