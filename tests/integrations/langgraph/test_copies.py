"""A copy holds what its source held at that moment, whichever way one looks at it."""

from __future__ import annotations

import asyncio
import operator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

import perdure
from perdure import replication
from perdure.errors import NotFound
from perdure.integrations.langgraph import PerdureSaver
from perdure.integrations.langgraph.threads import thread_copies
from perdure.retention import purging
from perdure.transfer import shipping
from tests.integrations.langgraph.checkpoints import config, get, id_of, line, put
from tests.integrations.langgraph.conftest import Place
from tests.integrations.langgraph.copying import Copies
from tests.integrations.langgraph.test_together import put_with_writes

COPY: RunnableConfig = {"configurable": {"thread_id": "copy"}}
THREAD: RunnableConfig = {"configurable": {"thread_id": "t"}}


def _extend(old: list[str] | None, batches: list[list[str]]) -> list[str]:
    return [*(old or []), *(item for batch in batches for item in batch)]


class Plain(TypedDict, total=False):
    log: Annotated[list[str], operator.add]


class Delta(TypedDict, total=False):
    log: Annotated[list[str], DeltaChannel(_extend)]


@pytest.mark.parametrize("before", [0, 4])
@pytest.mark.parametrize("schema", [Plain, Delta])
def test_the_history_of_a_copy_shows_nothing_of_what_its_source_did_next(
    place: Place, schema: Any, before: int
) -> None:
    """A thread was copied in front of two tasks and went on: one was done, one failed. `get_state`
    of the copy said that both were to come; its `list` with a limit, and that of a longer thread
    without one, showed what one had written for the source's user, and how the other had failed."""
    fails = [False]

    def second(state: Any) -> dict[str, Any]:
        if fails[0]:
            raise ValueError("of the source")
        return {"log": ["second"]}

    saver = place.open()
    graph = StateGraph(schema)
    graph.add_node("first", lambda state: {"log": ["first"]})
    graph.add_node("second", second)
    graph.add_edge(START, "first")
    graph.add_edge(START, "second")
    app = graph.compile(checkpointer=saver)
    for _ in range(before):
        app.invoke({"log": ["in"]}, THREAD)
    stops = graph.compile(checkpointer=saver, interrupt_before=["first", "second"])
    stops.invoke({"log": ["in"]}, THREAD)
    saver.copy_thread("t", "copy")
    whole = list(saver.list(COPY))
    fails[0] = True
    with pytest.raises(ValueError, match="of the source"):
        app.invoke(None, THREAD)
    for reader in (saver, place.open()):
        assert get(reader, config("copy")).pending_writes == []
        for limit in (1, 2, None):
            assert list(reader.list(COPY, limit=limit)) == whole[:limit]
            assert asyncio.run(_listed(reader, limit)) == whole[:limit]
        app = graph.compile(checkpointer=reader)
        told = next(iter(app.get_state_history(COPY)))
        assert [(one.name, one.result, one.error) for one in told.tasks] == [
            ("first", None, None),
            ("second", None, None),
        ]


async def _listed(saver: PerdureSaver, limit: int | None) -> list[Any]:
    return [one async for one in saver.alist(COPY, limit=limit)]


def test_what_a_checkpoint_of_the_source_took_along_is_not_the_copys(place: Place) -> None:
    """The copy's first own step followed the last checkpoint that it had been given. What that had
    been written for by the source, in one commit with the source's next checkpoint, was a part of
    the value of the copy's channel."""
    saver = place.open()
    last = line(saver, 3)[-1]
    saver.copy_thread("t", "copy")
    put_with_writes(saver, {"n": "source"}, last, 4)
    at = put(saver, {"n": "copy"}, config("copy", id_of(last)), 5)
    for reader in (saver, place.open()):
        told = reader.get_delta_channel_history(config=at, channels=["out"])
        assert told == {"out": {"writes": []}}
        assert get(reader, config("copy", id_of(last))).pending_writes == []


def test_a_copy_of_a_thread_that_was_moved_back_stays_when_its_source_branches(
    place: Place,
) -> None:
    """A thread was moved back, and copied. When a subgraph began in the source, the copy could not
    be read any more: there was no commit 0."""
    saver = place.open()
    first, _ = line(saver, 2)
    info = saver.store.find("t")
    assert info is not None
    saver.store.agent_of(info).rollback(1)
    saver.copy_thread("t", "copy")
    whole = list(saver.list(COPY))
    put(saver, {"n": "inner"}, config(ns="sub:1"))
    put(saver, {"n": "other"}, put(saver, {"n": "later"}, first, 7), 8)
    put(saver, {"n": "sibling"}, first, 9, source="fork")
    for reader in (saver, place.open()):
        assert list(reader.list(COPY)) == whole
        assert reader.get_tuple(COPY) == whole[0]
        assert reader.get_tuple(config("copy", ns="sub:1")) is None


def test_what_is_removed_while_a_thread_is_copied_stays_in_the_copy(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody went on with a thread, and pruned it, between the look at its end and the word that
    it is copied. The copy had nothing: all was removed but a checkpoint that came too late for
    it."""
    saver, other = place.open(), place.open()
    last = line(saver, 3)[-1]
    whole = [id_of(one.config) for one in saver.list(config())]
    say = thread_copies._say

    def late(*args: Any) -> None:
        put(other, {"n": "more"}, last, 4)
        other.prune(["t"])
        say(*args)

    monkeypatch.setattr(thread_copies, "_say", late)
    saver.copy_thread("t", "copy")
    for reader in (saver, place.open()):
        assert [id_of(one.config) for one in reader.list(COPY)] == whole
        assert get(reader, COPY).checkpoint["id"] == whole[0]


@pytest.mark.parametrize("seed", [1, 4, 13])
def test_each_thread_is_what_it_was_whatever_is_done_to_others(place: Place, seed: int) -> None:
    """Beside LangGraph's own saver, where a copy is a copy of all rows."""
    walk = Copies(place, seed)
    try:
        for _ in range(40):
            walk.act()
        walk.compare_all()
    finally:
        walk.close()


@pytest.mark.parametrize("others", [0, 1, 9])
def test_a_copy_that_was_brought_elsewhere_reads_no_stranger(place: Place, others: int) -> None:
    """Its log was imported into a store in which another thread had the name of its original: it
    showed that one's messages, and went on from them. Without one it says what is lacking."""
    saver = place.open()
    line(saver, 3)
    saver.copy_thread("t", "copy")
    put(saver, {"n": 9}, get(saver, COPY).config, 9)
    copy, source = (saver.store.find(name) for name in ("copy", "t"))
    assert copy is not None and source is not None
    logs = [list(saver.store.export_log(one)) for one in (copy, source)]
    with perdure.open("memory://") as store:
        elsewhere = PerdureSaver(store)
        if others:
            line(elsewhere, others)
        store.import_log(logs[0])
        for call in (lambda: elsewhere.get_tuple(COPY), lambda: list(elsewhere.list(COPY))):
            with pytest.raises(
                NotFound, match="the thread that it was copied from is not in this store"
            ):
                call()
    with perdure.open("memory://") as store:
        elsewhere = PerdureSaver(store)
        for log in reversed(logs):
            store.import_log(log)
        assert [id_of(one.config) for one in elsewhere.list(COPY)] == [
            id_of(one.config) for one in saver.list(COPY)
        ]


@pytest.mark.parametrize("how", ["replicate", "migrate", "restore"])
def test_another_store_keeps_the_log_that_a_copy_on_its_way_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A thread was copied, and then deleted, as a rename does. Where the deletion came to another
    store some shipments before the copy, nobody there seemed to read the log: it was purged, and
    the copy had lost its history."""
    monkeypatch.setattr(shipping, "SHIPMENT_BYTES", 1)
    monkeypatch.setattr(purging, "ANNOUNCED_US", 0)  # that was more than an hour ago
    source, target = tmp_path / "source.db", tmp_path / "target.db"
    with PerdureSaver.from_url(source) as saver:
        at = put(saver, {"n": 0}, THREAD)
        put(saver, {"n": 1}, at, 2)
        saver.copy_thread("t", "copy")
        saver.delete_thread("t")
        assert [info.name for info in saver.store.purge().kept] == ["t"]
    if how == "replicate":
        with replication.following(source, target) as follower:
            follower.drain()
        replication.promote(target)
    elif how == "migrate":
        replication.migrate(source, target)
    else:
        replication.restore(source, target, datetime.now(UTC))
    with PerdureSaver.from_url(target) as saver:
        assert [one.checkpoint["channel_values"] for one in saver.list(COPY)] == [
            {"n": 1},
            {"n": 0},
        ]
        saver.delete_thread("copy")
        saver.store.purge()
        assert saver.store._context.backend.to_purge() == []
