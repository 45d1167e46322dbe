"""Arguments that cannot be are refused where they are given, in words, and nothing is written."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import perdure
from perdure import SnapshotPolicy
from perdure.errors import Conflict
from perdure.model import id_text
from perdure.state.jump_commits import commit_move


@dataclass
class Ticket:
    status: str = ""


# -- schemas -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "version",
    [(1,), (1, 2, 3), (), -1, (0, -1), True, (1, False), "1", 1.5, None, (2**70, 0), [1, 0]],
    ids=repr,
)
def test_a_version_that_no_log_can_keep(version: Any) -> None:
    """A version of one number was committed as it was: the header had a place too few, every
    reader took the agent for damaged, and nothing could be done with it any more. Others were
    committed and meant nothing, or failed at the commit in words of the encoder."""
    with pytest.raises(
        (TypeError, ValueError), match=r"version of a schema must be .major, minor."
    ):
        perdure.Schema(dict, id="x", version=version)


@pytest.mark.parametrize("schema_id", ["", 5, b"x", "\ud800"])
def test_an_id_that_no_log_can_keep(schema_id: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="the id of a schema"):
        perdure.Schema(dict, id=schema_id)


@pytest.mark.parametrize(
    ("schema", "said"),
    [("Ticket", "not its name 'Ticket'"), (Ticket(), "Ticket is the type"), ({}, "dict is")],
)
def test_a_schema_that_is_no_type(store: perdure.Store, schema: Any, said: str) -> None:
    with pytest.raises(TypeError, match=re.escape(said)):
        store.agent("a", schema)


def test_a_schema_that_only_claims_to_be_a_type(store: perdure.Store) -> None:
    """An object with `type` as its `__class__`, as mocks with a spec have it, was taken for a
    type. The first read of the state failed with a bare AttributeError."""
    with pytest.raises(TypeError, match="Mock is the type"):
        store.agent("a", Mock(spec=type))


def test_migrations_that_lead_nowhere() -> None:
    for migrations in ({"1": dict}, {1: "fn"}, {(1, 0): dict}):
        with pytest.raises(TypeError, match="migrations must be"):
            perdure.Schema(dict, id="x", version=2, migrations=migrations)  # type: ignore[arg-type]


def test_versions_that_can_be() -> None:
    for version, whole in ((3, (3, 0)), ((0, 1), (0, 1)), ((2, 5), (2, 5))):
        assert perdure.Schema(dict, id="x", version=version).version == whole
    for kind in (Ticket, dict[str, int], list[Ticket], int | None, Any):
        perdure.Schema(kind)


# -- opening -----------------------------------------------------------------------------------

SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"snapshots": 5}, "snapshots= must be a perdure.SnapshotPolicy, not 5"),
    ({"lease_ttl": 5}, "lease_ttl= must be a timedelta, not 5"),
    ({"lease_ttl": timedelta(0)}, "lease_ttl= must be longer than zero"),
    ({"url": b"g.db"}, "which is a text, not b'g.db'"),
    ({"url": 5}, "which is a text, not 5"),
]


@pytest.mark.parametrize(("settings", "said"), SETTINGS)
def test_settings_are_checked_before_anything_is_opened(
    settings: dict[str, Any], said: str, tmp_path: Path
) -> None:
    """They were kept as they came, and failed at some later commit, in words of whoever used them
    there."""
    with pytest.raises((TypeError, ValueError), match=re.escape(said)):
        perdure.open(**{"url": tmp_path / "a.db", **settings})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("how", ["its name", "its folder", "a link"])
def test_a_path_that_is_no_utf_8_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A bare UnicodeEncodeError came from SQLite's binding, and an empty file stayed behind."""
    odd, url = tmp_path / os.fsdecode(b"caf\xe9"), "a.db"
    if how == "its name":
        url = str(odd)
    elif how == "its folder":
        odd.mkdir()
        monkeypatch.chdir(odd)
    else:
        (tmp_path / url).symlink_to(odd)
        monkeypatch.chdir(tmp_path)
    before = {*tmp_path.rglob("*")}
    with pytest.raises(ValueError, match="bytes that are not UTF-8"):
        perdure.open(url)
    assert {*tmp_path.rglob("*")} == before


POLICIES: list[tuple[dict[str, Any], str]] = [
    ({"every_commits": "x"}, "every_commits must be a number or None"),
    ({"every_commits": 1.5}, "every_commits must be a number or None"),
    ({"every_commits": 0}, "every_commits must be at least 1"),
    ({"every_commits": -1}, "every_commits must be at least 1"),
    ({"every_seconds": "x"}, "every_seconds must be a number or None"),
    ({"every_seconds": -1}, "every_seconds must be at least 0"),
    ({"every_seconds": float("nan")}, "every_seconds must be at least 0"),
    ({"weight_min": "x"}, "weight_min must be a number"),
    ({"weight_min": None}, "weight_min must be a number"),
    ({"weight_min": 0}, "weight_min must be at least 1"),
    ({"on": "checkpoint"}, "on must be a set of words, e.g. {'checkpoint'}"),
    ({"on": 5}, "on must be a set of words"),
]


@pytest.mark.parametrize(("policy", "said"), POLICIES)
def test_a_policy_that_cannot_be(policy: dict[str, Any], said: str) -> None:
    """`on="checkpoint"` took every commit whose words are a part of that word: "check", "point"."""
    with pytest.raises((TypeError, ValueError), match=re.escape(said)):
        SnapshotPolicy(**policy)


# -- which commit ------------------------------------------------------------------------------


@pytest.mark.parametrize("where", [1.5, None, date(2026, 8, 12), b"main"])
def test_what_names_no_commit(store: perdure.Store, where: Any) -> None:
    agent = store.agent("a", initial={})
    agent.update(lambda draft: draft.update(n=1))
    for look in (agent.at, agent.commit, agent.rollback, lambda at: agent.diff(1, at)):
        with pytest.raises(TypeError, match=r"agent 'a': .* names no commit"):
            look(where)


def test_names_are_texts(store: perdure.Store) -> None:
    agent = store.agent("a", initial={})
    calls: list[Any] = [store.agent, agent.fork, agent.checkpoint]
    for call in calls:
        with pytest.raises(TypeError, match="must be a text, not 5"):
            call(5)
    with pytest.raises(TypeError, match="name of a branch must be a text, not None"):
        store.agent("a", branch=None)  # type: ignore[call-overload]


@pytest.mark.parametrize("name", ["5", "007", "2026-08-12T14:03:22Z", "2026-08-12 14:03+02:00"])
def test_a_name_that_reads_as_another_place(store: perdure.Store, name: str) -> None:
    """A branch named "5" could be made, and never be named again on a command line: there, 5 is the
    fifth commit, and a diff with it said so in silence. A moment hid behind a name in its turn."""
    agent = store.agent("a", initial={})
    agent.update(lambda draft: draft.update(n=1))
    for make in (agent.fork, agent.checkpoint):
        with pytest.raises(ValueError, match="would be taken for a") as refused:
            make(name)
        assert repr(name) in str(refused.value)
    assert [branch.name for branch in agent.branches()] == ["main"]


@pytest.mark.parametrize("name", ["v5", "2026-08-12", "2026-08-12 nightly", "５", "-5", "1.5"])
def test_one_that_does_not(store: perdure.Store, name: str) -> None:
    agent = store.agent("a", initial={})
    assert agent.fork(name).branch_name == name


def test_a_deletion_may_still_name_what_was_made_before(store: perdure.Store) -> None:
    """Only new names are refused: what an older program made is found and deleted by its name."""
    agent = store.agent("a", initial={})
    agent.update(lambda draft: draft.update(n=1))
    working = agent._working
    commit_move(working, working.seq, 1, perdure.Cause("fork", "5"), branch="5")
    assert agent.branch("5").seq == 3 and agent.at("5").seq == 3
    agent.delete_branch("5")


# -- words, keys, anchors ----------------------------------------------------------------------


def change(draft: dict[str, Any]) -> None:
    draft["n"] = draft.get("n", 0) + 1


def writes(agent: Any) -> list[Any]:
    """All that takes a caller's words for a commit."""
    return [agent.edit, partial(agent.update, change), partial(agent.save, {"n": 1})]


def test_one_word_is_not_its_letters(store: perdure.Store) -> None:
    """`tags="chat"` stored the tags c, h, a and t; dependencies="msgspec" looked for a distribution
    named m."""
    agent = store.agent("a", initial={})
    for write in writes(agent):
        with pytest.raises(TypeError, match=r"tags must be several texts, e.g. \['chat'\]"):
            write(tags="chat")
    with pytest.raises(TypeError, match=r"dependencies must be several texts, e.g. \['msgspec'\]"):
        agent.checkpoint("c", dependencies="msgspec")
    with pytest.raises(TypeError, match=r"config= must be a mapping of names to values, not \[1\]"):
        agent.checkpoint("c", config=[1])  # type: ignore[arg-type]
    assert not agent.checkpoints()
    made = agent.update(change, tags=(tag for tag in ["chat", "web"]))
    assert made is not None and made.cause.tags == ("chat", "web")


def test_an_empty_key_is_none_that_was_forgotten(store: perdure.Store) -> None:
    """Two different commands whose key came from a variable that was not set had the key "": the
    second was taken for the first one, and did nothing."""
    agent = store.agent("a", initial={"n": 0})
    for write in writes(agent):
        with pytest.raises(ValueError, match="an idempotency key is not empty"):
            write(key="")
    assert not agent.exists


@pytest.mark.parametrize("anchor", ["xyz", "", "sha256:00", 5, "sha256:" + "G" * 64])
def test_an_anchor_that_can_be_none_is_no_damage(store: perdure.Store, anchor: Any) -> None:
    """A typing error in the anchor was reported as a log that had been cut off or rebuilt."""
    agent = store.agent("a", initial={})
    agent.update(lambda draft: draft.update(n=1))
    with pytest.raises(ValueError, match=r"agent 'a': the anchor .* is not a root"):
        agent.verify(anchor=anchor)
    assert agent.verify(anchor=id_text(agent.commit(1).id)).commits == 2


# -- moments -----------------------------------------------------------------------------------


def test_a_branch_at_a_moment_before_its_fork_is_what_it_came_from(store: perdure.Store) -> None:
    """The log of a branch shows the commits that it was forked from, but at a moment among them it
    was not found."""
    agent = store.agent("a", initial={"n": 0})
    for n in range(1, 6):
        agent.save({"n": n})
    side = agent.fork("side", at=3)
    agent.update(lambda draft: draft.update(n=100))
    deep = side.fork("deep")
    side.update(lambda draft: draft.update(n=200))
    deep.update(lambda draft: draft.update(n=300))
    times = {commit.seq: commit.at for commit in agent.log(all_branches=True)}
    for branch in (side, deep):
        for seq in (1, 2, 3):
            assert branch.at(times[seq]).seq == seq
        # It was not yet forked, and then its own commits were those up to the fork's place.
        assert [branch.at(times[seq]).seq for seq in (4, 5, 6)] == [3, 3, 3]
        for commit in branch.log():
            assert branch.at(commit.at).seq == commit.seq
    assert deep.at(times[7]).seq == 7 and side.at(times[8]).seq == 7
    assert agent.at(times[10]).state == {"n": 100}
    with pytest.raises(perdure.NotFound, match="did not exist"):
        side.at(datetime(2020, 1, 1, tzinfo=UTC))


def test_names_that_are_taken_are_so_still(store: perdure.Store) -> None:
    agent = store.agent("a", initial={})
    agent.fork("v5")
    with pytest.raises(Conflict, match="taken"):
        agent.checkpoint("v5")
