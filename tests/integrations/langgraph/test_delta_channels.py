"""The history of channels that are stored as deltas, as LangGraph's documentation has it.

A channel's `seed` is its value at the nearest ancestor that has one; `writes` are those stored on
the way from there, oldest first. What is stored at the checkpoint itself is for the next step.
"""

from typing import Annotated, Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from perdure.integrations.langgraph import PerdureSaver
from tests.integrations.langgraph.checkpoints import config, get, id_of, put
from tests.integrations.langgraph.conftest import Place


def history(
    saver: PerdureSaver, at: RunnableConfig | None, *channels: str
) -> dict[str, tuple[Any, ...]]:
    """Per channel its seed (if it has one) and the values written, in order; equal to what the
    base class finds by its own walk."""
    found = saver.get_delta_channel_history(config=at or config(), channels=channels)
    walked = BaseCheckpointSaver.get_delta_channel_history(
        saver, config=at or config(), channels=channels
    )
    assert found == walked
    return {
        channel: (*([one["seed"]] if "seed" in one else []), [value for *_, value in one["writes"]])
        for channel, one in found.items()
    }


def chain(saver: PerdureSaver, count: int, *, values: dict[int, Any]) -> list[RunnableConfig]:
    """Checkpoints of which some have a value of `ch`; each has a write for its child."""
    made: list[RunnableConfig] = []
    at: RunnableConfig | None = None
    for number in range(count):
        at = put(saver, values.get(number, {}), at, number + 1)
        saver.put_writes(at, [("ch", f"w{number}"), ("other", number)], f"task-{number}")
        made.append(at)
    return made


def test_writes_are_in_order_from_the_root_where_nothing_has_a_value(saver: PerdureSaver) -> None:
    made = chain(saver, 4, values={})
    assert history(saver, None, "ch") == {"ch": (["w0", "w1", "w2"],)}
    assert history(saver, made[1], "ch") == {"ch": (["w0"],)}
    assert history(saver, made[0], "ch") == {"ch": ([],)}


def test_the_walk_ends_at_the_nearest_value(saver: PerdureSaver) -> None:
    chain(saver, 6, values={1: {"ch": "old"}, 3: {"ch": _DeltaSnapshot(["seed"])}})
    assert history(saver, None, "ch") == {"ch": (_DeltaSnapshot(["seed"]), ["w3", "w4"])}


def test_each_channel_ends_for_itself(saver: PerdureSaver) -> None:
    chain(saver, 6, values={1: {"other": 100}, 3: {"ch": "plain"}})
    assert history(saver, None, "ch", "other", "nobody") == {
        "ch": ("plain", ["w3", "w4"]),
        "other": (100, [1, 2, 3, 4]),
        "nobody": ([],),
    }
    assert saver.get_delta_channel_history(config=config(), channels=[]) == {}


def test_the_checkpoints_own_value_and_writes_are_not_its_history(saver: PerdureSaver) -> None:
    made = chain(saver, 3, values={0: {"ch": "a"}, 2: {"ch": "own"}})
    assert history(saver, made[2], "ch") == {"ch": ("a", ["w0", "w1"])}


def test_only_ancestors_count_in_a_fork(saver: PerdureSaver) -> None:
    made = chain(saver, 4, values={0: {"ch": "a"}})
    side = put(saver, {}, made[1], 9)
    saver.put_writes(side, [("ch", "side")], "task")
    end = put(saver, {}, side, 10)
    assert history(saver, end, "ch") == {"ch": ("a", ["w0", "w1", "side"])}


def test_parallel_writes_are_in_the_order_of_their_paths(saver: PerdureSaver) -> None:
    at = put(saver, {})
    for task, path, value in (("z", "~1", "first"), ("a", "~2", "second"), ("m", "", "input")):
        saver.put_writes(at, [("ch", value)], task, path)
    put(saver, {}, at, 2)
    assert history(saver, None, "ch") == {"ch": (["input", "first", "second"],)}


def test_none_is_a_value(saver: PerdureSaver) -> None:
    chain(saver, 3, values={1: {"ch": None}})
    assert history(saver, None, "ch") == {"ch": (None, ["w1"])}


def test_pruning_and_copying_sever_nothing(place: Place) -> None:
    saver = place.open()
    made = chain(saver, 5, values={1: {"ch": "seed"}})
    before = history(saver, None, "ch")
    saver.copy_thread("t", "copy")
    saver.prune(["t"])
    other = place.open()
    told = other.get_delta_channel_history(config=config(), channels=["ch"])["ch"]
    assert (told["seed"], [value for *_, value in told["writes"]]) == before["ch"]
    assert history(other, config("copy"), "ch") == before
    assert get(other).config == made[-1]
    end = put(other, {}, config("copy", id_of(made[-1])), 9)
    assert history(other, end, "ch")["ch"] == ("seed", ["w1", "w2", "w3", "w4"])


def test_a_graph_with_a_delta_channel(place: Place) -> None:
    channels = pytest.importorskip("langgraph.channels.delta")

    def extend(old: list[str] | None, writes: list[Any]) -> list[str]:
        return [*(old or []), *(item for write in writes for item in write)]

    class State(TypedDict):
        log: Annotated[list[str], channels.DeltaChannel(extend)]

    def graph_on(saver: PerdureSaver) -> Any:
        graph = StateGraph(State)
        graph.add_node("a", lambda state: {"log": [f"a{len(state['log'])}"]})
        graph.add_edge(START, "a")
        return graph.compile(checkpointer=saver)

    thread: RunnableConfig = {"configurable": {"thread_id": "t"}}
    expected: list[str] = []
    for number in range(5):
        expected += [f"in {number}", f"a{len(expected) + 1}"]
        found = graph_on(place.open()).invoke({"log": [f"in {number}"]}, thread)
        assert found["log"] == expected
    assert graph_on(place.open()).get_state(thread).values["log"] == expected
    place.open().prune(["t"])
    assert graph_on(place.open()).get_state(thread).values["log"] == expected
