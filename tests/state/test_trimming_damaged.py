"""Retention goes on where a commit cannot be read: nothing of the way back is removed."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Corrupt, NotFound, Store, replication
from perdure.agents import Agent
from perdure.core.format import remains
from perdure.storage.retention import RETENTION
from tests.damaging import FOLDABLE, KINDS, Vandal
from tests.state.conftest import Place
from tests.state.copies import backend_of

FEW = ["a delta that does not fit", "a record that is no map", "a byte of the payload", "no header"]


def fill(store: Store, name: str = "a", count: int = 5) -> Agent[Any]:
    agent = store.agent(name, initial={"n": 0})
    for n in range(count):
        agent.save({"n": n + 1}, "count")
    return agent


def removed_of(store: Store) -> list[int]:
    rows = backend_of(store).read(1, 1, 1000)
    return [row.seq for row in rows if row.payload == remains.REMOVED]


def check_damage(agent: Agent[Any], bad: int, before: int) -> None:
    """`verify` tells of the damage, of the way back, and of nothing else."""
    with pytest.raises(Corrupt) as caught:
        agent.verify()
    assert caught.value.seq == bad
    assert {one.split(":")[0] for one in caught.value.damages} <= {
        f"agent 'a', commit {bad}",
        f"agent 'a', commit {bad + 1}",
    }
    assert agent.at(before).state is not None


@pytest.mark.parametrize("kind", KINDS)
def test_what_went_on_behind_damage_is_trimmed(place: Place, kind: str) -> None:
    """Story: once a commit was damaged, `trim` stopped at it for good: the log of an agent that had
    been rolled back and lived on for years only grew."""
    store = place.open()
    last = fill(store).seq
    vandal = Vandal(store, "a")
    bad = vandal.damage(kind)
    vandal.go_on(3)
    agent = place.open().agent("a")
    agent.rollback(last)
    for n in range(10):
        agent.save({"n": 100 + n})
    done = agent.trim(agent.seq - 2)
    assert done.removed >= 8
    assert min(removed_of(store)) > bad or kind == "a delta that does not fit"
    fits = kind != "a delta that does not fit"  # that one can be read, and is history
    assert (bad in removed_of(store)) != fits, "what nobody can read stays as evidence"
    assert agent.state == {"n": 109}
    agent.update(lambda state: state.update(n=7))
    agent.undo()
    agent.fork("beside", at=agent.seq - 2)
    assert place.open().agent("a").state == {"n": 109}
    if fits:
        check_damage(agent, bad, 1)
    else:
        agent.verify()
    assert agent.trim(agent.seq).removed
    assert agent.trim(agent.seq).removed == 0
    with pytest.raises(NotFound):
        _ = agent.at(bad + 6).state
    if fits:
        assert agent.at(3).state == {"n": 2}, "what a copy can have is whole"
        assert agent.fork("old", at=3).state == {"n": 2}
        agent.trim(agent.seq)
        assert agent.branch("old").state == {"n": 2}
    agent.trim(timedelta(0))
    agent.trim(datetime.now(UTC))
    assert place.open().agent("a").state == {"n": 109}


@pytest.mark.parametrize("kind", FEW)
@pytest.mark.parametrize("behind", [0, 3])
def test_the_way_back_stays(place: Place, kind: str, behind: int) -> None:
    """The branch is at the damage still, or behind it: whoever reads it hears of that, not of
    retention, and can go back to the last state before it, whatever the horizon is."""
    store = place.open()
    last = fill(store).seq
    vandal = Vandal(store, "a")
    bad = vandal.damage(kind)
    vandal.go_on(behind)
    place.open().agent("a").fork("beside", at=last).save({"n": -1})
    agent = place.open().agent("a")
    assert agent.trim(timedelta(hours=1)).removed == 0
    for before in (bad, bad + 1, agent.log(all_branches=True, damaged_too=True)):
        where = before if isinstance(before, int) else max(commit.seq for commit in before)
        agent.trim(
            timedelta(0) if where > bad + 1 and kind not in FOLDABLE else min(where, bad + 1)
        )
        with suppress_foldable(kind), pytest.raises(Corrupt) as caught:
            _ = place.open().agent("a").state
        if kind not in FOLDABLE:
            assert (caught.value.seq, caught.value.before) == (bad, last)
            check_damage(agent, bad, last)
        assert agent.at(last).state == {"n": 5}
        assert agent.branch("beside").state == {"n": -1}
    assert bool(removed_of(store)) == (kind == "a delta that does not fit")
    agent.rollback(last)
    assert agent.state == {"n": 5}
    agent.update(lambda state: state.update(n=6))


class suppress_foldable(suppress):  # noqa: N801
    """Nothing is raised by pytest's `raises` where even the damaged commit's own change is had."""

    def __init__(self, kind: str) -> None:
        super().__init__(*((pytest.fail.Exception,) if kind in FOLDABLE else ()))


def test_damage_at_the_horizon_is_found_by_verify(place: Place) -> None:
    """What is behind the horizon builds on it; before the horizon no state is looked at."""
    store = place.open()
    last = fill(store).seq
    vandal = Vandal(store, "a")
    bad = vandal.damage("a delta that does not fit")
    vandal.go_on(9)
    agent = place.open().agent("a")
    assert agent.trim(bad + 5).removed
    check_damage(agent, bad, last)
    agent.rollback(last)
    agent.update(lambda state: state.update(n=1))
    check_damage(agent, bad, last)


def test_a_snapshot_behind_damage_is_kept_as_a_state(place: Place) -> None:
    """It may be all that there is of the state that everything goes on from."""
    store = place.open()
    fill(store)
    vandal = Vandal(store, "a")
    bad = vandal.damage("a byte of the payload")
    agent = place.open().agent("a")
    agent.rollback(bad - 1)
    agent.update(lambda state: state.update(n=50))
    agent.checkpoint("here")  # with a snapshot
    good = agent.seq
    rows = backend_of(store).read(1, good - 1, good - 1)
    assert rows and agent.trim(good).bases
    agent.update(lambda state: state.update(n=51))
    agent.trim(agent.seq)
    assert agent.at("here").state == {"n": 50}
    check_damage(agent, bad, good)


@pytest.mark.parametrize("kind", [*FEW, "a tag that is no text"])
def test_a_damaged_word_of_retention_is_said_anew(place: Place, kind: str) -> None:
    """All that asked what retention had removed, as each fork and rollback does, failed at the
    commit that says so."""
    store = place.open()
    agent = fill(store)
    assert agent.trim(4).removed == 1
    vandal = Vandal(store, "a", RETENTION)
    bad = vandal.damage(kind)
    agent = place.open().agent("a")
    agent.fork("beside", at=4)
    agent.rollback(4)
    agent.update(lambda state: state.update(n=9))
    assert agent.branch("beside").state == {"n": 3}
    with pytest.raises(NotFound):
        _ = agent.at(2).state
    agent.trim(agent.seq)
    assert place.open().agent("a").state == {"n": 9}
    assert agent.branch("beside").state == {"n": 3}
    if kind != "a delta that does not fit":  # that one can be read, and is history
        check_damage(agent, bad, 1)


@pytest.mark.parametrize("way", ["follow", "migrate", "restore", "export"])
@pytest.mark.parametrize("gone_back", [False, True])
def test_what_a_copy_can_have_is_whole(
    place: Place, tmp_path: Path, way: str, gone_back: bool
) -> None:
    """A copy comes as far as the damage, and not to the word behind it that says what retention
    removed: what was before the damage must not be removed, or the copy has holes."""
    store = place.open()
    last = fill(store, count=8).seq
    Vandal(store, "a").damage("a byte of the payload")
    agent = place.open().agent("a")
    if gone_back:
        agent.rollback(last)
        for n in range(5):
            agent.save({"n": 100 + n})
    agent.trim(timedelta(0))
    other = str(tmp_path / "other.db")
    if way == "follow":
        with replication.following(place.url, other) as follower:
            follower.drain()
        replication.promote(other, place.url, take_incomplete=True)
    elif way == "migrate":
        replication.migrate(place.url, other, take_incomplete=True)
    elif way == "restore":
        moment = datetime(9999, 1, 1, tzinfo=UTC)
        replication.restore(place.url, other, moment, take_incomplete=True)
    else:
        info = store.find("a")
        assert info is not None
        with perdure.open(other, durability="os") as there:
            there.import_log(list(store.export_log(info, until=last)))
    with perdure.open(other, durability="os") as there:
        agent = there.agent("a")
        assert agent.state == {"n": 8}
        agent.verify()
        assert agent.trim(agent.seq).removed
        agent.verify()


def test_an_export_up_to_a_commit_before_the_word_says_what_is_missing(place: Place) -> None:
    """An export up to a commit before the word of retention was written, and could not be taken in
    anywhere: Corrupt. Then it was refused, also where each error named it as the way out."""
    store = place.open()
    agent = fill(store, count=8)
    said = agent.trim(5).seq
    agent.refresh()
    for n in range(8):
        agent.save({"n": 100 + n})
    info = store.find("a")
    assert info is not None
    again = agent.trim(said + 4).seq
    for until in (2, 3, said - 1, said):
        with pytest.raises(NotFound, match=f"commit {until}: its state was removed by retention"):
            list(store.export_log(info, until=until))
    for end in (said + 3, said + 5, again, None):
        entries = list(store.export_log(info, until=end))
        assert len(entries) == (end or again) + (end not in (again, None))
        with perdure.open("memory://") as there:
            there.import_log(entries)
            there.agent("a").verify()
            assert there.agent("a").state == agent.at(min(end or again, again - 1)).state


@pytest.mark.parametrize("kind", FEW)
def test_what_an_earlier_trim_left_stays_readable_up_to_damage(place: Place, kind: str) -> None:
    """Story: an agent was trimmed each night. A commit was damaged; the history up to it stays, it
    was said. The next night's trim kept those commits, and took the state with which they begin:
    none of them could be read any more, neither here nor in a copy that was whole."""
    store = place.open()
    agent = fill(store, count=10)
    agent.trim(6)
    for n in range(10):
        agent.save({"n": 100 + n}, "count")
    last = agent.seq
    vandal = Vandal(store, "a")
    bad = vandal.damage(kind)
    vandal.go_on(3)
    agent = place.open().agent("a")
    agent.rollback(last)
    for n in range(3):
        agent.save({"n": 200 + n}, "goes on")

    def readable() -> list[int]:
        looks = place.open().agent("a")
        found = []
        for seq in range(2, bad):
            with suppress(NotFound, Corrupt):
                assert "n" in looks.at(seq).state
                found.append(seq)
        return found

    before = readable()
    assert last in before
    for _ in range(2):
        agent.trim(agent.seq)
        if kind != "a delta that does not fit":  # that one can be read, and is history
            assert readable() == before
        agent.save({"n": 300}, "goes on")
