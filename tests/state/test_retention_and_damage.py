"""Retention and damage in one log: what is whole before the damage is whole in each copy.

Story: an agent was trimmed each night, and a bit flipped. The word of retention, which says what is
removed, is behind almost every commit; a copy that came as far as the damage lacked it. `verify`
called the copy damaged, its export was taken in nowhere; or the agent arrived without a state. The
way out that each error named, an export up to the damage, was refused. And where the word itself
was damaged, no command made it good again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Corrupt, NotFound, Store, replication
from perdure.agents import Agent
from perdure.core.format import chain, envelope, remains
from perdure.model import AgentInfo, Commit
from perdure.storage.log.chunk_size import CHUNK_FIRST
from perdure.storage.log.reader import LogReader
from perdure.storage.port import StoredCommit
from perdure.storage.retention import RETENTION
from perdure.transfer.migration import Migration
from tests.damaging import flip
from tests.state.conftest import Place, place_of
from tests.state.copies import backend_of

SEEDS = range(15)
WAYS = ["migrate", "promote", "lost", "restore", "export"]
END = datetime(9999, 1, 1, tzinfo=UTC)


def is_word(commit: Commit) -> bool:
    return commit.branch == RETENTION


def is_damaged(row: StoredCommit) -> bool:
    """True if a payload is neither what its header was made for, nor what retention leaves."""
    commit = chain.read_header(row.header, "")
    if row.payload == remains.REMOVED:
        return False
    with suppress(Corrupt):
        whole = row.payload.startswith(remains.MAGIC)
        payload = remains.payload_of(row.payload, "") if whole else row.payload
        return bool(envelope.digest(payload) != commit[13])
    return True


def beside_the_link(header: bytes, bit: int) -> int:
    """Returns a bit of a header that is not one of its predecessor's id: if that is damaged, nobody
    can tell which of the two commits is."""
    prev = chain.read_header(header, "")[4]
    place = header.index(prev) * 8
    bit %= 8 * (len(header) - len(prev))
    return bit if bit < place else bit + 8 * len(prev)


class Life:
    """An agent with a past: edits, branches, checkpoints, rollbacks, and retention between them."""

    def __init__(self, place: Place, seed: int) -> None:
        self.random = random.Random(seed)
        self.place = place
        store = place.open()
        self.agent: Agent[Any] = store.agent("a", initial={"n": 0, "of": ["main"]})
        self.agent.save({"n": 1, "of": ["main"]}, "begun")
        self.sides: list[str] = []
        for n in range(self.random.randint(8, 30)):
            self._act(n + 2)
        self._trim()
        for n in range(self.random.randint(0, 12)):
            self._act(n + 100)
        self.truth = dict(self.states(place.open()))

    def _act(self, n: int) -> None:
        agent = self.agent
        kind = self.random.choice(["edit"] * 8 + ["fork", "side", "side", "point", "back", "trim"])
        with suppress(NotFound, perdure.Conflict):
            if kind == "edit":
                agent.save({"n": n, "of": ["main", n]}, f"said {n}")
            elif kind == "fork":
                at = self.random.randint(1, agent.seq)
                agent.fork(f"side-{n}", at=at)
                self.sides.append(f"side-{n}")
            elif kind == "side" and self.sides:
                name = self.random.choice(self.sides)
                agent.branch(name).save({"n": n, "of": [name]}, "beside")
            elif kind == "point":
                agent.checkpoint(f"point-{n}")
            elif kind == "back":
                agent.rollback(self.random.randint(1, agent.seq))
            elif kind == "trim":
                self._trim()

    def _trim(self) -> None:
        with suppress(Corrupt):
            self.agent.trim(self.random.randint(2, max(2, self.agent.seq)))
            self.agent.refresh()

    def states(self, store: Store, last: int = 1 << 30) -> Iterator[tuple[int, Any]]:
        agent = store.agent("a")
        info = backend_of(store).agent("a")
        assert info is not None
        for seq in range(1, min(info.seq, last) + 1):
            with suppress(NotFound, Corrupt):
                yield seq, agent.at(seq).plain

    def rows(self) -> list[StoredCommit]:
        backend = backend_of(self.place.open())
        info = backend.agent("a")
        assert info is not None
        return backend.read(info.no, 1, info.seq)

    def damage(self) -> list[int]:
        """Flips a bit in one or two commits, and trims again in some lives; returns the seqs of
        those that are damaged then. The header of the last one, nothing proves."""
        before, store = self.rows(), self.place.open()
        found = {*self.random.sample(range(3, len(before)), self.random.choice([1, 1, 2]))}
        words = [commit.seq for commit in self.agent.log(all_branches=True) if is_word(commit)]
        if words and self.random.random() < 0.3:
            found = {*[*found][1:], self.random.choice(words)} - {len(before)}
        found = {seq for seq in found if seq - 1 not in found}  # nothing would prove the first
        for seq in found or {3}:
            # What ends a page of the feed has come before the next one shows that it is damaged.
            column = self.random.choice(["header", "payload"]) if seq < CHUNK_FIRST else "payload"
            bit = self.random.randrange(1 << 20)
            if column == "header":
                bit = beside_the_link(before[seq - 1].header, bit)
            flip(store, "a", seq, column, bit)
        if self.random.random() < 0.4:  # the next night
            with suppress(Corrupt):
                self.place.open().agent("a").trim(self.random.choice([*found, 3]))
        return [
            old.seq
            for old, new in zip(before, self.rows(), strict=False)
            if old.header != new.header or (old.payload != new.payload and is_damaged(new))
        ]

    def main_at(self, seq: int) -> int:
        """Returns the head of main as of a commit, by headers that are whole."""
        store = self.place.open()
        info = backend_of(store).agent("a")
        assert info is not None
        commits = LogReader(backend_of(store), info).commits(1, seq, newest_first=True)
        return next(commit.seq for commit in commits if commit.branch == "main")


@contextmanager
def copied(place: Place, other: str, way: str, until: int) -> Iterator[Store]:
    if way == "migrate":
        replication.migrate(place.url, other, take_incomplete=True)
    elif way == "restore":
        replication.restore(place.url, other, END, take_incomplete=True)
    elif way == "export":
        store = place.open()
        info = store.find("a")
        assert info is not None
        with perdure.open(other, durability="os") as there, suppress(NotFound):
            there.import_log(list(store.export_log(info, until=until)))
    else:
        with replication.following(place.url, other) as follower:
            follower.drain()
        source = None if way == "lost" else place.url
        replication.promote(other, source, take_incomplete=True)
    with perdure.open(other, durability="os") as there:
        yield there


def check_lives(there: Store, state: Any) -> None:
    """It is verified, read, trimmed and edited, and copied on, as any other."""
    agent = there.agent("a")
    agent.verify()
    assert agent.state == state
    assert list(agent.log(all_branches=True))
    for name in agent.branches():
        with suppress(NotFound):  # a branch that was deleted since, which retention did not keep
            _ = agent.branch(name.name).state
    agent.save({**state, "on": 1}, "goes on")
    agent.trim(agent.seq)
    agent.verify()
    agent.refresh()
    assert agent.state == {**state, "on": 1}
    info = there.find("a")
    assert info is not None
    with perdure.open("memory://") as elsewhere:
        elsewhere.import_log(list(there.export_log(info)))
        elsewhere.agent("a").verify()
        assert elsewhere.agent("a").state == {**state, "on": 1}


@pytest.fixture
def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Another place, of another kind from seed to seed."""
    (tmp_path / "other").mkdir()
    kind = ["memory", "sqlite", "postgres"][request.getfixturevalue("seed") % 3]
    made = place_of(kind, tmp_path / "other")
    kept = [] if made.durable else [made.open()]
    yield made
    made.close()
    kept.clear()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_copy_is_whole_up_to_the_damage(place: Place, elsewhere: Place, seed: int) -> None:
    life = Life(place, seed)
    damaged = life.damage()
    if not damaged:  # what was removed anyway is removed again
        place.open().agent("a").verify()
        return
    last = damaged[0] - 1
    head = life.main_at(last)
    readable = dict(life.states(place.open(), last))
    assert readable == {seq: one for seq, one in life.truth.items() if seq <= last}
    with copied(place, elsewhere.url, WAYS[seed % len(WAYS)], last) as there:
        found = there.find("a")
        assert (found is not None) == (head in readable), "without a state it stays where it is"
        if found is None:
            return
        assert dict(life.states(there, last)) == readable
        check_lives(there, readable[head])


def trimmed(place: Place, count: int = 30) -> Agent[Any]:
    agent = place.open().agent("a", initial={"n": 0})
    for n in range(count):
        agent.save({"n": n + 1}, "count")
    agent.trim(20)
    agent.refresh()
    return agent


def test_a_damaged_word_of_retention_is_told_once_and_said_anew(place: Place) -> None:
    """Story: a bit flipped in the commit that says what retention removed. `verify` named each of
    the emptied commits as damaged, and all states as lost; the next trim did not make it better."""
    agent = trimmed(place)
    word = agent.log(all_branches=True)
    (bad,) = [commit.seq for commit in word if commit.branch == RETENTION]
    agent.save({"n": 100}, "later")
    flip(place.open(), "a", bad, "payload", -20)
    agent = place.open().agent("a")
    for n in range(2):
        with pytest.raises(Corrupt) as caught:
            agent.verify()
        assert {one.split(":")[0] for one in caught.value.damages} == {f"agent 'a', commit {bad}"}
        lost, way = (caught.value.hint or "").splitlines()
        assert lost == f"the states of commits {bad} cannot be read"
        assert "perdure trim a --before 1" in way
        assert [agent.at(seq).plain["n"] for seq in (19, 20, bad - 1)] == [18, 19, bad - 2]
        with pytest.raises(NotFound, match="removed by retention"):
            agent.at(10).plain
        agent.fork(f"beside-{n}", at=20).save({"n": -1})
        said = agent.trim(21).seq
        assert not said or LogReader(backend_of(place.opened[0]), agent_info(place)).trim()
        agent.refresh()
    found = LogReader(backend_of(place.open()), agent_info(place)).trim()
    assert found is not None and not found.found and found.has_removed(10)


def agent_info(place: Place) -> AgentInfo:
    info = place.open().find("a")
    assert info is not None
    return info


def test_damage_before_the_horizon_leaves_the_agent_where_it_is(place: Place) -> None:
    """Story: a bit flipped in the header of a commit that retention had emptied. The agent was
    moved as far as that, and had no state there."""
    trimmed(place)
    flip(place.open(), "a", 10, "header", 90)
    with perdure.open("memory://left-out") as there:
        replication.migrate(place.url, "memory://left-out", take_incomplete=True)
        assert there.find("a") is None
    store = place.open()
    assert store.agent("a").state == {"n": 30}
    info = store.find("a")
    assert info is not None
    with pytest.raises((NotFound, Corrupt)):
        list(store.export_log(info, until=9))


def test_what_a_copy_lacked_before_is_refused_by_an_export(place: Place) -> None:
    """Story: an export of a log with holes of which the log says nothing was taken in nowhere."""
    store = place.open()
    agent = store.agent("a", initial={"n": 0})
    for n in range(5):
        agent.save({"n": n + 1}, "count")
    backend_of(store).trim(1, 0, {3: remains.REMOVED})
    info = agent_info(place)
    for until in (None, 5):
        with pytest.raises((Corrupt, NotFound)):
            list(store.export_log(info, until=until))


@pytest.mark.parametrize("where", ["_open", "finish", "_set_standing"])
def test_a_move_goes_on_behind_an_agent_that_came_in_part(
    place: Place, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Story: a move with `--take-incomplete` was interrupted. The agent that had come as far as its
    damage went on at the target; begun again, the move tried to bring it the rest, found that it
    had diverged, and never came to its end."""
    trimmed(place)
    flip(place.open(), "a", 25, "payload", -20)
    place.open().agent("b").save({"n": 1})
    url = f"memory://goes-on-{place.url.rpartition('/')[2]}-{where}"
    with perdure.open(url) as there:

        def interrupted(*_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Migration, where, interrupted)
            replication.migrate(place.url, url, take_incomplete=True)
        if where == "finish":
            for n in range(9):
                there.agent("a").save({"n": 100 + n}, "goes on")
        replication.migrate(place.url, url, take_incomplete=True)
        assert there.agent("b").state == {"n": 1}
        assert there.agent("a").state == {"n": 108 if where == "finish" else 23}
        assert there.agent("a").verify().trimmed
