"""Every call of an agent with a commit that cannot be read either works or says the way back; and
what holds for one agent holds up no other, wherever the store is copied to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

import perdure
from perdure import Corrupt, replication
from perdure.agents import Agent
from tests.damaging import Vandal
from tests.state.conftest import Place

KINDS = [
    "a delta that does not fit",
    "a record that is no map",
    "a byte of the payload",
    "no header",
]


def fill(store: perdure.Store, name: str = "a") -> Agent[Any]:
    agent = store.agent(name, initial={"n": 0})
    for n in range(3):
        agent.save({"n": n + 1}, "count")
    return agent


def calls(agent: Agent[Any], last: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """Calls that touch what is damaged, and read more than heads. `trim` works, and takes what the
    others look at: see `test_trimming_damaged`."""
    yield "state", lambda: agent.state
    yield "at", lambda: agent.at(datetime.now(UTC)).state
    yield "diff", lambda: agent.diff(last, "main")
    yield "log", lambda: list(agent.log())
    yield "undo", agent.undo
    yield "redo", agent.redo
    yield "checkpoint", lambda: agent.checkpoint("point")
    yield "drift", agent.drift
    yield "save", lambda: agent.save({"n": 77})
    yield "update", lambda: agent.update(lambda state: state.update(n=7))
    yield "verify", agent.verify


@pytest.mark.parametrize("kind", KINDS)
def test_each_call_works_or_says_the_way_back(place: Place, kind: str) -> None:
    """Whoever meets damage hears of it with a command that leads out, by whatever call."""
    store = place.open()
    whole = fill(store)
    last, moment = whole.seq, whole.commit("main").at  # by the store's clock, not by this process's
    vandal = Vandal(store, "a")
    bad = vandal.damage(kind)
    vandal.go_on(2)
    agent = place.open().agent("a")
    met: dict[str, Corrupt] = {}
    for name, call in calls(agent, last):
        try:
            call()
        except Corrupt as error:
            met[name] = error
    assert "verify" in met
    for name, found in met.items():
        assert (found.seq, found.before) == (bad, last), name
        assert f"`perdure rollback a {last}" in str(found), name
    # What was before the damage works as ever.
    assert agent.at(moment).state == agent.at(last).state == {"n": 3}
    assert agent.diff(1, last)
    assert agent.fork("way-out", at=last).state == {"n": 3}
    agent.adopt("way-out")
    assert agent.state == {"n": 3}
    agent.rollback(last)
    agent.update(lambda state: state.update(n=10))
    agent.undo()
    agent.redo()
    assert agent.state == {"n": 10}
    agent.undo()
    agent.undo()
    assert agent.state == {"n": 2}, "what was before the damage is undone, too"
    agent.checkpoint("behind it")
    assert place.open().agent("a").at("behind it").state == {"n": 2}
    store.delete("a", purge=True)


def spoilt(place: Place, kind: str) -> int:
    """A store with one damaged agent among others; the last good commit of that one."""
    store = place.open()
    last = 0
    for name in "abc":
        last = fill(store, name).seq
    vandal = Vandal(store, "b")
    vandal.damage(kind)
    vandal.go_on(2)
    fill(store, "d")
    return last


def check_others(other: Place, last: int, kind: str) -> None:
    store = other.open()
    for name in "acd":
        store.agent(name).verify()
        assert store.agent(name).state == {"n": 3}
    info = store.find("b")
    assert info is not None
    if kind == "a delta that does not fit":  # sound by its hashes: all of it came
        assert info.seq > last
        store.agent("b").rollback(last)
    else:
        assert info.seq == last
        store.agent("b").verify()
    assert store.agent("b").state == {"n": 3}


@pytest.mark.parametrize("kind", ["a delta that does not fit", "a byte of the payload"])
def test_the_others_move_without_it(place: Place, other: Place, kind: str) -> None:
    """One agent with a damaged commit held up the copies of all."""
    last = spoilt(place, kind)
    named = [] if kind == "a delta that does not fit" else [("b", last + 1)]
    with replication.following(place.url, other.url) as follower:
        follower.drain()
        assert [(one.agent, one.seq) for one in follower.aside] == named
    if named:
        with pytest.raises(replication.IncompleteError, match="agent 'b'"):
            replication.promote(other.url, place.url)
    replication.promote(other.url, place.url, take_incomplete=True)
    check_others(other, last, kind)


@pytest.mark.parametrize("way", ["migrate", "restore"])
def test_moves_name_it(place: Place, other: Place, way: str) -> None:
    last = spoilt(place, "a byte of the payload")

    def move(*, take_incomplete: bool) -> None:
        if way == "migrate":
            replication.migrate(place.url, other.url, take_incomplete=take_incomplete)
        else:
            moment = datetime(9999, 1, 1, tzinfo=UTC)
            replication.restore(place.url, other.url, moment, take_incomplete=take_incomplete)

    with pytest.raises(replication.IncompleteError) as caught:
        move(take_incomplete=False)
    assert [(one.agent, one.seq) for one in caught.value.found] == [("b", last + 1)]
    move(take_incomplete=True)
    check_others(other, last, "a byte of the payload")
