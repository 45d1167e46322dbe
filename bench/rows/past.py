"""Time travel: the state at any commit."""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec

import perdure
from bench.harness import Operation, interleave, ratio
from bench.registry import row
from bench.report import Figure, Line, Target
from bench.workplace import Message, Ticket, Workplace, messages, ticket
from perdure import Agent

LOOK_MAX_S = 0.050
SCATTERED_PART = 20
"""The agent whose every message changes is filled more slowly: it has fewer commits."""


@row("past")
def past(workplace: Workplace) -> Iterator[Line]:
    """`agent.at(seq).state` at random commits of 100,000, on a state of 1 MB, in a warm process.

    First an agent whose state is a window of messages: each commit appends one, drops the oldest,
    and counts. Then one, of a twentieth of the commits, whose commits replace a message anywhere:
    its snapshots can share little. Typed state included. The contestant is the state as one msgpack
    file, read and decoded to plain dicts.
    """
    log = workplace.long_log()
    with perdure.open(log.path) as store:
        agent = store.agent(log.agent, Ticket)
        what = f"at(seq) of {log.commits:,} commits, a window"
        yield _look_back(workplace, agent, log.commits, what)
    path = workplace.folder() / "scattered.db"
    commits = workplace.sizes.log_commits // SCATTERED_PART
    with perdure.open(path, durability="os") as store:
        agent = _scatter(
            store.agent("a", Ticket, initial=ticket(workplace.sizes.window_messages)), commits
        )
        what = f"at(seq) of {agent.seq:,} commits, changes anywhere"
        yield _look_back(workplace, agent, agent.seq, what)


def _scatter(agent: Agent[Ticket], commits: int) -> Agent[Ticket]:
    chosen = random.Random(8)
    given = messages(1000)
    count = len(agent.state.messages)
    for number in range(commits):
        message: Message = given[number % len(given)]
        with agent.edit("message replaced") as draft:
            draft.messages[int(chosen.random() * count)] = message
    return agent


def _look_back(workplace: Workplace, agent: Agent[Ticket], commits: int, what: str) -> Line:
    count = workplace.sizes.looks_back
    chosen = random.Random(7)
    places = [1 + int(chosen.random() * commits) for _ in range(count + 2)]
    path = workplace.folder() / "state.msgpack"
    path.write_bytes(msgspec.msgpack.encode(agent.state.model_dump()))
    samples = interleave(
        {
            "ours": lambda number: agent.at(places[number]).state,
            "folded": _plain(agent, places),
            "decode": lambda _: msgspec.msgpack.decode(path.read_bytes()),
        },
        count,
        turn=2,
    )
    return Line(
        f"{what}, median",
        Figure(samples["ours"].median),
        Figure(samples["decode"].median, name="plain decode"),
        ratio(samples["ours"], samples["decode"]),
        Target(LOOK_MAX_S, of="ours"),
        f"p99 {Figure(samples['ours'].p99)}; without building the typed state "
        f"{Figure(samples['folded'].median)}; the state has {Figure(path.stat().st_size, 'B')}",
        samples=samples,
    )


def _plain(agent: Agent[Ticket], places: list[int]) -> Operation:
    return lambda number: agent.at(places[number]).plain
