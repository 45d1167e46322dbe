"""What the rows share: sizes, temporary folders, a store that takes long to fill."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import perdure
from bench.corpus import texts
from bench.ticket import Message as Message
from bench.ticket import Ticket as Ticket
from perdure import Agent, Store

TEXT_SIZE = 500
WINDOW_BYTES = 1_000_000


def messages(count: int, seed: int = 1) -> list[Message]:
    return [Message(role="user", content=text) for text in texts(count, TEXT_SIZE, seed)]


def ticket(count: int) -> Ticket:
    return Ticket(customer="c-7", messages=messages(count, seed=2))


def open_ticket(store: Store, name: str, count: int = 10) -> Agent[Ticket]:
    """A new agent, in the log already, with so many messages."""
    agent = store.agent(name, Ticket, initial=ticket(count))
    append(agent, messages(1, seed=3)[0])
    return agent


def append(agent: Agent[Ticket], message: Message) -> None:
    """The commit that most rows measure."""
    with agent.edit("user message added") as draft:
        draft.messages.append(message)


def file_bytes(path: Path) -> int:
    """Bytes of a store's files on disk."""
    return sum(file.stat().st_size for file in path.parent.glob(path.name + "*"))


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much each row does."""

    commits: int
    state_sizes: tuple[int, ...]
    state_edits: int
    writers: int
    writer_commits: int
    rounds: int
    cold_messages: int
    cold_starts: int
    disk_messages: int
    number_changes: int
    log_commits: int
    forks: int
    window_messages: int
    looks_back: int
    turn_steps: int
    run_steps: int
    concurrent_runs: int
    concurrent_steps: int
    crashes: int
    signals: int
    langgraph_messages: int
    langgraph_puts: int
    langgraph_size_steps: tuple[int, int, int]
    langgraph_reads: int
    langgraph_forks: int
    langgraph_listed_messages: int
    langgraph_lists: int
    langgraph_nodes: int
    langgraph_graphs: int
    langgraph_graph_messages: int
    langgraph_turn_messages: tuple[int, ...]
    langgraph_turns: int
    waiting_runs: int
    scale_agents: tuple[int, ...]
    scale_turns: int
    side_by_side_steps: tuple[int, ...]
    side_by_side_children: tuple[int, ...]
    growth_lengths: tuple[int, ...]


FULL = Sizes(
    commits=4000,
    state_sizes=(10, 1000, 10_000, 100_000),
    state_edits=400,
    writers=64,
    writer_commits=25,
    rounds=9,
    cold_messages=10_000,
    cold_starts=11,
    disk_messages=10_000,
    number_changes=1000,
    log_commits=100_000,
    forks=100,
    window_messages=WINDOW_BYTES // TEXT_SIZE,
    looks_back=60,
    turn_steps=1000,
    run_steps=1000,
    concurrent_runs=32,
    concurrent_steps=100,
    crashes=5,
    signals=200,
    langgraph_messages=5000,
    langgraph_puts=60,
    langgraph_size_steps=(200, 400, 600),
    langgraph_reads=15,
    langgraph_forks=40,
    langgraph_listed_messages=1000,
    langgraph_lists=9,
    langgraph_nodes=100,
    langgraph_graphs=15,
    langgraph_graph_messages=200,
    langgraph_turn_messages=(10, 100, 1000, 5000),
    langgraph_turns=9,
    waiting_runs=1_000_000,
    scale_agents=(10_000, 100_000, 1_000_000),
    scale_turns=300,
    side_by_side_steps=(25_000, 50_000, 100_000),
    side_by_side_children=(500, 1000, 2000),
    growth_lengths=(100, 1000, 10_000),
)
QUICK = Sizes(
    commits=400,
    state_sizes=(10, 1000, 10_000),
    state_edits=100,
    writers=64,
    writer_commits=6,
    rounds=3,
    cold_messages=2000,
    cold_starts=3,
    disk_messages=1000,
    number_changes=100,
    log_commits=4000,
    forks=30,
    window_messages=WINDOW_BYTES // TEXT_SIZE,
    looks_back=15,
    turn_steps=100,
    run_steps=1000,
    concurrent_runs=32,
    concurrent_steps=10,
    crashes=2,
    signals=50,
    langgraph_messages=1000,
    langgraph_puts=15,
    langgraph_size_steps=(50, 100, 150),
    langgraph_reads=5,
    langgraph_forks=10,
    langgraph_listed_messages=200,
    langgraph_lists=3,
    langgraph_nodes=100,
    langgraph_graphs=2,
    langgraph_graph_messages=200,
    langgraph_turn_messages=(10, 1000),
    langgraph_turns=3,
    waiting_runs=100_000,
    scale_agents=(10_000,),
    scale_turns=60,
    side_by_side_steps=(1000, 2000, 4000),
    side_by_side_children=(50, 100, 200),
    growth_lengths=(40, 160),
)
TINY = Sizes(
    commits=6,
    state_sizes=(10, 20),
    state_edits=4,
    writers=3,
    writer_commits=2,
    rounds=1,
    cold_messages=20,
    cold_starts=1,
    disk_messages=20,
    number_changes=2,
    log_commits=30,
    forks=2,
    window_messages=10,
    looks_back=2,
    turn_steps=3,
    run_steps=6,
    concurrent_runs=2,
    concurrent_steps=2,
    crashes=1,
    signals=2,
    langgraph_messages=12,
    langgraph_puts=2,
    langgraph_size_steps=(2, 4, 6),
    langgraph_reads=1,
    langgraph_forks=2,
    langgraph_listed_messages=6,
    langgraph_lists=1,
    langgraph_nodes=3,
    langgraph_graphs=1,
    langgraph_graph_messages=3,
    langgraph_turn_messages=(3,),
    langgraph_turns=1,
    waiting_runs=30,
    scale_agents=(30, 60),
    scale_turns=2,
    side_by_side_steps=(20,),
    side_by_side_children=(3,),
    growth_lengths=(30,),
)


@dataclass(frozen=True, slots=True)
class LongLog:
    """A closed store with an agent of many commits, whose state is a window of messages."""

    path: Path
    agent: str
    commits: int
    state: Ticket


@dataclass(slots=True)
class Workplace:
    """One run of the benchmarks."""

    sizes: Sizes
    root: Path
    keep: Path | None = None
    """Where stores that take long to fill are kept, and found again; None: they go with the run."""

    _long_log: LongLog | None = field(default=None, init=False)

    @property
    def bytecode(self) -> Path:
        """Where fresh processes keep their compiled modules."""
        return self.root / "bytecode"

    def folder(self) -> Path:
        """A new empty folder. It goes with the run."""
        return Path(tempfile.mkdtemp(dir=self.root))

    def long_log(self) -> LongLog:
        """Built at the first call, at durability "os", which makes the same file sooner."""
        if self._long_log is None:
            path = self.folder() / "long.db"
            with perdure.open(path, durability="os") as store:
                agent = store.agent("long", Ticket, initial=ticket(self.sizes.window_messages))
                for message in _cycle(messages(1000), self.sizes.log_commits - 1):
                    slide(agent, message)
                self._long_log = LongLog(path, agent.id, agent.seq, agent.state)
        return self._long_log


def slide(agent: Agent[Ticket], message: Message) -> None:
    """Append a message and drop the oldest one: the state changes, its size does not."""
    with agent.edit("window moved") as draft:
        draft.messages.append(message)
        del draft.messages[0]
        draft.turns += 1


def _cycle(items: list[Message], count: int) -> Iterable[Message]:
    return (items[number % len(items)] for number in range(count))


def add_places(
    parser: argparse.ArgumentParser, results: str, what: str = "where the results go"
) -> None:
    """The options of where results and temporary files go: `json` and `scratch`."""
    parser.add_argument(
        "--json",
        type=Path,
        default=Path(results),
        metavar="PATH",
        help=f"{what} (default: %(default)s)",
    )
    parser.add_argument(
        "--scratch",
        type=Path,
        default=Path("build"),
        metavar="FOLDER",
        help="where temporary files go: a disk, not memory (default: %(default)s)",
    )


def scratch_root(where: Path) -> Path:
    """Where temporary folders go: on the disk of the working directory, never in memory."""
    where.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f"bench-{os.getpid()}-", dir=where))
