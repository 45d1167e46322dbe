"""I9: a commit costs what the change costs, whatever the size of the state."""

from __future__ import annotations

from collections.abc import Iterator

import perdure
from bench.harness import Operation, interleave, ratio
from bench.registry import row
from bench.report import Figure, Line, Target
from bench.workplace import Message, Ticket, Workplace, append, messages, open_ticket
from perdure import Agent, Store
from perdure.model import Durability

TURN = WARM_UP = 10
RATIO_MAX = 1.3


@row("state-size")
def state_size(workplace: Workplace) -> Iterator[Line]:
    """The same `edit` on typed states of 10, 1,000, 10,000 and 100,000 messages.

    It appends a 500 B message, at durability "sync"; and again at "os", where no wait for the disk
    hides what the CPU does. The states are in memory, as they are in a running agent. The small
    state is another agent's every 10 edits, so that it stays small.
    """
    yield from _at(workplace, "sync", "commit at {} messages")
    yield from _at(workplace, "os", 'commit at {} messages, "os"')


def _at(workplace: Workplace, durability: Durability, what: str) -> Iterator[Line]:
    smallest, *larger = workplace.sizes.state_sizes
    count = workplace.sizes.state_edits
    given = messages(count + WARM_UP)
    with perdure.open(workplace.folder() / "ours.db", durability=durability) as store:
        contestants = {f"{smallest:,}": _small(store, smallest, count, given)}
        for size in larger:
            contestants[f"{size:,}"] = _large(open_ticket(store, f"s{size}", size), given)
        samples = interleave(contestants, count, turn=TURN, warm_up=WARM_UP)
    first = f"{smallest:,}"
    for name in contestants:
        if name == first:
            continue
        yield Line(
            what.format(name),
            Figure(samples[name].median),
            Figure(samples[first].median, name=f"at {first}"),
            ratio(samples[name], samples[first]),
            Target(RATIO_MAX),
            samples=samples,
        )


def _small(store: Store, size: int, count: int, given: list[Message]) -> Operation:
    agents = [open_ticket(store, f"s{size}-{number}", size) for number in range(count // TURN + 2)]
    return lambda number: append(agents[number // TURN], given[number])


def _large(agent: Agent[Ticket], given: list[Message]) -> Operation:
    return lambda number: append(agent, given[number])
