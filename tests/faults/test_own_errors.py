"""Errors of ours that a signal's handler raises: they look like a refusal, and come in between."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel, model_validator

import perdure
from perdure.agents import Agent
from perdure.store import Store
from tests.faults.injecting import count, inject

KINDS: tuple[Callable[[], BaseException], ...] = (
    lambda: perdure.TimedOut("injected"),
    lambda: perdure.StoreUnavailable("injected"),
)

STEP = 29
"""Of the instructions, so many are gone on each time."""


class Counts(BaseModel):
    """Numbers, and what a hook makes of them: planning changes the plain state, too."""

    numbers: dict[str, int] = {}
    total: int = 0

    @model_validator(mode="after")
    def add_up(self) -> Counts:
        self.total = sum(self.numbers.values())
        return self


def _raise_all(draft: Any) -> None:
    for name in "abc":
        perdure.increment(draft.numbers, name, 10)


def _raised(store: Store, name: str) -> Agent[Counts]:
    agent = store.agent(name, Counts, initial=Counts(numbers=dict.fromkeys("abcz", 0)))
    agent.update(_raise_all)
    agent.update(_raise_all)
    return agent


def _save(agent: Agent[Counts]) -> None:
    agent.save(Counts(numbers={"a": 1, "b": 2, "c": 7, "d": 3}))


def _follow(agent: Agent[Counts]) -> None:
    agent.follow()


@pytest.mark.parametrize(
    "act", [Agent.undo, _save, lambda agent: agent.update(_raise_all), _follow]
)
def test_i6_an_error_of_ours_between_two_instructions_leaves_no_wrong_state(
    act: Callable[[Agent[Counts]], object],
) -> None:
    """The handler of SIGALRM called `refresh` of the handle whose undo its thread was just making.
    That was refused, by an error of ours, which the undo took for a refusal of its own: it put the
    inverse of an op back that was not applied yet. `refresh` showed the wrong number for good, and
    the next edit wrote it into the log."""
    store, numbers = perdure.open("memory://"), itertools.count()

    def scene() -> Agent[Counts]:
        agent = _raised(store, f"agent-{next(numbers)}")
        if act is _follow:
            store.agent(agent.id, Counts).update(_raise_all)
        return agent

    agent = scene()
    points, wheres = count(lambda: act(agent)), set()
    for at in range(1, points + 1, STEP):
        agent = scene()
        wheres.add(inject(lambda: act(agent), at, KINDS[at % len(KINDS)]).where.split(" ")[-1])  # noqa: B023 - called at once
        check(agent)
        agent.refresh()
        check(agent)
        agent.update(_raise_all)
        assert agent.state == store.agent(agent.id, Counts).state
    assert "apply_noting" in wheres or act not in (Agent.undo, _save)


def check(agent: Agent[Counts]) -> None:
    """What a handle shows is the state of the log at its seq."""
    seq, shown = agent.seq, agent.state.model_dump()
    assert shown == agent.at(seq).state.model_dump()
    assert not agent.drift()
