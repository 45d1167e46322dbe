"""The first turn on a thread, in a process that has just opened it."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph

import perdure
from perdure import SnapshotPolicy
from perdure.integrations.langgraph import PerdureSaver
from perdure.integrations.langgraph.threads import queued_writes
from perdure.integrations.langgraph.threads.queued_writes import Queue
from perdure.integrations.langgraph.threads.recent_commits import FOLDED_MAX
from perdure.integrations.langgraph.threads.state_changes import ValueSource
from perdure.storage.log.commits import CommitReader
from perdure.storage.sqlite.backend import SqliteBackend
from tests.integrations.langgraph.checkpoints import config, get, line, put

NONE = SnapshotPolicy(by_weight=False)
EVERY_TENTH = SnapshotPolicy(by_weight=False, every_commits=10)
THREAD: RunnableConfig = {"configurable": {"thread_id": "t"}}


class State(TypedDict):
    log: Annotated[list[int], operator.add]


def graph() -> Any:
    built = StateGraph(State)
    built.add_node("answer", lambda state: {"log": [len(state["log"])]})
    built.add_edge(START, "answer")
    return built


def invoke(app: Any) -> None:
    app.invoke({"log": [-1]}, THREAD, durability="sync")


def ainvoke(app: Any) -> None:
    asyncio.run(app.ainvoke({"log": [-1]}, THREAD, durability="sync"))


@pytest.mark.parametrize("call", [invoke, ainvoke])
def test_the_first_turn_commits_as_often_as_the_later_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[[Any], None]
) -> None:
    """The writes of a first step did not wait for the checkpoint behind: it was not known yet that
    a graph brings them. So a turn of a conversation, in a process that keeps too few threads in
    memory for all of its conversations, made four or five commits instead of three."""
    monkeypatch.setattr(queued_writes, "PATIENCE_S", 5.0)
    commits: list[int] = []
    append = SqliteBackend.append

    def counted(self: SqliteBackend, batch: Any) -> Any:
        commits.append(len(batch))
        return append(self, batch)

    monkeypatch.setattr(SqliteBackend, "append", counted)
    for turn in range(1, 4):
        with PerdureSaver.from_url(tmp_path / "ours.db") as saver:
            app = graph().compile(checkpointer=saver)
            commits.clear()
            call(app)
            assert commits == [1, 1, 1]
            assert len(app.get_state(THREAD).values["log"]) == 2 * turn


def update(app: Any) -> None:
    app.update_state(THREAD, {"log": [7]}, as_node="answer")


def aupdate(app: Any) -> None:
    asyncio.run(app.aupdate_state(THREAD, {"log": [7]}, as_node="answer"))


@pytest.mark.parametrize("call", [update, aupdate])
def test_who_changes_a_state_by_hand_does_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[[Any], None]
) -> None:
    """It brings writes and checkpoint one after the other: the first would wait in vain."""
    waits: list[float] = []
    rounds = Queue.rounds

    def watched(self: Queue, request: Any, *args: Any) -> Iterator[float]:
        for seconds in rounds(self, request, *args):
            waits.append(seconds)
            yield seconds

    with PerdureSaver.from_url(tmp_path / "ours.db") as saver:
        invoke(graph().compile(checkpointer=saver))
    monkeypatch.setattr(Queue, "rounds", watched)
    with PerdureSaver.from_url(tmp_path / "ours.db") as saver:
        app = graph().compile(checkpointer=saver)
        call(app)
        assert app.get_state(THREAD).values["log"][-1] == 7
    assert waits == []


def test_what_is_known_of_the_last_messages_is_looked_at_not_made_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All parts of the last eight messages were collected twice at each step."""
    said = [HumanMessage(f"{number}", id=f"{number}") for number in range(12)]
    source = ValueSource(said[:10])
    looked: list[Any] = []
    whole = source._wholes_of.__globals__["_whole"]

    def counted(item: Any) -> Any:
        looked.append(item)
        return whole(item)

    monkeypatch.setitem(source._wholes_of.__globals__, "_whole", counted)
    for count in (11, 12):
        found = source.unchanged(said[:count])
        assert found == (count - 1, [])
        source = source.extended(said[:count], *found)
    assert looked == said[10:]
    said[5].additional_kwargs["filled"] = "in place"
    said[9].content = "changed in place"
    assert source.unchanged(said) == (12, [5, 9])


@contextmanager
def opened(folder: Path, snapshots: SnapshotPolicy) -> Iterator[PerdureSaver]:
    with perdure.open(folder / "ours.db", snapshots=snapshots) as store:
        yield PerdureSaver(store)


@pytest.mark.parametrize("count", [1, 5, 30, 45])
def test_a_short_thread_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Each commit was read and proved twice: for where the thread ends, and for its state. What is
    read is shared, and what is folded of it goes on in place: neither may change the other."""
    with opened(tmp_path, NONE) as saver:
        line(saver, count)
    read: list[int] = []
    decode = CommitReader._decode

    def counted(self: CommitReader, row: Any) -> Any:
        read.append(row.seq)
        return decode(self, row)

    with opened(tmp_path, NONE) as saver:
        with monkeypatch.context() as patch:
            patch.setattr(CommitReader, "_decode", counted)
            found = get(saver)
        assert found.checkpoint["channel_values"]["n"] == count - 1
        if count <= FOLDED_MAX:
            assert len(read) <= count + 1  # the first may be read by itself: what schema is it of
        at = found.config
        for number in range(count, count + 3):
            at = put(saver, {"n": number, "log": list(range(number))}, at, number + 1)
        told = list(saver.list(config()))
        assert [one.checkpoint["channel_values"]["n"] for one in told] == [
            *reversed(range(count + 3))
        ]
        with PerdureSaver.from_url(tmp_path / "ours.db") as another:
            assert told == list(another.list(config()))
            for one in told:
                assert get(saver, one.config) == get(another, one.config) == one


@pytest.mark.parametrize("count", [4, 20])
def test_a_snapshot_in_a_short_thread_is_known(tmp_path: Path, count: int) -> None:
    """A state that was folded from the first commit on would be thought to have none: each process
    that opens the store would write another one."""
    for turn in range(4):
        with opened(tmp_path, EVERY_TENTH) as saver:
            latest = saver.get_tuple(config())
            at = None if latest is None else latest.config
            for number in range(count // 4 * turn, count // 4 * (turn + 1)):
                at = put(saver, {"n": number}, at, number + 1)
            assert saver.store.sizes().snapshots == count // 4 * (turn + 1) // 10
