"""What is called of an agent, on a log that grows."""

from __future__ import annotations

from itertools import islice
from typing import Any

from bench.growth.calls import Measure, call, often
from bench.growth.places import WINDOW, Place, slide
from perdure import Agent

PAGE = 20
SPREAD = 9
NEAR = 20
"""Commits of which less lies behind than behind the others."""


def _spread(place: Place) -> list[int]:
    """Commits all over the log: how far the last snapshot is differs."""
    return [NEAR + (place.length - NEAR) * part // SPREAD for part in range(SPREAD)]


@call("Store.agent", "Agent.state", history="log", what="Store.agent, Agent.state")
def open_agent(place: Place, measure: Measure) -> None:
    often(measure, lambda _: place.store.agent("a").state)


@call("Agent.edit", history="log")
def edit(place: Place, measure: Measure) -> None:
    agent = place.agent()
    often(measure, lambda number: slide(agent, number), 5)


@call("Agent.update", history="log")
def update(place: Place, measure: Measure) -> None:
    agent = place.agent()
    often(measure, lambda number: agent.update(lambda draft: draft.update(n=-number)), 5)


@call("Agent.edit", history="log", what="Agent.edit with a key that was used")
def edit_again(place: Place, measure: Measure) -> None:
    agent = place.agent()
    often(measure, lambda _: _keyed(agent, "the key"))


def _keyed(agent: Agent[dict[str, Any]], key: str) -> None:
    with agent.edit("keyed", key=key) as draft:
        draft["n"] = -1


@call("Agent.save", history="log")
def save(place: Place, measure: Measure) -> None:
    agent = place.agent()
    often(measure, lambda number: agent.save({"n": -number, "window": [number] * WINDOW}), 5)


@call("Agent.refresh", "Agent.follow", history="log")
def follow(place: Place, measure: Measure) -> None:
    agent, other = place.agent(), place.agent()

    def again(number: int) -> None:
        slide(other, number)
        agent.follow()
        agent.refresh()

    often(measure, again)


@call("Agent.drift", "Agent.seq", "Agent.exists", "Agent.id", "Agent.branch_name", history="log")
def drift(place: Place, measure: Measure) -> None:
    agent = place.agent()
    often(measure, lambda _: (agent.drift(), agent.exists, agent.seq, agent.id, agent.branch_name))


@call("Agent.undo", history="log")
def undo(place: Place, measure: Measure) -> None:
    agent = place.agent()

    def again(number: int) -> None:
        agent.undo()

    often(measure, again)


@call("Agent.redo", history="log")
def redo(place: Place, measure: Measure) -> None:
    agent = place.agent()
    for _ in range(4):
        agent.undo()
    often(measure, lambda _: agent.redo())


@call("Agent.undo", history="undos", what="Agent.undo behind as many undos")
def undo_more(place: Place, measure: Measure) -> None:
    agent = place.agent()
    often(measure, lambda _: agent.undo())


@call(
    "Agent.undo",
    "Agent.redo",
    history="toggles",
    what="Agent.undo and redo, in turns, behind as many",
)
def toggle(place: Place, measure: Measure) -> None:
    agent = place.agent()

    def again(number: int) -> None:
        agent.undo()
        agent.redo()

    often(measure, again)


@call("Agent.undo", history="tries", what="Agent.undo behind as many edits that were undone")
def undo_tried(place: Place, measure: Measure) -> None:
    agent = place.agent()
    often(measure, lambda _: agent.undo())


@call("Agent.redo", history="undos", what="Agent.redo of as many undos, behind an edit")
def redo_more(place: Place, measure: Measure) -> None:
    agent = place.agent()
    agent.update(lambda draft: draft.update(other=1))
    for _ in range((place.length // 2 - 5) // 10 * 10):  # as far from a snapshot each time
        agent.redo()
    often(measure, lambda _: agent.redo())


@call(
    "Agent.undo",
    "Agent.redo",
    history="group",
    growth="linear",
    what="Agent.undo and redo of as many edits of one group",
)
def undo_group(place: Place, measure: Measure) -> None:
    agent = place.agent()
    measure(agent.undo)
    measure(agent.redo)
    measure(agent.undo)


@call("Agent.edit", history="group", growth="linear", what="Agent.edit of as many items")
def edit_items(place: Place, measure: Measure) -> None:
    agent = place.agent()

    def again() -> None:
        with agent.edit() as draft:
            for number in range(place.length):
                draft["words"][number] = -1
                draft["words"].insert(number // 2, number)

    measure(again)


@call("Agent.rollback", history="log", what="Agent.rollback by ten commits")
def rollback(place: Place, measure: Measure) -> None:
    agent = place.agent()
    often(measure, lambda _: agent.rollback(agent.seq - 10))


@call("Agent.edit", "Agent.rollback", history="returns", what="Agent.edit, and back, as often")
def return_again(place: Place, measure: Measure) -> None:
    agent = place.agent()

    def again(number: int) -> None:
        slide(agent, 1 + number)
        agent.rollback(agent.seq - 1)

    often(measure, again, times=10)


@call("Agent.rollback", history="log", growth="linear", what="Agent.rollback to the first commit")
def rollback_all(place: Place, measure: Measure) -> None:
    agent = place.agent()
    measure(lambda: agent.rollback(1))


@call("Agent.adopt", history="log")
def adopt(place: Place, measure: Measure) -> None:
    agent = place.agent()
    measure(lambda: agent.adopt("side"))


@call("Agent.fork", history="log")
def fork(place: Place, measure: Measure) -> None:
    agent = place.agent()
    often(measure, lambda number: agent.fork(f"f{number}", at=1 + place.length * number // 5))


@call("Agent.delete_branch", history="log")
def delete_branch(place: Place, measure: Measure) -> None:
    agent = place.agent()
    measure(lambda: agent.delete_branch("side"))


@call("Agent.branch", history="log")
def branch(place: Place, measure: Measure) -> None:
    agent = place.agent()
    often(measure, lambda _: agent.branch("side").state)


@call("Agent.checkpoint", history="log")
def checkpoint(place: Place, measure: Measure) -> None:
    agent = place.agent()
    often(measure, lambda number: agent.checkpoint(f"c{number}"))


@call(
    "Agent.at",
    "AgentAt.state",
    "AgentAt.plain",
    "AgentAt.read",
    "AgentAt.commit",
    history="log",
    what="Agent.at a commit, AgentAt.state",
)
def at(place: Place, measure: Measure) -> None:
    agent = place.agent()
    for seq in _spread(place):
        measure(lambda seq=seq: agent.at(seq).state)  # type: ignore[misc]


@call("Agent.at", history="log", what="Agent.at a checkpoint")
def at_checkpoint(place: Place, measure: Measure) -> None:
    agent = place.agent()
    often(measure, lambda _: agent.at("near").state)


@call("Agent.at", history="log", growth="logarithmic", what="Agent.at a moment")
def at_moment(place: Place, measure: Measure) -> None:
    agent = place.agent()
    moments = [agent.commit(seq).at for seq in _spread(place)]
    for moment in moments:
        measure(lambda moment=moment: agent.at(moment).state)  # type: ignore[misc]


@call("Agent.diff", history="log")
def diff(place: Place, measure: Measure) -> None:
    agent = place.agent()
    for seq in _spread(place):
        measure(lambda seq=seq: agent.diff(seq, "main"))  # type: ignore[misc]


@call("Agent.commit", history="log")
def commit(place: Place, measure: Measure) -> None:
    agent = place.agent()
    often(measure, lambda number: agent.commit(1 + place.length * number // 5))


@call("Agent.log", history="log", what="Agent.log, the newest 20")
def newest(place: Place, measure: Measure) -> None:
    agent = place.agent()
    often(measure, lambda _: list(islice(agent.log(newest_first=True), PAGE)))


@call("Agent.log", history="log", what="Agent.log of all branches, the first 20")
def first_of_all(place: Place, measure: Measure) -> None:
    agent = place.agent()
    often(measure, lambda _: list(islice(agent.log(all_branches=True), PAGE)))


@call("Agent.log", history="log", growth="linear", what="Agent.log, all of it")
def whole_log(place: Place, measure: Measure) -> None:
    agent = place.agent()
    measure(lambda: list(agent.log()))


@call("Agent.verify", history="log", growth="linear")
def verify(place: Place, measure: Measure) -> None:
    agent = place.agent()
    measure(agent.verify)


@call("Agent.trim", history="log", growth="linear")
def trim(place: Place, measure: Measure) -> None:
    agent = place.agent()
    measure(lambda: agent.trim(place.length // 2))


@call("Agent.trim", history="log", growth="linear", what="Agent.trim by a few commits, again")
def trim_again(place: Place, measure: Measure) -> None:
    agent = place.agent()
    middle = place.length // 2
    agent.trim(middle)
    measure(lambda: agent.trim(middle + 5))


@call("Agent.branches", "Agent.checkpoints", history="names", growth="linear")
def names(place: Place, measure: Measure) -> None:
    agent = place.agent()
    measure(lambda: (agent.branches(), agent.checkpoints()))


@call(
    "Agent.edit",
    "Agent.fork",
    "Agent.checkpoint",
    history="names",
    what="Agent.edit, fork and checkpoint beside as many names",
)
def beside_names(place: Place, measure: Measure) -> None:
    agent = place.agent()

    def again(number: int) -> None:
        slide(agent, number)
        agent.fork(f"another-{number}")
        agent.checkpoint(f"one-{number}")

    often(measure, again)


@call("Agent.undo", "Agent.rollback", history="names", what="Agent.undo and rollback beside them")
def back_beside_names(place: Place, measure: Measure) -> None:
    agent = place.agent()
    for number in range(6):
        slide(agent, number)

    def again(number: int) -> None:
        agent.undo()
        agent.rollback(agent.seq - 1)

    often(measure, again)
