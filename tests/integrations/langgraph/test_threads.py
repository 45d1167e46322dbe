"""Threads as a whole: listing, pruning, removing, copying, and what Perdure shows of them."""

from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6

from perdure.agents import Agent
from perdure.errors import Conflict, NotFound
from perdure.integrations.langgraph import PerdureSaver
from tests.integrations.langgraph.checkpoints import (
    config,
    get,
    id_of,
    line,
    put,
    values_of,
)
from tests.integrations.langgraph.conftest import Place


def agent_of(saver: PerdureSaver, thread: str = "t") -> Agent[dict[str, Any]]:
    info = saver.store.find(thread)
    assert info is not None
    return saver.store.agent_of(info)


def ids(saver: PerdureSaver, **more: Any) -> list[str]:
    at = more.pop("at", config())
    return [one.checkpoint["id"] for one in saver.list(at, **more)]


def test_a_thread_is_a_readable_agent(saver: PerdureSaver) -> None:
    at = put(saver, {"messages": [HumanMessage("Hi", id="1")]})
    put(saver, {"messages": [HumanMessage("Hi", id="1"), HumanMessage("So?", id="2")]}, at, 2)
    agent = agent_of(saver)
    assert [one.cause.what for one in agent.log()] == ["loop, step 1", "loop, step 2"]
    change = agent.diff(1, 2)[0]
    assert (change.path, change.after["content"]) == ("state.values.messages[1]", "So?")
    agent.verify()
    assert saver.store.sizes("t").commits == 2


def test_perdure_can_fork_and_roll_back_a_thread(saver: PerdureSaver) -> None:
    made = line(saver, 4)
    agent = agent_of(saver)
    agent.fork("what-if", at=2)
    assert get(saver).config == made[-1]
    agent.rollback(2)
    assert get(saver).config == made[1]
    after = put(saver, {"n": "other"}, made[1], 9)
    assert values_of(saver) == {"n": "other"}
    assert get(saver).config == after
    agent_of(saver).verify()


def test_an_appended_item_costs_what_it_is(saver: PerdureSaver) -> None:
    messages = [HumanMessage("x" * 500, id=str(number)) for number in range(500)]
    at = put(saver, {"messages": messages})
    for number in range(20):
        messages = [*messages, HumanMessage("y" * 500, id=f"new-{number}")]
        at = put(saver, {"messages": messages}, at, number + 2)
    assert all(commit.size < 2000 for commit in list(agent_of(saver).log())[1:])
    assert values_of(saver)["messages"] == messages


def test_a_reader_elsewhere_costs_the_writer_nothing(place: Place) -> None:
    """Another saver has none of the objects: it compares values, and stores the difference."""
    messages = [HumanMessage(str(number), id=str(number)) for number in range(300)]
    at = put(place.open(), {"messages": messages})
    fresh = [HumanMessage(str(number), id=str(number)) for number in range(301)]
    other = place.open()
    put(other, {"messages": fresh}, at, 2)
    assert list(agent_of(other).log())[-1].size < 2000
    assert values_of(other)["messages"] == fresh


def test_two_savers_see_each_others_checkpoints(place: Place) -> None:
    one, two = place.open(), place.open()
    at = None
    for number in range(10):
        at = put((one, two)[number % 2], {"n": number, "log": list(range(number))}, at, number + 1)
    for saver in (one, two):
        assert values_of(saver) == {"n": 9, "log": list(range(9))}
        assert len(ids(saver)) == 10
    agent_of(one).verify()
    assert [branch.name for branch in agent_of(one).branches()] == ["main"]


def test_every_state_of_a_long_thread_is_listed_as_it_was(saver: PerdureSaver) -> None:
    made = line(saver, 150)
    side = put(saver, {"n": "side", "log": [-1]}, made[50], 51)
    found = {one.checkpoint["id"]: one.checkpoint["channel_values"] for one in saver.list(config())}
    assert len(found) == 151
    assert found[id_of(side)] == {"n": "side", "log": [-1]}
    for number, at in enumerate(made):
        assert found[id_of(at)] == {"n": number, "log": list(range(number))}


def test_items_that_change_are_listed_as_they_were(saver: PerdureSaver) -> None:
    at = None
    for number in range(5):
        message = HumanMessage(f"version {number}" + "." * 100, id="1")
        at = put(saver, {"messages": [message, HumanMessage("same", id="2")]}, at, number + 1)
    contents = [
        [one.content.strip(".") for one in found.checkpoint["channel_values"]["messages"]]
        for found in saver.list(config())
    ]
    assert contents == [[f"version {number}", "same"] for number in (4, 3, 2, 1, 0)]


def test_listing_is_by_descending_id_whatever_came_first(saver: PerdureSaver) -> None:
    order = [5, 1, 9, 3, *range(20, 80), 2, 15]
    for number in order:
        put(saver, {"n": number}, id=f"{number:04}")
    assert ids(saver) == [f"{number:04}" for number in sorted(order, reverse=True)]
    assert get(saver).checkpoint["id"] == "0079"
    assert ids(saver, before=config("t", "0009")) == ["0005", "0003", "0002", "0001"]
    assert ids(saver, before=config("t", "0020"), limit=2) == ["0015", "0009"]
    assert ids(saver, limit=0) == []


def test_listing_all_threads_is_by_descending_id(saver: PerdureSaver) -> None:
    saver.store.agent("no thread").save({"a": 1}, "an agent of somebody else")
    for number in range(6):
        put(saver, {"n": number}, config(f"t{number % 2}"), id=f"{number}")
    found = [
        (one.config["configurable"]["thread_id"], one.checkpoint["id"]) for one in saver.list(None)
    ]
    assert found == [(f"t{number % 2}", str(number)) for number in (5, 4, 3, 2, 1, 0)]


def test_a_checkpoint_that_is_put_again(saver: PerdureSaver) -> None:
    at = put(saver, {"n": 1}, id="1")
    tup = get(saver)
    saver.put(config(), tup.checkpoint, tup.metadata, {})
    assert saver.store.sizes("t").commits == 1
    put(saver, {"n": 2}, id="1")
    assert values_of(saver, at) == {"n": 2}
    put(saver, {"n": 3}, id="1")
    assert values_of(saver, at) == {"n": 3} == values_of(saver)
    assert ids(saver) == ["1"]


def test_an_unknown_parent_is_kept_as_it_was_said(saver: PerdureSaver) -> None:
    at = put(saver, {"n": 1}, config("t", "nobody"))
    assert get(saver, at).parent_config == config("t", "nobody")
    assert saver.get_tuple(config("t", "nobody")) is None


def test_the_first_of_a_tasks_writes_counts_and_of_special_ones_the_last(
    saver: PerdureSaver,
) -> None:
    at = put(saver, {"n": 1})
    saver.put_writes(at, [("a", 1), ("b", 2)], "task-2", "~2")
    saver.put_writes(at, [("a", 9), ("b", 9), ("c", 3)], "task-2", "~2")
    saver.put_writes(at, [("__error__", "first")], "task-1", "~1")
    saver.put_writes(at, [("__error__", "second")], "task-1", "~1")
    assert get(saver).pending_writes == [
        ("task-1", "__error__", "second"),
        ("task-2", "a", 1),
        ("task-2", "b", 2),
        ("task-2", "c", 3),
    ]


def test_pruning_keeps_the_latest_of_each_namespace(place: Place) -> None:
    saver = place.open()
    root = line(saver, 5)
    child = line(saver, 3, config("t", ns="node:1"))
    saver.prune(["t"], strategy="keep_latest")
    for one in (saver, place.open()):
        assert ids(one) == [id_of(root[-1])]
        assert ids(one, at=config("t", ns="node:1")) == [id_of(child[-1])]
        assert one.get_tuple(root[2]) is None
        assert values_of(one)["n"] == 4
    more = put(saver, {"n": "more"}, root[-1], 9)
    assert ids(saver) == [id_of(more), id_of(root[-1])]
    saver.prune(["t"])
    assert ids(place.open()) == [id_of(more)]
    agent_of(saver).verify()
    with pytest.raises(ValueError, match="keep_latest"):
        saver.prune(["t"], strategy="everything")


def test_checkpoints_of_a_run_are_removed_and_the_rest_stands(place: Place) -> None:
    saver = place.open()
    first = put(saver, {"n": 1}, run_id="r-1")
    second = put(saver, {"n": 2}, first, 2, run_id="r-2")
    third = put(saver, {"n": 3}, second, 3, run_id="r-1")
    saver.delete_for_runs(["r-1", "nobody"])
    for one in (saver, place.open()):
        assert ids(one) == [id_of(second)]
        assert get(one).config == second
        assert one.get_tuple(third) is None
    saver.delete_for_runs(["r-2"])
    assert place.open().get_tuple(config()) is None


def test_a_copy_is_a_few_bytes_and_has_everything(place: Place) -> None:
    saver = place.open()
    made = line(saver, 30)
    saver.put_writes(made[-1], [("out", 1)], "task")
    line(saver, 2, config("t", ns="node:1"))
    saver.copy_thread("t", "copy")
    assert saver.store.sizes("copy").commits == 1
    assert saver.store.sizes("copy").payload_bytes < 500
    for one in (saver, place.open()):
        assert ids(one, at=config("copy", ns="")) == ids(one, at=config("t", ns=""))
        assert len(ids(one, at=config("copy", ns="node:1"))) == 2
        assert values_of(one, config("copy")) == values_of(one)
        assert get(one, config("copy")).pending_writes == [("task", "out", 1)]
        assert get(one, config("copy", id_of(made[3]))).metadata == get(one, made[3]).metadata


def test_a_copy_and_its_origin_go_on_apart(place: Place) -> None:
    saver = place.open()
    made = line(saver, 3)
    saver.copy_thread("t", "copy")
    saver.copy_thread("copy", "again")
    put(saver, {"n": "origin"}, made[-1], 4)
    saver.put_writes(made[-1], [("out", "origin")], "task")
    mine = put(saver, {"n": "copy"}, config("copy", id_of(made[-1])), 4)
    saver.put_writes(mine, [("out", "copy")], "task")
    older = put(saver, {"n": "older"}, config("copy", id_of(made[0])), 5, source="update")
    saver.delete_thread("t")
    other = place.open()
    assert [one["n"] for one in (values_of(other, mine), values_of(other, older))] == [
        "copy",
        "older",
    ]
    assert get(other, mine).pending_writes == [("task", "out", "copy")]
    assert len(ids(other, at=config("copy"))) == 5
    assert values_of(other, config("again"))["n"] == 2
    assert get(other, config("again")).pending_writes == []
    saver.prune(["copy"])
    assert ids(other, at=config("copy")) == [id_of(older)]
    assert len(ids(other, at=config("again"))) == 3


def test_copies_need_a_source_and_a_free_target(saver: PerdureSaver) -> None:
    line(saver, 1)
    line(saver, 1, config("u"))
    with pytest.raises(NotFound, match="no such thread"):
        saver.copy_thread("nobody", "v")
    with pytest.raises(Conflict, match="already"):
        saver.copy_thread("t", "u")
    saver.delete_thread("u")
    saver.copy_thread("t", "u")
    assert values_of(saver, config("u")) == values_of(saver)


@pytest.mark.parametrize("current", [None, 1, 7, 2.0, f"{7:032}.0.123", f"{7:032}"])
def test_versions_grow_and_keep_their_type(saver: PerdureSaver, current: Any) -> None:
    after = saver.get_next_version(current, None)
    assert current is None or (type(after) is type(current) and after > current)
    assert saver.get_next_version(after, None) > after


def test_the_format_version_and_unknown_fields_of_a_checkpoint_are_kept(
    saver: PerdureSaver,
) -> None:
    made: Any = {**empty_checkpoint(), "v": 7, "of the future": [1, {"a": HumanMessage("x")}]}
    at = saver.put(config(), made, {}, {})
    assert get(saver, at).checkpoint == made


def test_what_a_machine_with_a_slow_clock_put_last_is_the_latest(place: Place) -> None:
    """LangGraph's own savers take the greatest id, which is that of its parent here: the step of
    the second machine would be forgotten, and done once more."""
    saver = place.open()
    first, second = uuid6(clock_seq=1), uuid6(clock_seq=2)
    at = put(saver, {"n": 1}, id=str(second))
    made = put(saver, {"n": 2}, at, 2, id=str(first))
    for reader in (saver, place.open()):
        assert get(reader).config == made
        assert [one.checkpoint["id"] for one in reader.list(config())] == [str(second), str(first)]
