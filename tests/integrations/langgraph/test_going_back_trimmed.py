"""Trims and rollbacks of one thread: what was gone back from stays hidden, and what stands stays
as it is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from langgraph.graph import START, StateGraph

from perdure.errors import NotFound
from perdure.integrations.langgraph import PerdureSaver
from perdure.retention import trimming
from tests.integrations.langgraph.checkpoints import config, get, line, put
from tests.integrations.langgraph.conftest import Place
from tests.integrations.langgraph.going_back import Plain
from tests.integrations.langgraph.going_back_trimmed import TrimmedWalk
from tests.integrations.langgraph.test_going_back import THREAD, agent_of, end_of


def remembering(saver: PerdureSaver) -> Any:
    """A graph whose subgraph goes on from where it was; and which may do without it."""
    inner = StateGraph(Plain)
    inner.add_node("hear", lambda state: {})
    inner.add_edge(START, "hear")
    sub = inner.compile(checkpointer=True)

    def call(state: Any) -> Any:
        last = state["log"][-1]
        return {"log": [] if last == "-" else [",".join(sub.invoke({"log": [last]})["log"])]}

    graph = StateGraph(Plain)
    graph.add_node("call", call)
    graph.add_edge(START, "call")
    return graph.compile(checkpointer=saver)


def test_what_two_rollbacks_left_stays_hidden_behind_a_trim(place: Place) -> None:
    """Only the last of two was known of behind a trim: the commit that names the one before it had
    gone. So what that had taken back was listed again, and a subgraph went on from it."""
    saver = place.open()
    app = remembering(saver)
    app.invoke({"log": ["one"]}, THREAD)
    first = end_of(saver)
    app.invoke({"log": ["WRONG"]}, THREAD)
    agent_of(saver).rollback(first)
    for _ in range(2):
        app.invoke({"log": ["-"]}, THREAD)
        moment = end_of(saver)
        app.invoke({"log": ["-"]}, THREAD)
        agent_of(saver).rollback(moment)
    app.invoke({"log": ["-"]}, THREAD)
    for _ in range(3):
        saver.trim(timedelta(0))
        for reader in (saver, place.open()):
            inner = reader.list({"configurable": {"thread_id": "t"}})
            assert not any("WRONG" in str(one.checkpoint["channel_values"]) for one in inner)
        app.invoke({"log": ["-"]}, THREAD)
    assert remembering(place.open()).invoke({"log": ["two"]}, THREAD)["log"][-1] == "one,two"
    agent_of(saver).verify()


def test_a_subgraph_goes_on_from_what_it_was_at_the_end_of_another_line(place: Place) -> None:
    """Somebody went on from an older checkpoint, and the subgraph with him. Of its line a trim kept
    the last checkpoint: who then went on where the graph had been before had a subgraph that
    remembered nothing."""
    saver = place.open()
    app = remembering(saver)
    for said in ("one", "two"):
        app.invoke({"log": [said]}, THREAD)
    start = next(one for one in app.get_state_history(THREAD) if one.values["log"] == ["one"] * 2)
    end = app.get_state(THREAD).config
    app.invoke(None, app.update_state(start.config, {"log": ["other"]}, as_node=START))
    assert app.get_state(THREAD).values["log"][-1] == "one,other"
    for _ in range(3):
        app.invoke({"log": ["-"]}, THREAD)
    side = app.update_state(start.config, {"log": ["side"]}, as_node=START)
    saver.trim(timedelta(0))
    app = remembering(place.open())
    assert app.invoke(None, side)["log"][-1] == "one,side"
    again = app.update_state(end, {"log": ["three"]}, as_node=START)
    assert app.invoke(None, again)["log"][-1] == "one,two,three"


def test_a_rollback_to_before_a_trim_is_refused(place: Place) -> None:
    """One to a line that had been gone back from before the trim was taken: the state of its last
    commit was there. Of the checkpoint that this belonged to nothing was; the thread was said to be
    malformed, and to be deleted. Others brought back a thread without some of its lines."""
    saver = place.open()
    first, second = line(saver, 2)
    side = put(saver, {"n": "side"}, first, 9, source="update")
    saver.put_writes(side, [("out", 1)], "task")
    moment = end_of(saver)
    agent_of(saver).checkpoint("named")
    saver.put_writes(side, [("out", 2)], "task 2")
    gone = end_of(saver)
    put(saver, {"n": "inner"}, config(ns="sub:1"))
    agent_of(saver).rollback(2)
    at = line(saver, 9, second)[-1]
    saver.trim(timedelta(0))
    for to in (2, moment, gone):
        with pytest.raises(NotFound, match="removed by retention"):
            agent_of(saver).rollback(to)
    agent_of(saver).fork("what-if", at=gone)
    with pytest.raises(NotFound, match="removed by retention"):
        agent_of(saver).adopt("what-if")
    for reader in (saver, place.open()):
        assert get(reader).config == at
    agent_of(saver).rollback("named")
    for reader in (saver, place.open()):
        assert get(reader).config == side
        assert get(reader).pending_writes == [("task", "out", 1)]
        assert reader.get_tuple(config(ns="sub:1")) is None
        assert get(reader, second).config == second


@pytest.mark.parametrize("seed", range(2))
def test_trims_in_between_change_nothing_that_stands(place: Place, seed: int) -> None:
    """Beside LangGraph's own saver, which keeps all."""
    walk = TrimmedWalk(place, seed)
    for _ in range(20):
        walk.act()
    walk.both.agent().verify()


def trim_as_another(
    monkeypatch: pytest.MonkeyPatch, saver: PerdureSaver, acts: Callable[[], object]
) -> None:
    """Trim, and have somebody act between the look and the word."""
    say = trimming._say

    def late(*args: Any) -> None:
        monkeypatch.setattr(trimming, "_say", say)
        acts()
        say(*args)

    monkeypatch.setattr(trimming, "_say", late)
    assert saver.trim(timedelta(0))[0].removed
    assert trimming._say is say


def test_a_rollback_that_comes_just_before_the_word_of_a_trim_leads_to_all_of_the_thread(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trim had looked, and somebody went back to the end of a subgraph's line, which was to stay,
    before the trim said what goes: of what the graph itself had been at that moment nothing was
    left."""
    saver = place.open()
    *_, then = line(saver, 2)
    inner = put(saver, {"n": "inner"}, config(ns="sub:1"))
    moment = end_of(saver)
    saver.put_writes(then, [("out", 1)], "task")
    line(saver, 9, then)
    trim_as_another(monkeypatch, saver, lambda: agent_of(place.open()).rollback(moment))
    for reader in (saver, place.open()):
        assert get(reader).config == then
        assert not get(reader).pending_writes
        assert get(reader, config(ns="sub:1")).config == inner
    agent_of(saver).verify()


def test_a_removal_that_comes_just_before_the_word_of_a_trim_shows_what_was_before(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was removed had ended its line: of the checkpoint before that nothing was left."""
    saver = place.open()
    *_, then = line(saver, 9)
    at = put(saver, {"n": "wrong"}, then, 10, run_id="removed")
    put(saver, {"n": "last"}, at, 11, run_id="removed")
    trim_as_another(monkeypatch, saver, lambda: place.open().delete_for_runs(["removed"]))
    for reader in (saver, place.open()):
        assert get(reader).config == then
    agent_of(saver).verify()
