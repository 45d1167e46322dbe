"""`perdure rollback` moves a thread back as a whole: what it waits for and what it wrote, too."""

from __future__ import annotations

import asyncio
import operator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

import perdure
from perdure.errors import Conflict
from perdure.integrations.langgraph import PerdureSaver
from perdure.integrations.langgraph.threads.counted_commits import Past
from perdure.integrations.langgraph.values.thread_names import SCHEMA_ID
from tests.cli.operator import Operator
from tests.integrations.langgraph.checkpoints import config, get, id_of, line, put, values_of
from tests.integrations.langgraph.conftest import Place
from tests.integrations.langgraph.going_back import AsyncWalk, Walk

THREAD: RunnableConfig = {"configurable": {"thread_id": "t"}}


def _extend(old: list[Any] | None, batches: list[list[Any]]) -> list[Any]:
    return [*(old or []), *(item for batch in batches for item in batch)]


class Plain(TypedDict, total=False):
    log: Annotated[list[str], operator.add]


class Delta(TypedDict, total=False):
    log: Annotated[list[str], DeltaChannel(_extend)]


def payment(saver: PerdureSaver, schema: Any = Plain) -> Any:
    graph = StateGraph(schema)
    graph.add_node("a", lambda state: {"log": ["a"]})
    graph.add_node("b", lambda state: {"log": [f"approved: {interrupt('pay?')}"]})
    graph.add_edge(START, "a")
    graph.add_edge("a", "b")
    return graph.compile(checkpointer=saver)


def agent_of(saver: PerdureSaver, branch: str = "main") -> Any:
    info = saver.store.find("t")
    assert info is not None
    return saver.store.agent_of(info, branch=branch)


def end_of(saver: PerdureSaver) -> int:
    return int(max(commit.seq for commit in agent_of(saver).log(all_branches=True)))


ACTIONS = 14


@pytest.mark.parametrize("seed", range(2))
def test_a_thread_is_what_it_was_when_that_commit_was_the_newest(place: Place, seed: int) -> None:
    """Beside LangGraph's own saver, of which a copy is kept for each commit."""
    walk = Walk(place, seed)
    for _ in range(ACTIONS):
        walk.act()
    walk.both.agent().verify()


def test_so_it_is_for_coroutines(place: Place) -> None:
    with asyncio.Runner() as loop:
        walk = AsyncWalk(place, 3, loop)
        for _ in range(ACTIONS):
            walk.act()


@pytest.mark.parametrize("schema", [Plain, Delta])
def test_an_approval_that_was_gone_back_from_does_not_count(place: Place, schema: Any) -> None:
    """A graph waited for an approval, got it, and was rolled back to where it waited. The approval
    still counted: it did not wait any more, and a "NO" was not even looked at."""
    saver = place.open()
    app = payment(saver, schema)
    app.invoke({"log": ["1"]}, THREAD)
    waiting = end_of(saver)
    app.invoke(Command(resume="yes"), THREAD)
    approved = end_of(saver)
    agent_of(saver).rollback(waiting)
    for reader in (saver, place.open()):
        state = payment(reader, schema).get_state(THREAD)
        assert (state.values, state.next) == ({"log": ["1", "a"]}, ("b",))
        assert [one.value for one in state.interrupts] == ["pay?"]
    app = payment(place.open(), schema)
    assert app.invoke(Command(resume="NO"), THREAD) == {"log": ["1", "a", "approved: NO"]}
    agent_of(saver).rollback(approved)  # forward
    for reader in (saver, place.open()):
        app = payment(reader, schema)
        assert app.get_state(THREAD).values == {"log": ["1", "a", "approved: yes"]}
        history = [one.values.get("log", []) for one in app.get_state_history(THREAD)]
        assert not any("approved: NO" in log for log in history)


def test_it_goes_back_to_before_another_line(place: Place) -> None:
    """Somebody had gone back in LangGraph, so the thread's end was that of another line. A rollback
    of the first one said that it was done, and changed nothing."""
    saver = place.open()
    first, second, _ = line(saver, 3)
    other = put(saver, {"n": "other"}, first, 9, source="update")
    put(saver, {"n": "more"}, other, 10)
    agent_of(saver).rollback(2)
    for reader in (saver, place.open()):
        assert get(reader).config == second
        assert [one.config for one in reader.list(config())] == [second, first]
        assert reader.get_tuple(other) is None
    later = put(place.open(), {"n": "later"}, second, 11)
    assert values_of(saver) == {"n": "later"}
    agent_of(saver, "main~2").rollback(5)  # forward, on the other line
    for reader in (saver, place.open()):
        assert values_of(reader) == {"n": "more"}
        assert reader.get_tuple(later) is None
        assert len(list(reader.list(config()))) == 5


def test_an_undo_is_refused_with_the_command_that_does_it(tmp_path: Path) -> None:
    """It said what it had undone; for LangGraph nothing had changed."""
    path = tmp_path / "threads.db"
    with PerdureSaver.from_url(path) as saver:
        line(saver, 2)
        saver.put_writes(get(saver).config, [("out", 1)], "task")
        put(saver, {"n": 7}, get(saver).config, 7)
        with pytest.raises(Conflict, match="as a whole"):
            agent_of(saver).undo()
    operator = Operator(path)
    code, said = operator.refused("undo", "t")
    assert code == 4
    assert "rollback t 2`" in said
    operator.see("rollback", "t", "2")
    with PerdureSaver.from_url(path) as saver:
        assert values_of(saver)["n"] == 1
        assert get(saver).pending_writes == []
    assert "rollback t 4`" in operator.refused("redo", "t")[1]
    operator.see("rollback", "t", "4")
    assert "rollback t 5`" in operator.refused("redo", "t")[1]
    with PerdureSaver.from_url(path) as saver:
        assert values_of(saver) == {"n": 7}
        agent_of(saver).fork("what-if")  # which LangGraph does not look at, but may be adopted
        put(saver, {"n": 8}, get(saver).config, 8)
    assert "log t --all`" in operator.refused("redo", "t")[1]
    assert "rollback t 6`" in operator.refused("undo", "t")[1]
    assert "rollback t 2 --branch what-if`" in operator.refused("undo", "t", "-b", "what-if")[1]


def test_an_edit_is_refused_with_the_call_that_does_it(place: Place) -> None:
    """Story: a password was edited out of a thread. The commit was made, and `perdure state` showed
    it; the graph still had the password, and its next step committed a state with it. So it was on
    a fork that was adopted then."""
    saver = place.open()
    at = line(saver, 2)[-1]
    before = end_of(saver)
    called = []

    def change(draft: Any) -> None:
        called.append(draft)
        draft["values"]["n"] = 7

    agents = [agent_of(saver), agent_of(saver).fork("what-if")]
    for agent in agents:
        with pytest.raises(Conflict, match="update_state"):
            agent.update(change)
        with pytest.raises(Conflict, match="update_state"), agent.edit("by hand"):
            called.append(agent)
        with pytest.raises(Conflict, match="update_state"):
            agent.save({"values": {"n": 7}, "versions": {}, "seen": {}})
        assert agent.state["values"] == agent.refresh()["values"] == {"n": 1, "log": [0]}
    assert called == []
    assert end_of(saver) == before + 1  # the fork

    @perdure.agent(perdure.Schema(dict, id=SCHEMA_ID))
    def edits(run: perdure.Run[dict[str, Any]]) -> None:
        with run.edit("by hand") as draft:
            change(draft)

    with pytest.raises(Conflict, match="update_state"):
        saver.store.run(edits, "t")
    with pytest.raises(Conflict, match="update_state"):
        saver.store.agent("new", perdure.Schema(dict, id=SCHEMA_ID)).checkpoint("begun")
    assert saver.store.find("new") is None
    put(saver, {"n": 8}, at, 8)
    assert values_of(place.open()) == {"n": 8}


def test_an_edit_by_a_coroutine_is_refused(tmp_path: Path) -> None:
    """Story: as above; who awaits reads the head and begins the block on other ways."""
    path = tmp_path / "threads.db"
    with PerdureSaver.from_url(path) as saver:
        line(saver, 2)
    asyncio.run(_edits_refused(path))


async def _edits_refused(path: Path) -> None:
    async with perdure.open_async(path) as store:
        agent = await store.agent("t", perdure.Schema(dict, id=SCHEMA_ID))
        for _ in range(2):
            with pytest.raises(Conflict, match="update_state"):
                async with agent.edit("by hand"):
                    raise AssertionError
        with pytest.raises(Conflict, match="update_state"):
            await agent.update(lambda draft: draft.clear())
        with pytest.raises(Conflict, match="update_state"):
            await agent.save({})
        assert (await agent.refresh())["values"]["n"] == 1


def test_a_subgraphs_line_does_not_go_back_alone(place: Place) -> None:
    saver = place.open()
    line(saver, 1)
    put(saver, {"n": 1}, config(ns="sub"))
    with pytest.raises(Conflict, match="alone"):
        agent_of(saver, "ns:sub").rollback(1)
    assert values_of(saver, config(ns="sub")) == {"n": 1}
    agent_of(saver).rollback(1)
    for reader in (saver, place.open()):
        assert reader.get_tuple(config(ns="sub")) is None
    put(saver, {"n": 2}, config(ns="sub"))
    for reader in (saver, place.open()):
        assert values_of(reader, config(ns="sub")) == {"n": 2}


def test_who_goes_on_from_what_is_gone_is_told(place: Place) -> None:
    """A graph runs while somebody takes its thread back. What it stores next would stand there
    without anything before it."""
    saver, running = place.open(), place.open()
    _, second, third = line(running, 3)
    agent_of(saver).rollback(2)
    with pytest.raises(Conflict, match="is gone") as refused:
        put(running, {"n": "late"}, third, 4)
    assert "call the graph again" in refused.value.hint
    with pytest.raises(Conflict, match="is gone"):
        running.put_writes(third, [("n", "late")], "task")
    for reader in (saver, running, place.open()):
        assert get(reader).config == second
    assert values_of(running, put(running, {"n": "in time"}, second, 5)) == {"n": "in time"}


def test_what_came_a_moment_too_late_does_not_count(place: Place) -> None:
    """On another line than the one that was moved the log does not stop a writer who has not seen
    that. A graph's last result was acknowledged, and not in the thread: nobody was told."""
    saver, running = place.open(), place.open()
    first, second = line(saver, 2)
    other = put(running, {"n": "other"}, first, 9, source="update")
    agent_of(saver).rollback(2)
    for _ in range(2):
        with pytest.raises(Conflict, match="is gone"):
            put(running, {"n": "late"}, other, 10)
    for reader in (saver, running, place.open()):
        assert get(reader).config == second
        assert len(list(reader.list(config()))) == 2


@pytest.mark.parametrize("at_end", [True, False])
def test_writes_that_came_a_moment_too_late_are_refused(place: Place, at_end: bool) -> None:
    saver, running = place.open(), place.open()
    first, second = line(saver, 2)
    other = put(running, {"n": "other"}, first, 9, source="update")
    if not at_end:
        put(saver, {"n": "its child"}, other, 10)
        assert values_of(running) == {"n": "its child"}
    agent_of(saver).rollback(2)
    with pytest.raises(Conflict, match="is gone"):
        running.put_writes(other, [("n", "late")], "task")
    for reader in (saver, running, place.open()):
        assert get(reader).config == second
        assert len(list(reader.list(config()))) == 2


def test_what_came_behind_writes_that_are_gone_is_put_behind_what_stands(place: Place) -> None:
    """A thread was moved back to before an approval, on a line made by time travel, while its graph
    ran on: the next checkpoint came behind the approval, was acknowledged, and was gone with it."""
    saver, running = place.open(), place.open()
    first, _ = line(saver, 2)
    other = put(running, {"n": "other"}, first, 9, source="update")
    before = end_of(saver)
    running.put_writes(other, [("n", "approved")], "task")
    assert get(running, other).pending_writes
    agent_of(saver).rollback(before)
    after = put(running, {"n": "after"}, other, 10)
    for reader in (saver, running, place.open()):
        assert get(reader).config == after
        assert values_of(reader) == {"n": "after"}
        assert get(reader, other).pending_writes == []
    running.put_writes(after, [("n", "approved")], "task")
    agent_of(saver).verify()


@pytest.mark.parametrize("forked", [False, True])
@pytest.mark.parametrize("durability", ["sync", "exit"])
def test_a_graph_that_runs_while_its_thread_is_moved_back_is_told(
    place: Place, forked: bool, durability: Any
) -> None:
    """A conversation had been edited once, so it lived on a line made by time travel. A rollback
    while its graph worked told nobody: `invoke` returned its result, which was not in the thread;
    the next call paid again."""
    saver, moments = place.open(), list[int]()

    def work(state: Plain) -> Plain:
        if moments:
            agent_of(place.open()).rollback(moments.pop())
        return {"log": [f"worked {len(state['log'])}"]}

    graph = StateGraph(Plain)
    graph.add_node("work", work)
    graph.add_edge(START, "work")
    app: Any = graph.compile(checkpointer=saver)
    app.invoke({"log": ["one"]}, THREAD)
    if forked:
        app.invoke(None, app.update_state(app.get_state(THREAD).config, {"log": ["edited"]}))
        start = next(one for one in app.get_state_history(THREAD) if one.metadata["step"] == 0)
        app.invoke(None, app.update_state(start.config, {"log": ["another way"]}))
    before, moment = app.get_state(THREAD).values, end_of(saver)
    app.invoke({"log": ["taken back"]}, THREAD)
    moments.append(moment)
    with pytest.raises(Conflict, match="is gone"):
        app.invoke({"log": ["paid the bill"]}, THREAD, durability=durability)
    assert app.get_state(THREAD).values == before


def test_what_came_too_late_does_not_count_where_an_earlier_rollback_was_heard_of(
    place: Place,
) -> None:
    """Who had heard of one rollback, and was late for the next one, was taken for one who had heard
    of that, too: what he put stood as the newest of a thread that had been moved back from it."""
    saver, running = place.open(), place.open()
    first, second, _ = line(saver, 3)
    agent_of(saver).rollback(2)
    before = end_of(saver)
    other = put(running, {"n": "other"}, first, 9, source="update")
    put(saver, {"n": "more"}, second, 10)
    agent_of(saver).rollback(before)
    with pytest.raises(Conflict, match="is gone"):
        put(running, {"n": "late"}, other, 11)
    for reader in (saver, running, place.open()):
        assert get(reader).config == second
        assert len(list(reader.list(config()))) == 2


def test_a_checkpoint_that_is_gone_may_be_put_again(place: Place) -> None:
    saver = place.open()
    first = put(saver, {"n": 1}, id="a")
    put(saver, {"n": 2}, first, 2, id="b")
    saver.put_writes(config("t", "b"), [("out", 2)], "task")
    agent_of(saver).rollback(1)
    for number in (3, 3, 4):
        put(saver, {"n": number}, first, number, id="b")
        for reader in (saver, place.open()):
            assert values_of(reader) == {"n": number}
            assert get(reader).pending_writes == []
    saver.put_writes(config("t", "b"), [("out", 4)], "task")
    for reader in (saver, place.open()):
        assert get(reader).pending_writes == [("task", "out", 4)]


def test_what_was_pruned_later_is_there_again(place: Place) -> None:
    saver = place.open()
    line(saver, 3)
    saver.prune(["t"])
    pruned = end_of(saver)
    assert len(list(saver.list(config()))) == 1
    agent_of(saver).rollback(3)
    for reader in (saver, place.open()):
        assert len(list(reader.list(config()))) == 3
    put(saver, {"n": 9}, get(saver).config, 9)
    saver.prune(["t"])
    for reader in (saver, place.open()):
        assert [one.checkpoint["channel_values"] for one in reader.list(config())] == [{"n": 9}]
    agent_of(saver).rollback(pruned)
    for reader in (saver, place.open()):
        assert [one.checkpoint["channel_values"]["n"] for one in reader.list(config())] == [2]


def test_what_was_removed_is_removed_once_more_behind_a_rollback(place: Place) -> None:
    """A rollback to before `delete_for_runs` showed what it had removed, rightly. The same call
    then found nothing to write, as what it would have said was written already, behind the
    rollback: it returned, and all was there as before, for good."""
    saver = place.open()
    for run in ("r1", "r2"):
        put(saver, {"n": run}, config(), 0, run_id=run)
    before = end_of(saver)
    for _ in range(3):
        saver.delete_for_runs(["r1"])
        for reader in (saver, place.open()):
            assert [one.metadata["run_id"] for one in reader.list(config())] == ["r2"]
        removed = end_of(saver)
        saver.delete_for_runs(["r1"])
        assert end_of(saver) == removed
        agent_of(saver).rollback(before)
        for reader in (saver, place.open()):
            assert [one.metadata["run_id"] for one in reader.list(config())] == ["r2", "r1"]


def test_a_copy_is_of_the_thread_as_it_was(place: Place) -> None:
    saver = place.open()
    line(saver, 3)
    saver.copy_thread("t", "before")
    agent_of(saver).rollback(2)
    saver.copy_thread("t", "after")
    put(saver, {"n": 7}, get(saver).config, 7)
    for reader in (saver, place.open()):
        assert values_of(reader, config("before"))["n"] == 2
        assert values_of(reader, config("after"))["n"] == 1
        assert len(list(reader.list(config("after")))) == 2
    at = put(saver, {"n": 8}, get(saver, config("after")).config, 8)
    info = saver.store.find("after")
    assert info is not None
    saver.store.agent_of(info).rollback(1)
    for reader in (saver, place.open()):
        assert reader.get_tuple(at) is None
        assert values_of(reader, config("after"))["n"] == 1


def test_an_adopted_branch_is_the_moment_at_which_it_left(place: Place) -> None:
    saver = place.open()
    _, second, third = line(saver, 3)
    agent = agent_of(saver)
    agent.fork("what-if", at=2)
    saver.put_writes(second, [("out", 1)], "task")
    agent_of(saver).adopt("what-if")
    for reader in (saver, place.open()):
        assert get(reader).config == second
        assert get(reader).pending_writes == []
        assert reader.get_tuple(third) is None


def test_retention_keeps_what_a_thread_was_moved_back_to(place: Place) -> None:
    saver = place.open()
    _, second, _ = line(saver, 3)
    agent_of(saver).rollback(2)
    made = put(saver, {"n": 7}, second, 7)
    agent_of(saver).rollback(end_of(saver))
    put(saver, {"n": 8}, made, 8)
    saver.trim(timedelta(0))
    for reader in (saver, place.open()):
        assert values_of(reader) == {"n": 8}
        # The first commit of a log stays, and the one behind which the horizon is.
        assert [one.checkpoint["channel_values"]["n"] for one in reader.list(config())] == [8, 7, 0]
    at = put(place.open(), {"n": 9}, get(saver).config, 9)
    agent_of(saver).rollback(end_of(saver) - 1)
    for reader in (saver, place.open()):
        assert values_of(reader) == {"n": 8}
        assert reader.get_tuple(at) is None


def test_threads_that_an_earlier_version_moved_back_are_read_as_it_did(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It did not note what its commits came behind."""
    saver = place.open()
    _, second, third = line(saver, 3)
    agent_of(saver).rollback(2)
    with monkeypatch.context() as before:
        before.setattr(Past, "record", lambda self: [])
        later = put(saver, {"n": 7}, second, 7)
    for reader in (saver, place.open()):
        assert get(reader).config == later
        assert get(reader).parent_config == second
    assert get(place.open(), third).checkpoint["channel_values"]["n"] == 2
    last = put(place.open(), {"n": 8}, later, 8)
    agent_of(saver).rollback(end_of(saver) - 1)
    for reader in (saver, place.open()):
        assert get(reader).config == later
        assert reader.get_tuple(last) is None


def test_of_who_never_went_back_nothing_is_noted(place: Place) -> None:
    saver = place.open()
    for at in line(saver, 3):
        saver.put_writes(at, [("out", id_of(at))], "task")
    assert all(
        record["t"] != "lg-after" for commit in agent_of(saver).log() for record in commit.records
    )


@pytest.mark.parametrize("ns", ["", "sub:1"])
def test_what_is_put_once_more_behind_a_rollback_is_what_one_gets(place: Place, ns: str) -> None:
    """Writes for the end of a line were gone back from, and its checkpoint was put once more, with
    other values. `list` showed these; `get_tuple` the values that it had been put with first: by
    its id, where others came behind it, and of a subgraph also as the latest one."""
    saver = place.open()
    root = put(saver, {"n": 0})
    put(saver, {"n": 1}, root, 2)
    parent = config(ns=ns) if ns else root
    side = put(saver, {"n": "first"}, parent, 3, source="update")
    before = end_of(saver)
    saver.put_writes(side, [("out", 1)], "task")
    agent_of(saver).rollback(before)
    other = place.open()
    again = put(other, {"n": "again"}, parent, 4, id=id_of(side))
    for last in ("again", "more"):
        if last == "more":
            put(other, {"n": "more"}, again, 5)
        for reader in (saver, place.open()):
            listed = {id_of(one.config): one for one in reader.list(config(ns=ns))}
            assert get(reader, side) == listed[id_of(side)]
            assert values_of(reader, side) == {"n": "again"}
            assert values_of(reader, config(ns=ns)) == {"n": last}


@pytest.mark.parametrize("noted", ["pruned", "copied"])
def test_an_approval_that_was_gone_back_from_does_not_come_back_with_what_was_noted(
    place: Place, noted: str
) -> None:
    """An approval was gone back from; then the thread was pruned, or copied, which is noted on a
    branch of its own. A rollback to that very commit brought the approval back: nobody was asked.
    And no checkpoint could be put behind it: there was a KeyError."""
    saver = place.open()
    app = payment(saver)
    app.invoke({"log": ["1"]}, THREAD)
    waiting = end_of(saver)
    app.invoke(Command(resume="yes"), THREAD)
    agent_of(saver).rollback(waiting)
    if noted == "pruned":
        saver.prune(["t"])
    else:
        saver.copy_thread("t", "copy")
    before = list(saver.list(config()))
    moment = end_of(saver)
    saver.put_writes(before[0].config, [("log", ["later"])], "task")
    agent_of(saver).rollback(moment)
    for reader in (saver, place.open()):
        assert list(reader.list(config())) == before
        state = payment(reader).get_state(THREAD)
        assert (state.next, [one.value for one in state.interrupts]) == (("b",), ["pay?"])
    app = payment(place.open())
    assert app.invoke(Command(resume="NO"), THREAD) == {"log": ["1", "a", "approved: NO"]}
    assert app.invoke({"log": ["2"]}, THREAD)["log"][-2:] == ["2", "a"]
    agent_of(saver).verify()


def test_a_subgraph_that_has_not_heard_of_a_rollback_is_a_moment_behind_it(place: Place) -> None:
    """A thread was moved back while a process went on with a subgraph. Back at the moment of what
    that had put, the checkpoint that had been gone back from was there again."""
    saver = place.open()
    first = put(saver, {"n": 0})
    inner = put(saver, {"n": "inner"}, config(ns="sub:1"))
    before = end_of(saver)
    gone = put(saver, {"n": 1}, first, 2)
    other = place.open()
    agent_of(other).rollback(before)
    put(saver, {"n": "more"}, inner, 3)
    moment = end_of(saver)
    put(other, {"n": 2}, first, 4)
    agent_of(other).rollback(moment)
    for reader in (saver, other, place.open()):
        assert reader.get_tuple(gone) is None
        assert [one.config for one in reader.list(config())] == [first]
        assert values_of(reader, config(ns="sub:1")) == {"n": "more"}


def test_a_turn_behind_many_rollbacks_reads_no_more_than_behind_a_few(place: Place) -> None:
    """A chat had a button that takes back the last message. Each answer read all that had ever been
    taken back: nobody had thought that more than a few would."""
    saver = place.open()
    graph = payment(saver)
    graph.invoke({"log": []}, THREAD)
    start, read = end_of(saver), list[int]()
    backend: Any = saver.store._context.backend
    reads = backend.read

    def counted(*args: Any, **more: Any) -> Any:
        rows = reads(*args, **more)
        read[-1] += len(rows)
        return rows

    for number in range(181):
        if number in (60, 180):
            read.append(0)
            with patch.object(backend, "read", counted):
                graph.get_state(THREAD)
                graph.invoke({"log": []}, THREAD)
        else:
            put(saver, {"n": number}, get(saver).config)
        agent_of(saver).rollback(start)
    assert read[1] < 1.5 * read[0], read
