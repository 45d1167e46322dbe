"""A fork copies nothing, wherever it begins."""

from __future__ import annotations

import random
from collections.abc import Iterator

import perdure
from bench.harness import interleave, ratio
from bench.registry import row
from bench.report import Figure, Line, Target
from bench.workplace import Ticket, Workplace, append, messages

COMMITS_MAX = 2.0


@row("fork")
def fork(workplace: Workplace) -> Iterator[Line]:
    """Forks at random commits of a 100,000-commit agent, against commits of the same agent.

    At durability "sync", one by one in turn. Bytes: what the log grows by, header and payload, for
    a fork at the log's beginning and for one near its end.
    """
    log = workplace.long_log()
    count = workplace.sizes.forks
    given = messages(count + 2, seed=5)
    chosen = random.Random(6)
    places = [1 + int(chosen.random() * log.commits) for _ in range(count + 2)]
    with perdure.open(log.path) as store:
        agent = store.agent(log.agent, Ticket)
        _ = agent.state
        samples = interleave(
            {
                "ours": lambda number: agent.fork(f"fork-{number}", at=places[number]),
                "commit": lambda number: append(agent, given[number]),
            },
            count,
            turn=1,
        )
        early = agent.fork("early", at=1)
        early_size = early.commit("early").size
        late = agent.fork("late", at=log.commits - 1)
        late_size = late.commit("late").size
    yield Line(
        f"fork of {log.commits:,} commits, median",
        Figure(samples["ours"].median),
        Figure(samples["commit"].median, name="commit"),
        ratio(samples["ours"], samples["commit"]),
        Target(COMMITS_MAX),
        samples=samples,
    )
    yield Line(
        "fork, bytes in the log",
        Figure(late_size, "B"),
        Figure(early_size, "B", "fork at the first commit"),
        late_size / early_size,
        Target(1.1),
    )
