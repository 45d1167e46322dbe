"""What is left of deleted agents when their logs are purged, and what copies of stores make of
it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Conflict, Corrupt, NotFound, Store
from perdure.model import id_text
from perdure.replication import restore
from perdure.storage.log.reader import LogReader
from perdure.testing import Clock
from perdure.transfer.follower import Follower
from tests.state.conftest import Place
from tests.state.copies import backend_of, picture, short, verify_all


def grown(store: Store, name: str = "a", commits: int = 12) -> str:
    """An agent with some past; its root."""
    agent = store.agent(name)
    for number in range(commits):
        with agent.edit(f"edit {number}", key=f"k{number}") as draft:
            draft.setdefault("log", []).append("x" * 2000)
    agent.fork("side", at=3)
    agent.checkpoint("point")
    store.options(key="r").run(short, name, 1)
    return agent.verify().root


def test_a_purged_agent_is_proved_by_what_is_left(store: Store) -> None:
    before = grown(store)
    grown(store, "other")
    store.delete("a", purge=True)
    info = store.find("a")
    assert info is not None
    whole = store.agent_of(info).verify()
    assert not whole.purged
    assert [one.name for one in store.purge().agents] == ["a"]
    left = store.find("a")
    assert left is not None and left.purged and left.seq == info.seq
    proved = store.agent_of(left).verify(anchor=whole.root)
    assert (proved.head, proved.commits, proved.purged) == (whole.head, whole.commits, True)
    assert store.agent_of(left).verify(anchor=before) == proved  # named by the deletion
    with pytest.raises(Conflict, match="was purged"):
        store.agent_of(left).verify(anchor="sha256:" + "0" * 64)
    assert store.runs("a") == []
    assert store.purge().agents == []
    store.agent("other").verify()


def test_what_is_gone_is_said_to_be_purged_and_not_damaged(store: Store) -> None:
    grown(store)
    store.delete("a")
    info = store.find("a")
    assert info is not None
    reader = LogReader(backend_of(store), info)
    assert backend_of(store).purge(info.no, 3)  # and then it was killed
    assert len(list(reader.commits(info.seq, info.seq))) == 1
    for ask in (
        lambda: reader.commit(1),
        lambda: reader.fold(2),
        lambda: list(reader.commits()),
        lambda: list(reader.commits(newest_first=True)),
        lambda: list(store.export_log(info)),
    ):
        with pytest.raises(NotFound, match="purged"):
            ask()
    assert store.agent_of(info).verify().purged
    assert [one.name for one in store.purge().agents] == ["a"]


@pytest.mark.parametrize("at", ["the names", 5])
def test_what_is_purged_while_it_is_verified_is_not_damaged(
    store: Store, monkeypatch: pytest.MonkeyPatch, at: Any
) -> None:
    """Where threads are deleted, a check of the whole store every night ended with "Corrupt"."""
    agent = store.agent("a", initial={"n": 0})
    for n in range(10):
        with agent.edit(key=f"key-{n}") as draft:
            draft["n"] = n
    backend, purged = backend_of(store), list[bool]()

    def purge() -> None:
        purged.append(True)
        store.delete("a", purge=True)
        assert [info.name for info in store.purge().agents] == ["a"]

    def progress(done: int, total: int) -> None:
        if done == at:
            purge()

    def refs(no: int, read: Any = backend.refs) -> Any:
        if at == "the names" and not purged:
            purge()
        return read(no)

    monkeypatch.setattr(backend, "refs", refs)
    assert agent.verify(progress=progress).purged and purged


def test_a_deletion_without_purge_keeps_the_log(store: Store) -> None:
    grown(store)
    store.delete("a")
    assert store.purge().agents == []
    info = store.find("a")
    assert info is not None
    assert not store.agent_of(info).verify().purged
    assert len(list(store.export_log(info))) == info.seq


def test_a_purged_name_begins_anew(store: Store) -> None:
    grown(store)
    late = store.agent("a")
    assert late.state["log"]
    store.delete("a", purge=True)
    store.purge()
    with pytest.raises(NotFound, match="deleted"), late.edit("late") as draft:
        draft["n"] = 1
    with store.agent("a").edit("anew") as draft:
        draft["n"] = 2
    assert store.agent("a").state == {"n": 2}
    assert len(list(store.agent("a").log())) == 2
    store.purge("a")
    store.agent("a").verify()


def test_a_log_that_was_emptied_without_being_purged_is_corrupt(tmp_path: Path) -> None:
    store = perdure.open(tmp_path / "a.db")
    grown(store)
    store.delete("a")
    info = store.find("a")
    assert info is not None
    backend: Any = backend_of(store)
    with backend._alone(), backend._transaction() as db:
        db.execute("DELETE FROM commits WHERE id & 0xffff < ?", (info.seq,))
    with pytest.raises(Corrupt):
        store.agent_of(info).verify()
    store.close()


def test_one_that_ends_otherwise_than_by_its_deletion_is_corrupt(tmp_path: Path) -> None:
    """Somebody who marks a living agent's log as purged, and empties it, must not get away."""
    store = perdure.open(tmp_path / "a.db")
    grown(store)
    info = store.find("a")
    assert info is not None
    backend: Any = backend_of(store)
    with backend._alone(), backend._transaction() as db:
        db.execute("DELETE FROM commits WHERE id & 0xffff < ?", (info.seq,))
        db.execute("UPDATE agents SET deleted = 2")
    with pytest.raises(Corrupt, match="does not end with its deletion"):
        store.agent_of(info).verify()
    store.close()


class Copies:
    """A store and one that follows it."""

    def __init__(self, folder: Path) -> None:
        self.source = perdure.open(folder / "source.db", durability="os")
        self.target = perdure.open(folder / "target.db", durability="os")
        self.follower = Follower(backend_of(self.source), backend_of(self.target))

    def begin(self) -> None:
        self.follower.begin()

    def same(self) -> None:
        self.follower.drain()
        assert picture(backend_of(self.source)) == picture(backend_of(self.target))
        verify_all(backend_of(self.target))
        assert backend_of(self.target).to_purge() == []

    def close(self) -> None:
        self.target.close()
        self.source.close()


@pytest.fixture
def copies(tmp_path: Path) -> Any:
    made = Copies(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("known", [0, 1, 7, 99])
def test_a_follower_takes_over_what_was_purged(copies: Copies, known: int) -> None:
    """A follower that was behind met a gap where the purged log had been: it took it for damage."""
    grown(copies.source, "other", 2)
    copies.begin()
    copies.follower.drain()
    grown(copies.source, "a", 8)
    if known:
        copies.follower.step(limit=known)
    copies.source.delete("a", purge=True)
    copies.source.purge()
    with copies.source.agent("a").edit("anew") as draft:
        draft["n"] = 1
    copies.same()
    assert copies.target.agent("a").state == {"n": 1}
    with copies.source.agent("other").edit("on") as draft:
        draft["n"] = 2
    copies.same()


def test_a_follower_purges_what_it_has_whole(copies: Copies) -> None:
    grown(copies.source)
    copies.begin()
    copies.source.delete("a", purge=True)
    copies.follower.drain()
    assert copies.target.sizes().commits == 1
    copies.source.purge()
    copies.same()


def test_a_store_that_lost_more_can_follow_anew(copies: Copies) -> None:
    """With --resync its logs are compared with those of the source, where one was purged."""
    grown(copies.source)
    copies.begin()
    copies.same()
    copies.source.delete("a", purge=True)
    copies.source.purge()
    copies.follower.begin(resync=True)
    copies.same()


def test_an_agent_whose_earlier_life_was_purged_moves(tmp_path: Path) -> None:
    from perdure.replication import migrate

    source = perdure.open(tmp_path / "source.db")
    grown(source)
    source.delete("a", purge=True)
    source.purge()
    grown(source)
    source.close()
    migrate(tmp_path / "source.db", tmp_path / "target.db")
    target = perdure.open(tmp_path / "target.db")
    info = target.find("a")
    assert info is not None and info.incarnation == 2
    target.agent("a").verify()
    verify_all(backend_of(target))
    target.close()


def test_the_file_gets_smaller_when_asked_for(tmp_path: Path) -> None:
    """Free pages are used again; only `shrink` gives them back, and the page checksums stay."""
    path = tmp_path / "a.db"
    store = perdure.open(path)
    for number in range(5):
        with store.agent(f"a{number}").edit("big") as draft:
            draft["text"] = str(list(range(60_000)))
    for number in range(4):
        store.delete(f"a{number}", purge=True)
    store.purge()
    backend_of(store).maintain("clean")
    before = path.stat().st_size
    with store.agent("again").edit("big") as draft:
        draft["text"] = str(list(range(60_000)))
    backend_of(store).maintain("clean")
    assert path.stat().st_size == before
    store.shrink()
    assert path.stat().st_size < before * 0.7
    store.check_pages()
    store.close()
    with perdure.open(path) as again:
        again.check_pages()
        again.agent("a4").verify()


def test_purging_in_every_place(place: Place) -> None:
    """The same whole way on each backend, with the store opened anew in between."""
    store = place.open()
    for name in ("a", "b"):
        grown(store, name, 4)
        store.delete(name, purge=name == "a")
    if place.durable:
        store.close()
        store = place.open()
    assert [info.name for info in store.purge().agents] == ["a"]
    kept = store.find("b")
    assert kept is not None and not kept.purged
    assert id_text(store.agent_of(kept).verify().head).startswith("sha256:")


def test_a_restore_knows_when_a_purged_log_began(tmp_path: Path) -> None:
    """An agent's log was imported behind a younger agent, and purged. A restore to a moment that
    this log went back to took it for younger, too, left it out, and said that it was complete."""
    source, clock = str(tmp_path / "s.db"), Clock()
    with clock.open(tmp_path / "elsewhere.db") as store:
        store.agent("imported").save({"n": 1})
        info = store.find("imported")
        assert info is not None
        exported = list(store.export_log(info))
    clock.advance(60)
    then = clock.now
    clock.advance(60)
    with clock.open(source) as store:
        store.agent("later").save({"n": 2})
        store.import_log(exported)
        store.agent("later still").save({"n": 3})
        for name in ("imported", "later", "later still"):
            store.delete(name, purge=True)
        store.purge()
    with pytest.raises(Conflict, match="retention removed all of it, if it was there") as refused:
        restore(source, tmp_path / "r.db", then)
    assert "agent 'imported'" in str(refused.value)
    done = restore(source, tmp_path / "r.db", then, take_incomplete=True)
    assert [one.agent for one in done.incomplete] == ["imported"]


def test_a_restore_names_what_was_purged_since(tmp_path: Path) -> None:
    """It left such agents out, and said that it was complete. Of a purged log nobody knows when it
    began, but that it was behind one that began later."""
    source, clock = str(tmp_path / "s.db"), Clock()
    with clock.open(source) as store:
        for name in ("kept", "gone", "gone before"):
            store.agent(name).save({"n": 1})
        store.delete("gone before", purge=True)
        clock.advance(60)
        then = clock.now
        clock.advance(60)
        for name in ("later", "gone later"):
            store.agent(name).save({"n": 2})
        for name in ("gone", "gone later"):
            store.delete(name, purge=True)
        store.purge()
        store.agent("gone").save({"n": 3})
    with pytest.raises(Conflict, match="retention removed all of it, if it was there") as refused:
        restore(source, tmp_path / "r.db", then)
    assert "agent 'gone'" in str(refused.value) and "take-incomplete" in str(refused.value)
    done = restore(source, tmp_path / "r.db", then, take_incomplete=True)
    assert [one.agent for one in done.incomplete] == ["gone"]
    with perdure.open(tmp_path / "r.db") as store:
        assert [info.name for info in store.agents()] == ["kept"]
