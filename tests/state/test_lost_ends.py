"""A log whose last commits are gone, while its branches still name them: rows that a server lost,
or a page that is another one's. What is left looks whole."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from pathlib import Path

import apsw
import pytest

import perdure
from perdure import Corrupt, replication
from perdure.replication import IncompleteError
from perdure.storage.sqlite.connection import checksum_vfs
from tests.postgres.server import shared

LAST = 7


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store with two agents."""
    made = str(tmp_path / "source.db") if request.param == "sqlite" else shared().new_url()
    with perdure.open(made, durability="os") as store:
        for name in ("a", "b"):
            agent = store.agent(name, initial={"n": 0})
            for n in range(1, LAST):
                agent.save({"n": n})
    return made


def lose(url: str, kept: int) -> None:
    """The commits of agent `a` behind that one."""
    if url.startswith("postgres"):
        schema = url.rpartition("schema=")[2]
        shared().sql(
            f"DELETE FROM {schema}.commits WHERE seq > {kept} AND agent_no = "
            f"(SELECT no FROM {schema}.agents WHERE name = 'a')"
        )
        return
    with contextlib.closing(apsw.Connection(url, vfs=checksum_vfs())) as db:
        db.execute(
            "DELETE FROM commits WHERE id & 0xffff > ? AND id >> 36 = "
            "(SELECT no FROM agents WHERE name = 'a')",
            (kept,),
        )


@pytest.mark.parametrize("kept", [4, 0])
def test_a_move_does_not_take_what_is_left_for_all(url: str, kept: int, tmp_path: Path) -> None:
    """`migrate` said that all agents had moved, and closed the source: seven commits of one were
    four, with nothing that told."""
    lose(url, kept)
    target = str(tmp_path / "target.db")
    with pytest.raises(IncompleteError, match=f"ends at commit {kept}, .* is at {LAST}") as caught:
        replication.migrate(url, target)
    assert [one.agent for one in caught.value.found] == ["a"]
    with perdure.open(url) as store:
        store.agent("b").save({"n": 99})  # nothing was moved
    moved = replication.migrate(url, target, take_incomplete=True)
    with perdure.open(target) as store:
        assert store.agent("b").state == {"n": 99}
        assert [info.name for info in store.agents()] == (["a", "b"] if kept else ["b"])
        if kept:
            assert store.agent("a").seq == kept
    assert "b" in [one.agent for one in moved]


@pytest.mark.parametrize("kept", [4, 0])
def test_a_copy_sets_aside_whose_end_is_lost(url: str, kept: int, tmp_path: Path) -> None:
    """`replicate` said "up to date" of a log that had lost its end."""
    lose(url, kept)
    with replication.following(url, str(tmp_path / "copy.db")) as follower:
        follower.drain()
        assert [one.agent for one in follower.aside] == ["a"]
        assert f"ends at commit {kept}" in follower.aside[0].problem
        follower.shipper.retry()  # as it does now and then: what is left comes, and no more
        assert [one.agent for one in follower.aside] == ["a"]
        there = follower.target.agent("a")
        assert (there.seq if there is not None else 0) == kept


def test_a_restore_does_not_take_what_is_left_for_all(url: str, tmp_path: Path) -> None:
    lose(url, 4)
    with pytest.raises(IncompleteError, match="ends at commit 4"):
        replication.restore(url, str(tmp_path / "restored.db"), at=datetime(2100, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize("kept", [4, 0])
def test_whoever_reads_it_is_told(url: str, kept: int) -> None:
    lose(url, kept)
    with perdure.open(url) as store:
        info = store.find("a")
        assert info is not None
        agent = store.agent("a")
        for look in (
            lambda: list(store.export_log(info)),
            lambda: list(agent.log(all_branches=True)),
            lambda: agent.save({"n": 8}),
            lambda: agent.checkpoint("c"),
            agent.undo,
            agent.verify,
        ):
            with pytest.raises(Corrupt, match=r"is at commit 7|is empty|ends at commit"):
                look()
        store.agent("b").verify()


def test_what_is_left_without_its_beginning_is_not_trimmed(tmp_path: Path) -> None:
    """The first commits were gone, so no state could be had any more. `trim` emptied more, and
    wrote that down: from then on verify said "removed by retention", and nothing of damage."""
    path = str(tmp_path / "a.db")
    with perdure.open(path) as store:
        for n in range(10):
            store.agent("a").save({"n": n})
    with contextlib.closing(apsw.Connection(path, vfs=checksum_vfs())) as db:
        db.execute("DELETE FROM commits WHERE id & 0xffff < 4")
    with perdure.open(path) as store:
        agent = store.agent("a")
        seq = store.agents()[0].seq
        with pytest.raises(Corrupt, match="is missing from the log"):
            agent.trim(before=8)
        assert store.agents()[0].seq == seq
        with pytest.raises(Corrupt, match="commits are missing"):
            agent.verify()
