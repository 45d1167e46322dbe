"""Branches, forks, checkpoints, rollback and adoption: views on one log that is never rewritten."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

import perdure
from perdure import Schema
from perdure.errors import Conflict, GuardMismatch, NotFound, SchemaError
from perdure.state.time_travel import _left_behind
from perdure.storage.log.reader import LogReader


@pytest.fixture
def agent(store):
    made = store.agent("a", initial={"n": 0})
    for n in range(1, 5):
        made.save({"n": n}, f"save {n}")
    return made


def ids(agent) -> list[bytes]:
    return [commit.id for commit in agent.log(all_branches=True)]


# -- forks -----------------------------------------------------------------------------------


def test_a_fork_starts_at_any_commit(agent, place):
    for seq in range(1, 6):
        fork = agent.fork(f"at-{seq}", at=seq)
        assert fork.state == {"n": seq - 1} and fork.branch_name == f"at-{seq}"
    assert agent.fork("here").state == {"n": 4}
    other = place.open().agent("a")
    assert other.branch("at-2").state == {"n": 1}
    assert other.state == {"n": 4}
    names = {branch.name: branch.head for branch in other.branches()}
    assert set(names) == {"main", "here", *(f"at-{seq}" for seq in range(1, 6))}


def test_branches_go_their_own_ways(agent, store):
    fork = agent.fork("side", at=2)
    fork.save({"n": 100})
    agent.save({"n": 5})
    with fork.edit() as draft:
        draft["n"] += 1
    assert (agent.refresh(), fork.refresh()) == ({"n": 5}, {"n": 101})
    deeper = fork.fork("deeper", at="side")
    deeper.save({"n": 102, "deep": True})
    assert [c.cause.kind for c in deeper.log()] == [
        "create",
        "save",
        "fork",
        "save",
        "edit",
        "fork",
        "save",
    ]
    assert [c.cause.kind for c in agent.log()] == ["create", *["save"] * 5]
    assert len(list(agent.log(all_branches=True))) == agent.verify().commits == 11
    assert store.agent("a", branch="deeper").state == {"n": 102, "deep": True}
    at = fork.commit("side").at
    assert agent.at(at).state == {"n": 5} and fork.at(at).state == {"n": 101}


def test_a_fork_copies_nothing(store):
    agent = store.agent("a", initial={"items": [{"text": "x" * 100} for _ in range(5000)]})
    agent.save({"items": agent.state["items"], "more": 1})
    before = store.sizes("a")
    for n in range(20):
        agent.fork(f"f-{n}", at=1)
    after = store.sizes("a")
    grown = after.header_bytes + after.payload_bytes - before.header_bytes - before.payload_bytes
    assert grown < 20 * 600 and after.leaf_bytes == before.leaf_bytes
    assert len(agent.branch("f-7").state["items"]) == 5000


def test_a_taken_name_is_refused(agent, steady):
    agent.fork("side")
    agent.checkpoint("cp")
    for name in ("side", "cp", "main"):
        with steady.refuses(agent, Conflict, "taken"):
            agent.fork(name)
        with steady.refuses(agent, Conflict, "taken"):
            agent.checkpoint(name)


def test_an_unknown_branch_names_those_that_there_are(agent, store, steady):
    agent.fork("side")
    with steady.refuses(agent, NotFound, "main, side"):
        agent.branch("sdie")
    with pytest.raises(NotFound, match="main, side"):
        store.agent("a", branch="sdie").state
    agent.checkpoint("cp")
    with pytest.raises(NotFound, match="checkpoint"):
        agent.branch("cp")
    with pytest.raises(NotFound, match="checkpoint"):
        store.agent("a", branch="cp").state
    with steady.refuses(agent, NotFound):
        agent.delete_branch("cp")


def test_a_new_agent_can_be_forked_and_marked(store):
    assert store.agent("forked", initial={"n": 1}).fork("side").state == {"n": 1}
    assert store.agent("marked", initial={"n": 1}).checkpoint("cp").seq == 2
    assert store.agent("marked").at("cp").state == {"n": 1}


def test_what_is_refused_on_a_new_agent_does_not_create_it(store):
    """A checkpoint whose dependency is not installed was refused, after it had made the agent."""
    agent = store.agent("new", initial={"n": 1})
    for call in (
        lambda: agent.checkpoint("cp", dependencies=["no-such-distribution"]),
        lambda: agent.checkpoint("cp", config={"x": object()}),
        lambda: agent.checkpoint("main"),
        lambda: agent.fork("main"),
        lambda: agent.fork("x", at="nowhere"),
    ):
        with pytest.raises((perdure.PerdureError, LookupError)):
            call()
        assert store.find("new") is None
    agent.save({"n": 2})


# -- deleting branches -----------------------------------------------------------------------


def test_a_deleted_branch_keeps_its_name_and_its_commits(agent, store, steady):
    side = agent.fork("side", at=2)
    side.save({"n": 100})
    head = side.seq
    commit = agent.delete_branch("side")
    assert commit.cause.kind == "delete-branch" and agent.state == {"n": 4}
    assert {branch.name: branch.deleted for branch in agent.branches()} == {
        "main": False,
        "side": True,
    }
    assert agent.at(head).state == {"n": 100}
    for call in (
        lambda: agent.branch("side"),
        lambda: agent.at("side"),
        lambda: agent.adopt("side"),
        lambda: agent.delete_branch("side"),
        lambda: agent.diff("side", "main"),
    ):
        with steady.refuses(agent, NotFound, "deleted"):
            call()
    for call in (lambda: agent.fork("side"), lambda: agent.checkpoint("side")):
        with steady.refuses(agent, Conflict, "deleted"):
            call()
    with pytest.raises(NotFound, match="deleted"):
        side.save({"n": 101})
    with pytest.raises(NotFound, match="deleted"), side.edit() as draft:
        draft["n"] = 101
    assert agent.verify().commits == agent.seq


def test_a_branch_cannot_delete_itself(agent, steady):
    with steady.refuses(agent, Conflict, "itself"):
        agent.delete_branch("main")


def test_main_is_a_branch_like_others(agent, store):
    side = agent.fork("side")
    side.delete_branch("main")
    with pytest.raises(NotFound, match="side"):
        store.agent("a").refresh()
    side.save({"n": 7})
    assert side.verify() and store.agent("a", branch="side").state == {"n": 7}
    store.delete("a")
    assert store.agents() == []


# -- rollback and adoption -------------------------------------------------------------------


def test_i7_rollback_is_recorded_and_rewrites_nothing(agent, place):
    before = ids(agent)
    moved = agent.rollback(2)
    assert agent.state == {"n": 1}
    assert (moved.commit.cause.kind, moved.commit.cause.refers) == ("rollback", (2,))
    assert moved.commit.parent == 2 and moved.commit.delta == ()
    assert ids(agent)[:-1] == before
    assert [c.cause.kind for c in agent.log()] == ["create", *["save"] * 4, "rollback"]
    agent.save({"n": 1, "anew": True})
    agent.rollback(5)  # and forward again, to what was rolled back
    assert agent.state == {"n": 4}
    assert place.open().agent("a").state == {"n": 4}
    assert [agent.at(seq).state["n"] for seq in range(1, 9)] == [0, 1, 2, 3, 4, 1, 1, 4]
    agent.verify()


def test_rollback_to_a_checkpoint_a_moment_and_another_branch(agent):
    agent.checkpoint("before refund")
    moment = agent.commit(3).at
    side = agent.fork("side")
    side.save({"n": 50})
    agent.save({"n": 9})
    agent.rollback("before refund")
    assert agent.state == {"n": 4}
    agent.rollback(moment)
    assert agent.state == {"n": 2}
    agent.rollback(side.seq)
    assert agent.state == {"n": 50}
    agent.verify()


def test_others_follow_a_rollback(agent, store, steady):
    other = store.agent("a")
    assert other.state == {"n": 4}
    agent.rollback(2)
    with steady.refuses(other, Conflict):
        other.save({"n": 5})
    assert other.refresh() == {"n": 1}
    with other.edit() as draft:
        draft["n"] += 1
    assert agent.refresh() == {"n": 2}


def test_what_a_rollback_leaves_behind(store):
    """Of any two commits of a tree of branches: those on the one path that are not on the other."""
    agent = store.agent("tree", initial={"n": 0})
    dice = random.Random(7)
    for number in range(40):
        if number % 8 == 3:
            agent = agent.fork(f"branch-{number}", at=dice.randint(1, agent.seq))
        elif number % 8 == 6:
            agent.rollback(dice.randint(1, agent.seq))
        else:
            agent.save({"n": number + 1})
    reader = agent._working.reader
    paths = [[one.seq for one in reader.ancestors(seq)] for seq in range(1, reader.last_seq() + 1)]
    for path in paths:
        for other in paths:
            left = [one.seq for one in _left_behind(reader, path[0], other[0])]
            assert left == [seq for seq in path if seq not in other]


def test_a_rollback_reads_no_more_than_it_takes_back(store, monkeypatch):
    """It read the whole log twice: an old agent took seconds to go back by one commit."""
    agent = store.agent("old", initial={"n": 0})
    for number in range(400):
        agent.save({"n": number + 1})
    read: list[int] = []
    decode = LogReader._decode

    def counting(reader, row):
        read.append(row.seq)
        return decode(reader, row)

    monkeypatch.setattr(LogReader, "_decode", counting)
    agent.rollback(agent.seq - 1)
    assert agent.state == {"n": 399}
    assert min(read) > 1 and len(read) < 200  # a snapshot is never far


def test_adopt_takes_a_branchs_state(agent, store):
    side = agent.fork("what-if", at=2)
    side.save({"n": 1, "better": True})
    moved = agent.adopt("what-if")
    assert agent.state == {"n": 1, "better": True}
    assert (moved.commit.cause.kind, moved.commit.parent) == ("adopt", side.seq)
    side.save({"n": 2})
    agent.save({"n": 3})
    assert (side.refresh(), agent.refresh()) == ({"n": 2}, {"n": 3})
    assert store.agent("a").state == {"n": 3}
    agent.verify()


# -- checkpoints -----------------------------------------------------------------------------


def test_a_checkpoint_names_a_commit(agent, place):
    point = agent.checkpoint("before refund")
    agent.save({"n": 9})
    other = place.open().agent("a")
    assert other.checkpoints() == [point]
    past = other.at("before refund")
    assert past.state == {"n": 4} and past.mismatches == [] and past.seq == point.seq
    assert point.state_hash.startswith("sha256:")
    assert agent.checkpoint("again").state_hash != point.state_hash
    agent.save({"n": 4})
    assert agent.checkpoint("equal").state_hash == point.state_hash
    with pytest.raises(NotFound, match="before refund"):
        agent.at("before refnd")
    agent.verify()


def test_guards_of_the_configuration(agent):
    agent.checkpoint("cp", config={"model": "m-1", "temperature": 0.5})
    assert agent.at("cp", config={"temperature": 0.5, "model": "m-1"}).mismatches == []
    for config in ({"model": "m-2", "temperature": 0.5}, {}, None):
        (found,) = agent.at("cp", config=config).mismatches
        assert found.what == "configuration" and "configuration" in str(found)
        with pytest.raises(GuardMismatch, match="configuration"):
            agent.at("cp", config=config, strict=True)
    agent.checkpoint("bare")
    assert agent.at("bare", strict=True).mismatches == []
    assert len(agent.at("bare", config={"x": 1}).mismatches) == 1


def test_guards_of_dependencies(agent, monkeypatch, steady):
    from importlib import metadata

    point = agent.checkpoint("cp", dependencies=["pytest", "msgspec"])
    assert point.dependencies == {
        "pytest": pytest.__version__,
        "msgspec": metadata.version("msgspec"),
    }
    assert agent.at("cp", strict=True).mismatches == []
    monkeypatch.setattr(metadata, "version", lambda name: "0.0.0")
    assert [m.what for m in agent.at("cp").mismatches] == [
        "version of pytest",
        "version of msgspec",
    ]
    monkeypatch.undo()
    with steady.refuses(agent, NotFound, "no-such"):
        agent.checkpoint("other", dependencies=["no-such-distribution"])


def test_guards_of_the_schema(store):
    agent = store.agent("a", Schema(dict, id="mine", version=(1, 0)))
    agent.checkpoint("cp")
    newer = store.agent("a", Schema(dict, id="mine", version=(1, 1)))
    (found,) = newer.at("cp").mismatches
    assert (found.what, found.recorded, found.found) == ("schema version", "1.0", "1.1")
    with pytest.raises(GuardMismatch):
        newer.at("cp", strict=True)


def test_a_checkpoint_validates_the_whole_state(store):
    loose = store.agent("a", Schema(dict, id="s"), initial={"n": 50})
    loose.save({"n": 51})
    strict = store.agent("a", Schema(dict[str, str], id="s"))
    with pytest.raises(SchemaError, match="n"):
        strict.checkpoint("cp")
    assert strict.checkpoints() == []


@pytest.fixture(autouse=True)
def _whole(store) -> Iterator[None]:
    yield
    for info in store.agents():
        store.agent_of(info).verify()


def test_a_first_edit_keeps_the_order_of_the_initial_state(store: perdure.Store) -> None:
    """The first edit deleted a key. What was stored as the state before it had that key last."""
    agent = store.agent("ordered", dict, initial={"x": 1, "y": 2})
    with agent.edit("first") as draft:
        del draft["x"]
    assert list(agent.at(1).state) == ["x", "y"]
