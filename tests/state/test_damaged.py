"""A log holds a commit that cannot be read: what was before it stays readable, and usable."""

from __future__ import annotations

import asyncio
import contextlib
import re
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

import perdure
from perdure import Corrupt
from perdure.core.format import chain
from perdure.core.format.chain import LogTail
from perdure.storage.appending import Append, Appended
from perdure.storage.log import snapshots
from perdure.storage.sqlite.connection import checksum_vfs
from tests.damaging import FOLDABLE, KINDS, Vandal, good
from tests.state.conftest import Place

EDITS = 4


@pytest.fixture(params=["at the head", "in the middle"])
def behind(request: pytest.FixtureRequest) -> int:
    """Commits behind the damaged one."""
    return 3 if request.param == "in the middle" else 0


def fill(store: perdure.Store) -> dict[int, Any]:
    """An agent, and its states by their commits."""
    agent = store.agent("a", initial={"n": 0})
    states: dict[int, Any] = {}
    for n in range(EDITS):
        with agent.edit("count") as draft:
            draft["n"] = n
            draft[f"key {n}"] = [n]
        states[agent.seq] = dict(agent.state)
    return states


@pytest.mark.parametrize("kind", KINDS)
def test_the_way_back(place: Place, kind: str, behind: int) -> None:
    """One commit that could not be folded made an agent with all of its past Corrupt for everybody:
    state, edit, rollback, fork and verify alike, for good."""
    store = place.open()
    states = fill(store)
    known = store.agent("a")  # of somebody who has it open
    assert known.state == states[max(states)]
    last = max(states)
    vandal = Vandal(store, "a")
    bad = vandal.damage(kind)
    vandal.go_on(behind)
    other = place.open()
    for seq, state in states.items():
        assert other.agent("a").at(seq).state == state
    head = bad + behind
    if kind in FOLDABLE:
        assert other.agent("a").state["n"] == (behind - 1 if behind else 77), "its change is there"
    else:
        with pytest.raises(Corrupt) as caught:
            _ = other.agent("a").state
        assert (caught.value.seq, caught.value.before) == (bad, last)
        assert f"agent 'a', commit {bad}" in str(caught.value)
        for command in (
            f"rollback a {last}",
            f"fork a before-{bad} --at {last}",
            f"state a --at {last}",
        ):
            assert f"`perdure {command}" in str(caught.value)
    check_verify(other, bad, head, kind)
    forked = other.agent("a").fork("way-out", at=last)
    assert forked.state == states[last]
    moved = other.agent("a").rollback(last)
    assert moved.untold == (kind != "a delta that does not fit"), "what else it said, nobody knows"
    for handle in (other.agent("a"), known):
        handle.refresh()
        assert handle.state == states[last]
        with handle.edit("go on") as draft:
            draft["n"] += 100
        states[last] = dict(handle.state)
        other.agent("a").refresh()
    check_what_is_left(place, store, bad, last)


def check_verify(store: perdure.Store, bad: int, head: int, kind: str) -> None:
    """It goes on behind the first, and says which states are lost."""
    with pytest.raises(Corrupt) as caught:
        store.agent("a").verify()
    error = caught.value
    assert any(f"commit {bad}" in one for one in error.damages)
    lost = re.search(r"the states of commits (\S+) cannot be read", str(error))
    if kind in FOLDABLE:
        assert lost is None
    else:
        assert lost is not None
        assert lost[1] == (f"{bad}–{head}" if head > bad else str(bad))


def check_what_is_left(place: Place, store: perdure.Store, bad: int, last: int) -> None:
    """The log is told whole, and what was before the damage can be carried elsewhere."""
    agent = store.agent("a")
    told = list(agent.log(all_branches=True, damaged_too=True))
    assert [commit.seq for commit in told] == [*range(1, told[-1].seq + 1)]
    assert bad in [commit.seq for commit in agent.log(damaged_too=True)]
    info = store.find("a")
    assert info is not None
    with perdure.open("memory://") as elsewhere:
        elsewhere.import_log(store.export_log(info, until=last))
        assert elsewhere.agent("a").seq == last
        elsewhere.agent("a").verify()
    store.agent("other").save({"n": 1}, "others are well")
    store.agent("other").verify()


@pytest.mark.parametrize("kind", KINDS)
def test_the_way_back_for_coroutines(place: Place, kind: str) -> None:
    store = place.open()
    states = fill(store)
    bad = Vandal(store, "a").damage(kind)

    async def main() -> None:
        async with perdure.open_async(place.url, durability="os") as other:
            agent = await other.agent("a")
            assert (await agent.at(bad - 1)).state == states[bad - 1]
            await agent.fork("way-out", at=bad - 1)
            await agent.rollback(bad - 1)
            assert agent.state == states[bad - 1]
            async with agent.edit("go on") as draft:
                draft["n"] += 100

    asyncio.run(main())
    store.close()


def test_several_damages_are_all_told(place: Place) -> None:
    """Verify ended at the first: who mended that met the next."""
    store = place.open()
    fill(store)
    vandal = Vandal(store, "a")
    first = vandal.damage("a byte of the payload")
    vandal.go_on(2)
    second = vandal.damage("a record that its type refuses")
    third = vandal.damage("a byte of the payload")
    with pytest.raises(Corrupt) as caught:
        store.agent("a").verify()
    for seq in (first, second, third):
        assert any(f"commit {seq}" in one for one in caught.value.damages)
    assert len(caught.value.damages) == 3
    assert caught.value.before == first - 1


def test_a_header_that_was_changed_and_still_reads(place: Place) -> None:
    """Only the commit behind it betrays that: what is in front of both stays good."""
    store = place.open()
    states = fill(store)
    vandal = Vandal(store, "a")
    header, payload = good(vandal)
    changed = header.replace(b"by a vandal", b"by a Vandal")
    seq = vandal.write(changed, payload)
    # What follows was linked to the header as it was; the store did not keep that one.
    true, vandal.tail = vandal.tail, LogTail(seq, chain.commit_id(header), vandal.backend.now())
    linked, payload = good(vandal)
    vandal.tail = true
    vandal.write(linked, payload)
    other = place.open()
    with pytest.raises(Corrupt) as caught:
        _ = other.agent("a").state
    assert caught.value.before == max(states)
    other.agent("a").rollback(max(states))
    assert other.agent("a").state == states[max(states)]


def test_a_state_behind_the_damage_is_read_from_its_snapshot(place: Place) -> None:
    """A byte of an old commit: what has a snapshot since reads as ever, and verify tells of it."""
    store = place.open()
    states = fill(store)
    vandal = Vandal(store, "a")
    bad = vandal.damage("a byte of the payload")
    state = {**states[bad - 1], "n": 1}
    header, payload = good(vandal)
    snapshot, _ = snapshots.write(state, snapshots.Leaves(), "a", 1, bad)
    vandal.write(header, payload, snapshot=snapshot)
    vandal.go_on(2)
    agent = place.open().agent("a")
    assert agent.state == {**state, "n": 1}
    with agent.edit("go on") as draft:
        draft["n"] = 5
    with pytest.raises(Corrupt, match=f"the states of commits {bad} cannot be read") as caught:
        agent.verify()
    assert len(caught.value.damages) == 1


def test_the_first_commit_is_damaged(place: Place) -> None:
    """There is no way back then, and no command is named that would not work."""
    store = place.open()
    store.agent("b").save({"n": 1})
    vandal = Vandal(store, "b")
    header, payload = good(vandal)
    fields = msgspec.msgpack.decode(header)
    fields[1], fields[3], fields[4], fields[6] = "a", 1, b"", []
    append = Append(
        "a", None, 1, 1, msgspec.msgpack.encode(fields), payload[:-1] + b"?", "main", None
    )
    (outcome,) = vandal.backend.append([append])
    assert isinstance(outcome, Appended)
    with pytest.raises(Corrupt, match="restore the agent from a copy") as caught:
        _ = store.agent("a").state
    assert (caught.value.seq, caught.value.before) == (1, 0)
    assert "rollback" not in str(caught.value)
    store.delete("a")
    assert store.agent("a", initial={"n": 7}).state == {"n": 7}
    store.agent("b").verify()


@pytest.mark.parametrize("gone", ["the end", "all", "the beginning"])
def test_a_log_that_lost_commits_is_not_a_shorter_one(tmp_path: Path, gone: str) -> None:
    """The rows of a log's end were gone: `export` wrote a shorter one with a root of its own, and
    said that it was done; a log without any was exported as one of no commits."""
    path = tmp_path / "a.db"
    with perdure.open(path, durability="os") as store:
        last = max(fill(store))
        info = store.find("a")
        assert info is not None
    kept = {"the end": (1, last - 2), "all": (0, 0), "the beginning": (3, last)}[gone]
    with contextlib.closing(apsw.Connection(str(path), vfs=checksum_vfs())) as db:
        db.execute("DELETE FROM commits WHERE id & 0xffff NOT BETWEEN ? AND ?", kept)
    with perdure.open(path) as store:
        for read in (
            lambda: list(store.export_log(info)),
            lambda: list(store.agent_of(info).log(all_branches=True)),
            lambda: store.agent_of(info).verify(),
        ):
            with pytest.raises(Corrupt, match=r"not there|missing|place of another one"):
                read()
