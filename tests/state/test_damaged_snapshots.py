"""A snapshot is a cache of the log: a damaged one costs time, and goes away when one says so."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Corrupt, SnapshotPolicy
from tests.cli.operator import Operator
from tests.damaging import Vandal, break_snapshots
from tests.state.conftest import Place

OFTEN = SnapshotPolicy(every_commits=2)
WAYS = ["a leaf", "a manifest"]


def fill(store: perdure.Store, edits: int = 6) -> dict[int, Any]:
    """An agent whose list has leaves of its own, which its snapshots share; its states."""
    agent = store.agent("a", initial={"items": ["x" * 1000] * 20, "n": 0})
    states: dict[int, Any] = {}
    for n in range(edits):
        with agent.edit("more") as draft:
            draft["items"].append("y" * 1000)
            draft["n"] = n
        states[agent.seq] = {**agent.state, "items": [*agent.state["items"]]}
    assert store.sizes("a").snapshots > 1
    return states


@pytest.mark.parametrize("how", WAYS)
def test_it_costs_no_state_and_heals(place: Place, how: str) -> None:
    """A byte of a leaf made `verify` fail for good: nothing took the snapshot away, and an agent
    with all of its past in order was Corrupt in every report."""
    store = place.open(snapshots=OFTEN)
    states = fill(store)
    known = store.agent("a")
    assert known.state == states[max(states)]
    break_snapshots(store, how)
    other = place.open(snapshots=OFTEN)
    for seq, state in states.items():
        assert other.agent("a").at(seq).state == state
    with pytest.raises(Corrupt, match="agent 'a', snapshot at commit") as caught:
        other.agent("a").verify()
    assert "`perdure verify a --heal` removes it" in str(caught.value)
    assert (caught.value.seq, caught.value.before) == (0, 0)
    proved = other.agent("a").verify(heal=True)
    assert proved.healed == len(caught.value.damages) > 0
    assert other.agent("a").verify().healed == 0
    for handle in (known, other.agent("a")):  # one had learned of leaves that are gone now
        for n in range(5):
            handle.refresh()
            with handle.edit("go on") as draft:
                draft["items"].append("z")
                draft["n"] = 100 + n
        assert place.open().agent("a").state == handle.state
    other.agent("a").verify()
    assert other.sizes("a").snapshots > proved.snapshots, "new ones are taken"


@pytest.mark.parametrize("how", WAYS)
def test_an_open_handle_goes_on_beside_it(place: Place, how: str) -> None:
    """Snapshots that it takes share the damaged leaf; they go, too."""
    store = place.open(snapshots=OFTEN)
    fill(store)
    agent = store.agent("a")
    break_snapshots(store, how)
    for n in range(5):
        with agent.edit("go on") as draft:
            draft["items"].append("z")
            draft["n"] = 100 + n
    assert place.open().agent("a").state == agent.state
    assert agent.verify(heal=True).healed
    assert place.open().agent("a").verify().healed == 0
    assert place.open().agent("a").state == agent.state


def test_who_reads_past_it_is_told(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    store = place.open(snapshots=OFTEN)
    states = fill(store)
    break_snapshots(store, "a leaf")
    with caplog.at_level(logging.WARNING, "perdure"):
        assert place.open().agent("a").state == states[max(states)]
    said = [record.getMessage() for record in caplog.records]
    assert any("snapshot at commit" in words and "verify a --heal" in words for words in said)


def test_healing_for_coroutines(place: Place) -> None:
    store = place.open(snapshots=OFTEN)
    fill(store)
    break_snapshots(store, "a leaf")

    async def main() -> None:
        async with perdure.open_async(place.url, durability="os") as other:
            agent = await other.agent("a")
            assert (await agent.verify(heal=True)).healed
            await agent.verify()

    asyncio.run(main())


@pytest.mark.parametrize("how", WAYS)
def test_beside_a_damaged_commit_nothing_that_is_needed_goes(place: Place, how: str) -> None:
    """A snapshot in front of the damage is only a cache; what is behind it has nothing else."""
    store = place.open(snapshots=OFTEN)
    states = fill(store)
    bad = Vandal(store, "a").damage("a byte of the payload")
    break_snapshots(store, how)
    agent = place.open().agent("a")
    with pytest.raises(Corrupt) as caught:
        agent.verify(heal=True)
    assert not [one for one in caught.value.damages if "snapshot" in one]
    assert any(f"commit {bad}" in one for one in caught.value.damages)
    assert store.sizes("a").snapshots > 1, "nothing goes while the log is not proved"
    agent.rollback(max(states))
    assert agent.state == states[max(states)]


def test_from_the_shell(tmp_path: Path) -> None:
    operator = Operator(tmp_path / "agents.db")
    with perdure.open(operator.path, durability="os", snapshots=OFTEN) as store:
        fill(store)
        break_snapshots(store, "a leaf")
    found = operator.type("verify")
    assert found.exit_code == 5
    assert "verify a --heal" in found.stdout
    healed = operator.json("verify", "a", "--heal")["agents"][0]
    assert (healed["ok"], healed["healed"] > 0) == (True, True)
    assert "healed" not in operator.json("verify")["agents"][0]


def test_repair_heals_too(tmp_path: Path) -> None:
    """It refused the whole store for a byte of a cache."""
    path = tmp_path / "agents.db"
    with perdure.open(path, durability="os", snapshots=OFTEN) as store:
        states = fill(store)
        break_snapshots(store, "a leaf")
    (proved,) = perdure.repair(path)
    assert proved.healed
    with perdure.open(path) as store:
        store.check_pages()
        store.agent("a").verify()
        assert store.agent("a").state == states[max(states)]
