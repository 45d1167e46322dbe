"""What was written to a channel on the way to a checkpoint, read from the log as neighbours: the
same as LangGraph's own saver finds row by row, in threads of every shape."""

from __future__ import annotations

import asyncio
import operator
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from perdure.adapters.foreign_logs import ForeignLog
from perdure.integrations.langgraph import PerdureSaver
from perdure.integrations.langgraph.threads import channel_history, queued_writes
from perdure.integrations.langgraph.threads.queued_writes import Queue
from perdure.storage.log.reader import LogReader
from perdure.storage.sqlite.backend import SqliteBackend
from tests.integrations.langgraph.checkpoints import checkpoint, config, id_of, lock_of, put
from tests.integrations.langgraph.conftest import Place

SEEDS = range(12)
ACTIONS = 60
CHANNELS = ("ch", "other")


class Pair:
    """The same calls of our savers, in turns, and of LangGraph's."""

    def __init__(self, place: Place, theirs: SqliteSaver, seed: int) -> None:
        self._place = place
        self._theirs = theirs
        self._random = random.Random(seed)
        self._ours = [place.open(), place.open()]
        self._looks = place.open()
        self._made: list[str] = []
        self._promised: list[str] = []
        self._number = 0

    def act(self) -> None:
        act = self._random.choices(
            [self._go_on, self._write, self._put_again, self._reopen, self._promise, self.compare],
            [8, 8, 4, 1, 3, 6],
        )[0]
        act()

    def _any(self) -> str | None:
        """A checkpoint; the last one more often than all others together."""
        if not self._made:
            return None
        return self._made[-1] if self._random.random() < 0.7 else self._random.choice(self._made)

    def _mine(self) -> PerdureSaver:
        return self._random.choice(self._ours)

    def _values(self) -> dict[str, Any]:
        kinds: tuple[Any, ...] = (None, _DeltaSnapshot([self._number]), [self._number], "text")
        return {
            channel: self._random.choice(kinds)
            for channel in CHANNELS
            if self._random.random() < 0.2
        }

    def _put(self, checkpoint_id: str, parent: str | None) -> None:
        self._number += 1
        made = checkpoint(self._values(), self._number, checkpoint_id)
        metadata: Any = {"source": "loop", "step": self._number, "parents": {}}
        mine = self._mine()
        if parent is not None and self._random.random() < 0.4:
            self._put_with_writes(mine, made, metadata, parent)
        else:
            mine.put(config("t", parent), made, metadata, {})
        self._theirs.put(config("t", parent), made, metadata, {})

    def _put_with_writes(self, mine: PerdureSaver, made: Any, metadata: Any, parent: str) -> None:
        """In one commit."""
        at, task = config("t", parent), f"along {self._number}"
        writes = [("ch", self._number), ("else", 0)]
        thread = mine._thread("t")
        with lock_of(thread):
            writer = threading.Thread(target=mine.put_writes, args=(at, writes, task))
            writer.start()
            while not thread.queue.holds("", parent):
                pass
            mine.put(at, made, metadata, {})
        writer.join()
        self._theirs.put_writes(at, writes, task)

    def _go_on(self) -> None:
        promised = bool(self._promised) and self._random.random() < 0.5
        checkpoint_id = self._promised.pop() if promised else self._new_id()
        self._put(checkpoint_id, self._any())
        self._made.append(checkpoint_id)

    def _new_id(self) -> str:
        self._number += 1
        return str(uuid6(clock_seq=self._number % 10_000))

    def _write(self, checkpoint_id: str | None = None) -> None:
        at = config("t", checkpoint_id or self._any() or self._new_id())
        self._number += 1
        channels = self._random.choices((*CHANNELS, "else"), k=self._random.randint(1, 3))
        writes = [(channel, [self._number]) for channel in channels]
        task = f"task {self._random.randint(1, 3)}"
        path = self._random.choice(("", "~1", "~2"))
        self._mine().put_writes(at, writes, task, path)
        self._theirs.put_writes(at, writes, task, path)

    def _promise(self) -> None:
        """Writes for a checkpoint that comes later."""
        self._promised.append(self._new_id())
        self._write(self._promised[-1])

    def _put_again(self) -> None:
        if self._made:
            self._put(self._random.choice(self._made), self._any())

    def _reopen(self) -> None:
        self._ours[self._random.randint(0, 1)] = self._place.open()

    def compare(self) -> None:
        at = config("t", None if self._random.random() < 0.5 else self._any())
        mine = self._mine()
        if self._random.random() < 0.5:  # as LangGraph does it; it has the state in memory then
            mine.get_tuple(at)
        found = mine.get_delta_channel_history(config=at, channels=CHANNELS)
        same = self._meant(at)
        assert found == self._theirs.get_delta_channel_history(config=same, channels=CHANNELS)

    def _meant(self, at: RunnableConfig) -> RunnableConfig:
        """The checkpoint that ours takes for the latest. One that was promised has a lesser id than
        those that came meanwhile: put behind one of them, it is what the thread goes on from."""
        latest = self._looks.get_tuple(at)
        if "checkpoint_id" in at["configurable"] or latest is None:
            return at
        theirs = self._theirs.get_tuple(at)
        assert theirs is not None
        assert id_of(latest.config) <= id_of(theirs.config)
        return latest.config


@pytest.mark.parametrize("seed", SEEDS)
def test_every_walk_is_that_of_langgraphs_saver(place: Place, seed: int) -> None:
    with SqliteSaver.from_conn_string(":memory:") as theirs:
        pair = Pair(place, theirs, seed)
        for _ in range(ACTIONS):
            pair.act()
        pair.compare()


def test_a_checkpoint_that_was_put_again_behind_what_came_of_it_ends_the_walk(
    saver: PerdureSaver,
) -> None:
    """A checkpoint was put once more with its own child as its parent. The walk to its root went
    round for ever, under the lock of the thread: nobody could use that thread any more."""
    first = put(saver, {}, version=1)
    second = put(saver, {}, first, 2)
    saver.put_writes(first, [("ch", "a")], "task")
    put(saver, {}, second, 3, id_of(first))
    for at in (first, second):
        found = saver.get_delta_channel_history(config=at, channels=["ch"])
        assert [value for *_, value in found["ch"]["writes"]] in ([], ["a"])


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked of logs: ``key``, ``commit``, ``at`` and ``rows``."""
    asked: list[str] = []

    def count(owner: Any, name: str, what: str) -> None:
        called = getattr(owner, name)

        def counting(self: Any, *args: Any, **more: Any) -> Any:
            asked.append(what)
            return called(self, *args, **more)

        monkeypatch.setattr(owner, name, counting)

    for name in ("key", "commit", "at"):
        count(ForeignLog, name, name)
    count(LogReader, "commits", "rows")
    return asked


def test_a_walk_is_one_read_of_the_log(place: Place, reads: list[str]) -> None:
    """Behind a snapshot and 98 steps, one load of a thread made 829 reads of a commit, 830 look-ups
    of a key, and a fold of the state for each ancestor: a chat turn took ten times as long as with
    LangGraph's saver."""
    saver = place.open()
    at = put(saver, {"ch": _DeltaSnapshot(["seed"])}, version=1)
    for number in range(98):
        saver.put_writes(at, [("else", number), ("ch", number)], f"{number}")
        at = put(saver, {"n": number}, at, number + 2)
    fresh = place.open()
    assert fresh.get_tuple(config()) is not None
    before = reads.count("rows")
    reads.clear()
    found = fresh.get_delta_channel_history(config=config(), channels=["ch"])["ch"]
    assert found["seed"] == _DeltaSnapshot(["seed"])
    assert [value for *_, value in found["writes"]] == list(range(98))
    assert reads == []  # it goes on with what `get_tuple` began to read
    assert before == 1


def test_a_walk_from_the_past_folds_no_state(place: Place, reads: list[str]) -> None:
    """`get_state_history` asks for the writes behind each checkpoint: each time a state was folded
    to see whether there is a value of the channel, though the ops on the way say it."""
    saver = place.open()
    at = put(saver, {"n": 0, "ch": _DeltaSnapshot(["seed"])}, version=1)
    past = []
    for number in range(30):
        saver.put_writes(at, [("ch", number)], f"{number}")
        at = put(saver, {"n": number}, at, number + 2)
        past.append(at)
    fresh = place.open()
    for number, behind in enumerate(past):
        found = fresh.get_delta_channel_history(config=behind, channels=["ch", "none"])
        assert found["ch"]["seed"] == _DeltaSnapshot(["seed"])
        assert [value for *_, value in found["ch"]["writes"]] == list(range(number + 1))
        assert found["none"] == {"writes": []}
    assert reads.count("at") == 0


def test_a_walk_reads_what_came_since_the_last_one(place: Place, reads: list[str]) -> None:
    saver = place.open()
    at = put(saver, {"ch": _DeltaSnapshot(["seed"])}, version=1)
    for number in range(40):
        saver.put_writes(at, [("ch", number)], f"{number}")
        at = put(saver, {}, at, number + 2)
        found = saver.get_delta_channel_history(config=config(), channels=["ch"])["ch"]
        assert [value for *_, value in found["writes"]] == list(range(number + 1))
    assert reads.count("at") <= 1
    assert reads.count("commit") + reads.count("key") <= 6 * 40


def test_a_walk_goes_over_what_is_new_only(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each turn walked over the hundred ancestors that the turn before it had walked over: two
    thirds of what a turn on a thread of 100 messages did."""
    saver = place.open()
    at = put(saver, {"ch": _DeltaSnapshot(["seed"])}, version=1)
    for number in range(40):
        saver.put_writes(at, [("ch", number)], f"{number}")
        at = put(saver, {}, at, number + 2)
    assert len(_written(saver)) == 40
    over: list[str] = []
    collect = channel_history._AncestorWalk._collect

    def counting(self: Any, found: Any, wanted: Any) -> None:
        over.append(found.id)
        collect(self, found, wanted)

    monkeypatch.setattr(channel_history._AncestorWalk, "_collect", counting)
    assert _written(saver) == [*range(40)] and over == []
    for number in range(40, 43):
        saver.put_writes(at, [("ch", number)], f"{number}")
        at = put(saver, {}, at, number + 2)
    assert _written(saver) == [*range(43)] and len(over) == 3
    assert _written(saver, "other") == [] and len(over) == 3 + 43  # another walk, to its root


def _written(saver: PerdureSaver, channel: str = "ch", at: RunnableConfig | None = None) -> Any:
    found = saver.get_delta_channel_history(config=at or config(), channels=[channel])[channel]
    return [value for *_, value in found["writes"]]


@pytest.mark.parametrize("by", ["itself", "another"])
def test_what_was_walked_over_may_change(place: Place, by: str) -> None:
    """Writes come late, for an ancestor; a checkpoint is put again, with another parent, or with a
    value; somebody looks at the past, and goes on from there: what is known of the way is no more
    than what the log says."""
    saver = place.open()
    other = saver if by == "itself" else place.open()
    first = put(saver, {}, version=1)
    second = put(saver, {}, first, 2)
    saver.put_writes(first, [("ch", ["a"])], "task")
    third = put(saver, {}, second, 3)
    assert _written(saver) == [["a"]]
    other.put_writes(first, [("ch", ["late"])], "task 2", "~1")
    other.put_writes(third, [("ch", ["own"])], "task")
    assert _written(saver) == [["a"], ["late"]]
    found = _written(saver)
    found[0].append("changed")  # it is the caller's
    assert _written(saver) == [["a"], ["late"]]
    put(other, {}, third, 4)
    assert _written(saver) == [["a"], ["late"], ["own"]]
    assert _written(saver, at=third) == [["a"], ["late"]]
    beside = put(other, {}, second, 5)
    other.put_writes(second, [("ch", ["two"])], "task")
    assert _written(saver, at=beside) == [["a"], ["late"], ["two"]]
    assert _written(saver, at=third) == [["a"], ["late"], ["two"]]
    put(other, {}, None, 6, id_of(second))  # it follows nothing now
    assert _written(saver, at=third) == [["two"]]
    put(other, {"ch": "seed"}, first, 7, id_of(second))
    asked: Any = {"config": third, "channels": ["ch"]}
    assert saver.get_delta_channel_history(**asked)["ch"]["seed"] == "seed"
    before = _written(saver)
    saver.prune(["t"])
    assert _written(saver) == before


def _extend(old: list[Any] | None, batches: list[list[Any]]) -> list[Any]:
    return [*(old or []), *(item for batch in batches for item in batch)]


class State(TypedDict):
    log: Annotated[list[int], DeltaChannel(_extend)]


class Plain(TypedDict):
    log: Annotated[list[int], operator.add]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_writes_that_a_checkpoint_waits_for_do_not_wait_for_it(
    place: Place, monkeypatch: pytest.MonkeyPatch, durability: str
) -> None:
    """LangGraph hands a checkpoint over when the writes to its delta channels are in; these waited
    for that checkpoint, to be in its commit: 301 of 1,020 calls waited in vain, for 20 ms and more.
    """
    waits: list[str] = []
    rounds = Queue.rounds

    def watched(self: Queue, request: Any, *args: Any) -> Iterator[float]:
        for seconds in rounds(self, request, *args):
            waits.append(request.id)
            yield seconds

    monkeypatch.setattr(Queue, "rounds", watched)
    graph = StateGraph(State)
    names = [f"n{number}" for number in range(10)]
    for name in names:
        graph.add_node(name, lambda state: {"log": [len(state["log"])]})
    for before, after in zip([START, *names], names, strict=False):
        graph.add_edge(before, after)
    app = graph.compile(checkpointer=place.open())
    thread: RunnableConfig = {"configurable": {"thread_id": "t"}}
    more: Any = {"durability": durability}
    for turn in range(4):
        found = app.invoke({"log": [-1]}, thread, **more)
        assert len(found["log"]) == 11 * (turn + 1)
    found = asyncio.run(app.ainvoke({"log": [-1]}, thread, **more))
    assert len(found["log"]) == 55
    assert waits == []


@pytest.mark.parametrize("kind", ["plain", "delta"])
def test_a_turn_reads_little_and_commits_once_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A chat turn read its last commit by itself, its parent by itself, and looked up each of them
    by its key, in front of one read that had them all. Counted, as times tell nothing on a machine
    that others use: reads of a log, look-ups of a key, and commits."""
    monkeypatch.setattr(queued_writes, "PATIENCE_S", 5.0)
    asked: list[str] = []
    for name in ("read", "key", "keys", "snapshot", "append"):
        called = getattr(SqliteBackend, name)

        def counting(
            self: Any, *args: Any, _called: Any = called, _name: str = name, **more: Any
        ) -> Any:
            asked.append(_name)
            return _called(self, *args, **more)

        monkeypatch.setattr(SqliteBackend, name, counting)
    graph = StateGraph(State if kind == "delta" else Plain)
    graph.add_node("answer", lambda state: {"log": [len(state["log"])]})
    graph.add_edge(START, "answer")
    thread: RunnableConfig = {"configurable": {"thread_id": "t"}}
    with PerdureSaver.from_url(tmp_path / "ours.db") as saver:
        app = graph.compile(checkpointer=saver)
        for _ in range(30):
            app.invoke({"log": [-1]}, thread, durability="sync")
        turns = 5
        asked.clear()
        for _ in range(turns):
            app.invoke({"log": [-1]}, thread, durability="sync")
        reads = asked.count("read") + asked.count("key") + asked.count("snapshot")
        assert reads <= turns * (2 if kind == "delta" else 1)
        assert asked.count("append") == turns * (5 if kind == "delta" else 3)
    with PerdureSaver.from_url(tmp_path / "ours.db") as saver:
        asked.clear()
        found = graph.compile(checkpointer=saver).get_state(thread)
        assert len(found.values["log"]) == 70
        # A third of the checkpoints have no writes. That is looked up of all at once.
        assert asked.count("key") <= 1
        assert asked.count("keys") <= 1
        assert asked.count("read") + asked.count("snapshot") <= 7
