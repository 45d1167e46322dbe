"""Forks of forks, and rollbacks behind rollbacks, with nothing between that stays: one of many has
a snapshot, so that a state is read in the same time however many there were (I9)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from perdure import Agent, SnapshotPolicy
from perdure.errors import Corrupt
from perdure.state import jump_commits
from perdure.storage.log.reader import LogReader
from tests.state.conftest import Place
from tests.work import work_of

FEW, MANY = 80, 800
"""After how many moves a state is read; of the few none has a snapshot yet."""

Try = Callable[[Agent[Any], int], Agent[Any]]


def tried(agent: Agent[Any], number: int) -> None:
    with agent.edit("try") as draft:
        draft["n"] = number


def rolled_back(agent: Agent[Any], number: int) -> Agent[Any]:
    before = agent.seq
    tried(agent, number)
    agent.rollback(before)
    return agent


def forked(agent: Agent[Any], number: int) -> Agent[Any]:
    """The next one begins where this one began."""
    fork = agent.fork(f"try-{number}")
    before = fork.seq
    tried(fork, number)
    return fork.fork(f"next-{number}", at=before)


def adopted(agent: Agent[Any], number: int) -> Agent[Any]:
    agent.fork(f"try-{number}")
    agent.adopt(f"try-{number}")
    return agent


def begun(place: Place, **more: Any) -> Agent[Any]:
    agent = place.open(**more).agent("a")
    agent.save({"n": -1, "text": "as it was"})
    return agent


@pytest.mark.parametrize("move", [rolled_back, forked, adopted])
def test_a_state_is_read_in_the_same_time_after_many_tries(place: Place, move: Try) -> None:
    """An agent tried, and went back to where it had begun, time and again. Each of these commits
    leads to the one before, none has a delta, and the snapshots were all with what it went back
    from: after ten thousand tries each edit went over ten thousand commits."""
    agent, works = begun(place), []
    for number in range(MANY):
        agent = move(agent, number)
        if number + 1 in (FEW, MANY):
            fresh = place.open().agent("a", branch=agent.branch_name)
            works.append(work_of(partial(getattr, fresh, "state")))
    assert works[1] < 1.5 * works[0]
    assert agent.refresh() == {"n": -1, "text": "as it was"}
    agent.verify()


def test_who_wants_no_snapshots_by_weight_gets_none(place: Place) -> None:
    agent = begun(place, snapshots=SnapshotPolicy(by_weight=False))
    for number in range(120):
        agent = rolled_back(agent, number)
    assert place.opened[0].sizes().snapshots == 0


def test_a_move_is_the_way_back_also_where_no_state_can_be_had(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes by commits, and not by what they make."""
    agent = begun(place)
    for number in range(FEW):
        rolled_back(agent, number)
    before, asked = agent.seq, list[int]()

    def fails(reader: LogReader, seq: int, **more: Any) -> None:
        asked.append(seq)
        raise Corrupt("is damaged")

    tried(agent, FEW)
    monkeypatch.setattr(jump_commits, "WEIGHT_LONG", 1)
    place.opened[0].runner.context.snapshots = SnapshotPolicy(weight_min=1)
    with monkeypatch.context() as patch:
        patch.setattr(LogReader, "fold", fails)
        agent.rollback(before)
    assert asked[:1] == [before]
    assert agent.refresh() == {"n": -1, "text": "as it was"}
