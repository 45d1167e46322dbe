"""What a newer version wrote is never called damaged: each call that needs it says so, with a way
to go on, and what does not need it works."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import perdure
from perdure import UnsupportedFormat, replication
from perdure.agents import Agent
from perdure.storage.retention import RETENTION
from tests import newer
from tests.cli.operator import Operator
from tests.damaging import Vandal
from tests.engine.waits import go
from tests.state.conftest import Place

FEW = ["a feature of the envelope", "an op", "a field of the header", "a version of the header"]


@perdure.step
def look() -> int:
    return 1


@perdure.agent(dict)
def waiting(run: perdure.Run[dict[str, Any]]) -> Any:
    look()
    return run.wait_for("go")


def met(place: Place, kind: str, behind: int = 2) -> tuple[perdure.Store, int]:
    """An agent with a run that waits, and behind that a commit of a newer version."""
    store = place.open()
    agent = store.agent("a", initial={"n": 0})
    for n in range(3):
        agent.save({"n": n + 1})
    assert go(store, waiting, "a") is None
    last = store.agent("a").seq
    vandal = Vandal(store, "a")
    vandal.write(*(newer.KINDS | newer.READABLE)[kind](vandal))
    vandal.go_on(behind)
    store.agent("b", initial={"n": 0}).save({"n": 1})
    return place.open(), last


def need_it(agent: Agent[Any], last: int) -> Iterator[tuple[str, Callable[[], object]]]:
    yield "state", lambda: agent.state
    yield "at", lambda: agent.at(datetime.now(UTC)).state
    yield "diff", lambda: agent.diff(last, "main")
    yield "log", lambda: list(agent.log())
    yield "undo", agent.undo
    yield "checkpoint", lambda: agent.checkpoint("point")
    yield "save", lambda: agent.save({"n": 77})
    yield "update", lambda: agent.update(lambda state: state.update(n=7))
    yield "drift", agent.drift
    yield "verify", agent.verify
    yield "heal", lambda: agent.verify(heal=True)
    yield "trim", lambda: agent.trim(last)
    yield "trim behind it", lambda: agent.trim(timedelta(0))


@pytest.mark.parametrize("kind", newer.KINDS)
def test_each_call_works_or_says_what_is_needed(place: Place, kind: str) -> None:
    store, last = met(place, kind)
    agent = store.agent("a")
    for name, call in need_it(agent, last):
        with pytest.raises(UnsupportedFormat) as caught:
            call()
        assert f"agent 'a', commit {last + 1}" in str(caught.value), name
        assert "read it with a newer perdure" in caught.value.hint, name
        assert (caught.value.seq, caught.value.before) == (last + 1, last), name
        assert f"`perdure fork a before-{last + 1} --at {last}`" in caught.value.hint, name
        assert "rollback" not in caught.value.hint, "what that version wrote is good"
    told = list(agent.log(all_branches=True, damaged_too=True))
    assert [one.seq for one in told if one.damaged] == [last + 1]
    assert told[last].newer and not told[last].foldable
    assert agent.at(last).state == {"n": 3}
    beside = agent.fork("beside", at=last)
    beside.save({"n": 4})
    assert place.open().agent("a").branch("beside").state == {"n": 4}
    store.agent("b").verify()
    info = store.find("a")
    assert info is not None
    with pytest.raises(UnsupportedFormat):
        list(store.export_log(info))
    assert len(list(store.export_log(info, until=last))) == last


@pytest.mark.parametrize("kind", FEW)
def test_its_run_stops_and_can_be_ended_or_set_back(place: Place, kind: str) -> None:
    store, last = met(place, kind)
    (run,) = store.runs("a")
    handle = store.handle(run.id)
    handle.signal("go", 1)
    with pytest.raises(UnsupportedFormat):
        go(store, waiting, "a")
    assert handle.status == "needs_attention"
    assert "newer perdure" in str(handle.why())
    with pytest.raises(UnsupportedFormat):
        handle.effects()
    assert handle.effects(damaged_too=True) == []
    assert handle.report().info.id == run.id
    assert store.runs("a", unfinished=True)
    handle.retry("wait_for:go#1")
    assert go(store, waiting, "a") == 1
    assert store.agent("a").state == {"n": 3}
    store.agent("a").rollback(last)


@pytest.mark.parametrize("kind", FEW)
def test_copies_of_the_others_go_on(place: Place, tmp_path: Any, kind: str) -> None:
    _, last = met(place, kind)
    other = str(tmp_path / "other.db")
    with replication.following(place.url, other) as follower:
        follower.drain()
        (aside,) = follower.aside
        assert (aside.agent, aside.seq) == ("a", last + 1)
        assert "UnsupportedFormat" in aside.problem
    replication.promote(other, place.url, take_incomplete=True)
    with perdure.open(other) as store:
        assert store.agent("a").state == {"n": 3}
        store.agent("b").verify()


@pytest.mark.parametrize("kind", FEW)
def test_from_the_shell(tmp_path: Any, kind: str) -> None:
    place = Place(str(tmp_path / "store.db"))
    _, last = met(place, kind, behind=0 if kind != "a version of the header" else 1)
    place.close()
    operator = Operator(tmp_path / "store.db")
    (run,) = operator.json("runs", "a")
    for words in (
        ["show", "a"],
        ["runs"],
        ["branches", "a"],
        ["why", run["id"]],
        ["show", "b"],
        ["run", "show", run["id"]],
        ["ls"],
        ["log", "b"],
    ):
        said = operator.type(*words)
        assert said.exit_code in (0, 9) and "orrupt" not in said.output, words
        assert "damaged: " not in said.output, words
    for words in (
        ["log", "a"],
        ["effects", "a"],
        ["state", "a"],
        ["verify", "a"],
        ["stats"],
        ["trim", "--older-than", "0s"],
        ["trim", "a", "--before", "main"],
    ):
        said = operator.type(*words)
        assert said.exit_code == 9, (words, said.output)
        assert "newer" in said.output and "orrupt" not in said.output, words
    assert operator.json("state", "a", "--at", str(last))["state"] == {"n": 3}
    assert operator.see("fork", "a", "beside", "--at", str(last))
    assert operator.json("state", "a", "--branch", "beside")["state"] == {"n": 3}
    assert operator.see("cancel", run["id"])


@pytest.mark.parametrize("kind", newer.READABLE)
def test_what_is_passed_over_stays_in_the_log(place: Place, kind: str) -> None:
    """Retention removed records of kinds that it did not know, as if nothing needed them."""
    store, last = met(place, kind)
    agent = store.agent("a")
    assert agent.state == {"n": 1}
    agent.verify()
    (run,) = store.runs("a")
    store.handle(run.id).cancel()
    agent.refresh()
    agent.save({"n": 8})
    assert agent.trim(timedelta(0)).removed
    commit = agent.commit(last + 1)
    assert commit.trimmed == (kind != "a kind of record")
    agent.verify()
    assert agent.state == {"n": 8}


def test_a_newer_word_of_retention(place: Place) -> None:
    """What it removed is not known here: nothing is built on what may be gone."""
    store = place.open()
    agent = store.agent("a", initial={"n": 0})
    for n in range(5):
        agent.save({"n": n + 1})
    assert agent.trim(4).removed
    vandal = Vandal(store, "a", RETENTION)
    vandal.write(*newer.KINDS["a feature of the envelope"](vandal))
    agent = place.open().agent("a")
    agent.save({"n": 7})
    assert agent.at(5).state == {"n": 4}
    for call in (
        lambda: agent.rollback(4),
        lambda: agent.fork("x", at=5),
        lambda: agent.trim(6),
        agent.verify,
        lambda: agent.at(2).state,
    ):
        with pytest.raises(UnsupportedFormat, match="newer perdure"):
            call()
    assert place.open().agent("a").state == {"n": 7}
