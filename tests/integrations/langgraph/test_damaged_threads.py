"""A thread with a commit that cannot be read: the way back that its error names leads out of it."""

from __future__ import annotations

import operator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph

import perdure
from perdure import Corrupt, UnsupportedFormat
from perdure.integrations.langgraph import PerdureSaver, PerdureStore
from tests import damaging, newer
from tests.cli.operator import Operator
from tests.damaging import Vandal, break_first

DAMAGED = ["a byte of the payload", "no header"]
NEWER = ["a feature of the envelope", "a version of the header"]
KINDS = DAMAGED + NEWER


class State(TypedDict):
    words: Annotated[list[str], operator.add]


def say(state: State) -> State:
    return {"words": [f"word {len(state['words'])}"]}


def graph_of(saver: PerdureSaver) -> Any:
    graph = StateGraph(State)
    graph.add_node("say", say)
    graph.add_edge(START, "say")
    graph.add_edge("say", END)
    return graph.compile(checkpointer=saver)


def config(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


def met(path: Path, kind: str, agent: str = "t", behind: int = 0) -> int:
    """Two threads and an item; one of the logs is damaged. Its last good commit."""
    with perdure.open(path, durability="os") as store:
        graph = graph_of(PerdureSaver(store))
        for thread in ("t", "u"):
            graph.invoke({"words": ["begin"]}, config(thread))
        PerdureStore(store).put(("space",), "key", {"n": 1})
        info = store.find(agent)
        assert info is not None
        vandal = Vandal(store, agent)
        vandal.write(*(damaging.KINDS | newer.KINDS)[kind](vandal))
        vandal.go_on(behind)
        return info.seq


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("behind", [0, 1])
def test_a_thread_goes_on_behind_a_rollback(tmp_path: Path, kind: str, behind: int) -> None:
    """The commands of the error worked, and changed nothing: the saver read the whole log of the
    thread, met the damaged commit there for ever, and could not even delete the thread."""
    path = tmp_path / "store.db"
    newest = kind == "a version of the header"  # nothing can be put behind that alone
    last = met(path, kind, behind=max(behind, int(newest)))
    with perdure.open(path, durability="os") as store:
        graph = graph_of(PerdureSaver(store))
        for look in (
            graph.get_state,
            lambda at: list(graph.get_state_history(at)),
            lambda at: graph.invoke({"words": ["more"]}, at),
        ):
            with pytest.raises((Corrupt, UnsupportedFormat)) as caught:
                look(config("t"))
            error: Any = caught.value
            assert isinstance(error, UnsupportedFormat) == (kind in NEWER)
            assert (error.seq, error.before) == (last + 1, last)
        assert graph.get_state(config("u")).values["words"] == ["begin", "word 1"]
    assert Operator(path).see("rollback", "t", str(last))
    with perdure.open(path, durability="os") as store:
        saver = PerdureSaver(store)
        graph = graph_of(saver)
        assert graph.get_state(config("t")).values["words"] == ["begin", "word 1"]
        assert len(list(graph.get_state_history(config("t")))) == 3
        assert len(list(saver.list(None))) == 6
        assert graph.invoke({"words": ["more"]}, config("t"))["words"][-1] == "word 3"
        graph.update_state(config("t"), {"words": ["from outside"]})
        saver.copy_thread("t", "copy")
        assert len(graph.get_state(config("copy")).values["words"]) == 5
        saver.delete_thread("copy")
    with perdure.open(path, durability="os") as store:
        saver = PerdureSaver(store)
        assert graph_of(saver).get_state(config("t")).values["words"][-1] == "from outside"
        if kind in DAMAGED:
            assert saver.trim(timedelta(0), ["u", "t"])
            assert graph_of(saver).get_state(config("t")).values["words"][-1] == "from outside"
        saver.delete_thread("t")
        assert graph_of(saver).get_state(config("t")).values == {}


@pytest.mark.parametrize("kind", KINDS)
def test_a_thread_that_cannot_be_read_is_deleted(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "store.db"
    met(path, kind, behind=int(kind == "a version of the header"))
    with perdure.open(path, durability="os") as store:
        saver = PerdureSaver(store)
        saver.delete_thread("t")
        graph = graph_of(saver)
        assert graph.invoke({"words": ["anew"]}, config("t"))["words"] == ["anew", "word 1"]
        assert len(list(saver.list(None))) == 6


@pytest.mark.parametrize("kind", KINDS)
def test_trimming_the_others_goes_on(tmp_path: Path, kind: str) -> None:
    """One thread that could not be read kept all behind it from being trimmed."""
    path = tmp_path / "store.db"
    met(path, kind, behind=int(kind == "a version of the header"))
    with perdure.open(path, durability="os") as store:
        saver = PerdureSaver(store)
        with pytest.raises((Corrupt, UnsupportedFormat)):
            saver.trim(timedelta(0))
        (done,) = saver.trim(timedelta(0), ["u"])
        assert not done.removed, "it was done"


@pytest.mark.parametrize("kind", KINDS)
def test_a_space_of_the_store_goes_on_behind_a_rollback(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "store.db"
    last = met(path, kind, "store:space", behind=int(kind == "a version of the header"))
    with perdure.open(path, durability="os") as store:
        kept = PerdureStore(store)
        with pytest.raises((Corrupt, UnsupportedFormat)):
            kept.get(("space",), "key")
        kept.put(("other",), "key", {"n": 2})
    assert Operator(path).see("rollback", "store:space", str(last))
    with perdure.open(path, durability="os") as store:
        kept = PerdureStore(store)
        item = kept.get(("space",), "key")
        assert item is not None and item.value == {"n": 1}
        kept.put(("space",), "key", {"n": 3})
        assert {one.value["n"] for one in kept.search(())} == {2, 3}


def note(store: perdure.Store, name: str) -> None:
    with store.agent(name).edit("write down") as draft:
        draft["text"] = "of somebody else"


@pytest.mark.parametrize("column", ["payload", "header"])
def test_an_agent_that_is_no_thread_stops_no_thread(tmp_path: Path, column: str) -> None:
    """Which agents are threads was read from the whole of their first commits: one that could not
    be read, of an agent that had nothing to do with LangGraph, and nothing was listed, trimmed or
    removed of any thread."""
    with perdure.open(tmp_path / "store.db", durability="os") as store:
        saver = PerdureSaver(store)
        graph = graph_of(saver)
        for thread in ("t", "u"):
            graph.invoke({"words": ["begin"]}, {**config(thread), "metadata": {"run_id": "run"}})
        note(store, "note")
        break_first(store, "note", column)
        # Without a header nobody knows that it is no thread: the error comes when all is done.
        said = pytest.raises(Corrupt) if column == "header" else nullcontext()
        with said:
            assert len(list(saver.list(None))) == 6
        with said:
            saver.trim(timedelta(0))
        assert not saver.trim(timedelta(0), ["t"])[0].removed, "it was done"
        with said:
            saver.delete_for_runs(["run"])
        assert [*saver.list(config("t"))] == [*saver.list(config("u"))] == []


@pytest.mark.parametrize("column", ["payload", "header"])
def test_one_space_does_not_end_the_expiry_of_the_others(tmp_path: Path, column: str) -> None:
    """A sweep looked at all spaces before it removed anything: one that could not be read, or an
    agent of somebody else whose name begins like theirs, and nothing expired any more."""
    path, now = tmp_path / "store.db", [datetime.now(UTC)]
    with perdure.open(path, durability="os") as store:
        kept = PerdureStore(store, ttl={"default_ttl": 1}, clock=lambda: now[0])
        for space in ("a", "b", "c"):
            kept.put((space,), "key", {"n": 1})
        note(store, "store:a-note")
        assert len(kept.search(())) == len(kept.list_namespaces()) == 3
        break_first(store, "store:b", column)
        now[0] += timedelta(days=1)
    with perdure.open(path, durability="os") as store:
        kept = PerdureStore(store, ttl={"default_ttl": 1}, clock=lambda: now[0])
        with pytest.raises(Corrupt):
            kept.sweep_ttl()
        for space in ("a", "c"):
            schema = perdure.Schema(dict[str, Any], id="langgraph-store")
            assert store.agent(f"store:{space}", schema).state == {}
