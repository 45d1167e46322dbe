"""Retention of threads: old checkpoints go for good, and every graph goes on as if nothing had been
removed."""

from __future__ import annotations

import operator
from datetime import UTC, datetime, timedelta
from itertools import chain, product
from typing import Annotated, Any

import pytest
from langgraph.channels import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Durability, interrupt
from typing_extensions import TypedDict

from perdure import Conflict, NotFound
from perdure.integrations.langgraph import PerdureSaver
from tests.integrations.langgraph.checkpoints import (
    checkpoint,
    config,
    get,
    id_of,
    line,
    put,
    values_of,
)
from tests.integrations.langgraph.conftest import Place
from tests.integrations.langgraph.test_flows import THREAD, ask, chat_graph

NOW = timedelta(0)


def verified(saver: PerdureSaver, thread: str = "t") -> int:
    """How many payloads are gone."""
    info = saver.store.find(thread)
    assert info is not None
    return saver.store.agent_of(info).verify().trimmed


def test_the_latest_stays_and_old_ones_are_not_there_any_more(
    saver: PerdureSaver, place: Place
) -> None:
    made = line(saver, 50)
    before = get(saver)
    (done,) = saver.trim(40)
    assert done.removed > 30
    for one in (saver, place.open()):
        assert get(one) == before
        listed = [id_of(found.config) for found in one.list(config())]
        # The first one, which stays, the one behind which the horizon is, and all behind that.
        assert listed == [id_of(at) for at in (*reversed(made[38:]), made[0])]
        assert one.get_tuple(made[5]) is None
        assert values_of(one, made[45])["n"] == 45
    assert line(saver, 3, made[-1])
    assert verified(saver) == done.removed


def test_by_age_and_by_moment(saver: PerdureSaver) -> None:
    line(saver, 10)
    moment = datetime.now(UTC)
    line(saver, 10, config("other"))
    assert [one.removed for one in saver.trim(timedelta(days=1))] == [0, 0]
    assert [one.agent for one in saver.trim(moment) if one.removed] == ["t"]
    assert [one.agent for one in saver.trim(NOW, ["other", "nobody"])] == ["other"]


def test_each_namespace_and_each_sibling_keeps_its_last(saver: PerdureSaver) -> None:
    """A subgraph that ended long ago has its last checkpoint far behind all others."""
    root = put(saver, {"n": 0})
    sub = put(saver, {"sub": 1}, config(ns="child:1"), 1)
    sub = put(saver, {"sub": 2}, sub, 2)
    saver.put_writes(sub, [("sub", 3)], "task")
    saver.put_writes(sub, [("sub", 4)], "other task")
    sibling = put(saver, {"n": 100}, root, 2, source="fork")
    at = root
    for number in range(30):
        at = put(saver, {"n": number}, at, number + 2)
    before = {ns: get(saver, config(ns=ns)) for ns in ("", "child:1")}
    saver.trim(NOW)
    assert {ns: get(saver, config(ns=ns)) for ns in ("", "child:1")} == before
    assert len(before["child:1"].pending_writes or []) == 2
    assert values_of(saver, sibling)["n"] == 100
    assert [found.checkpoint["channel_values"] for found in saver.list(config(ns="child:1"))] == [
        {"sub": 2}
    ]
    new = put(saver, {"sub": 9}, config(ns="child:2"))
    assert values_of(saver, new) == {"sub": 9}
    assert verified(saver) > 20


def test_writes_that_came_before_their_checkpoint_stay(saver: PerdureSaver) -> None:
    made = line(saver, 3)
    late = "1f0b0000-0000-6000-8000-00000000ffff"
    saver.put_writes(config("t", late), [("log", "early")], "task")
    put(saver, {"n": 99}, made[-1], 9, id=late)
    other = made[0]
    for number in range(20):
        source = "loop" if number else "fork"
        other = put(saver, {"n": number}, other, number + 2, source=source)
    before = get(saver, config("t", late))
    assert before.pending_writes == [("task", "log", "early")]
    saver.trim(NOW)
    assert get(saver, config("t", late)) == before


def test_what_was_pruned_goes_and_what_is_shown_stays(saver: PerdureSaver) -> None:
    line(saver, 20)
    shown = get(saver)
    saver.prune(["t"])
    saver.trim(NOW)
    assert get(saver) == shown
    assert len(list(saver.list(config()))) == 1
    assert verified(saver) > 15


def test_writes_that_the_next_checkpoint_took_along_stay_when_that_is_removed(
    saver: PerdureSaver,
) -> None:
    """They are in its commit, which is not that of any checkpoint that is shown; and what is shown
    is found over others that went."""

    class State(TypedDict):
        log: Annotated[list[str], operator.add]

    graph = StateGraph(State)
    graph.add_node("review", lambda state: {"log": [interrupt("go on?")]})
    graph.add_edge(START, "review")
    for number in range(5):
        graph.add_node(f"after{number}", lambda state: {"log": ["after"]})
        graph.add_edge(f"after{number - 1}" if number else "review", f"after{number}")
    app = graph.compile(checkpointer=saver)
    for _ in range(2):  # how many commits there are hangs on how fast the writes come
        app.invoke({"log": []}, THREAD, durability="sync")
        app.invoke(Command(resume="yes"), THREAD, durability="sync")
    app.invoke({"log": []}, THREAD, durability="sync")
    waiting = get(saver)
    app.invoke(
        Command(resume="yes"), {**THREAD, "metadata": {"run_id": "second"}}, durability="sync"
    )
    saver.delete_for_runs(["second"])
    before = get(saver)
    assert before.checkpoint == waiting.checkpoint
    assert len(before.pending_writes or []) > len(waiting.pending_writes or [])
    assert saver.trim(NOW)[0].removed
    assert get(saver) == before


def test_an_interrupted_graph_resumes(saver: PerdureSaver) -> None:
    class State(TypedDict):
        log: Annotated[list[str], operator.add]

    def step(state: State) -> State:
        return {"log": [f"step {len(state['log'])}"]}

    def review(state: State) -> State:
        return {"log": [interrupt("go on?")]}

    graph = StateGraph(State)
    graph.add_node("step", step)
    graph.add_node("review", review)
    graph.add_edge(START, "step")
    graph.add_edge("step", "review")
    app = graph.compile(checkpointer=saver)
    log: list[str] = []
    for number in range(5):
        app.invoke({"log": [f"in {number}"]}, THREAD)
        saver.trim(NOW)
        log = app.invoke(Command(resume=f"yes {number}"), THREAD)["log"]
        saver.trim(NOW)
    assert len(log) == 15
    assert next(one.values["log"] for one in app.get_state_history(THREAD)) == log
    assert verified(saver) > 10


def test_a_conversation_that_is_trimmed_each_night_goes_on(place: Place) -> None:
    found: Any = None
    for number in range(8):
        saver = place.open()
        found = chat_graph(saver).invoke(ask(f"question {number}"), THREAD)
        saver.trim(NOW)
    assert len(found["messages"]) == 16
    assert len(list(chat_graph(place.open()).get_state_history(THREAD))) < 5
    store = place.open().store
    assert store.sizes("t").payload_bytes < 20_000


def test_going_on_from_a_checkpoint_that_went_is_refused(saver: PerdureSaver) -> None:
    made = line(saver, 20)
    saver.trim(NOW)
    with pytest.raises(NotFound, match="removed by retention"):
        put(saver, {"n": 0}, made[3], 5)
    with pytest.raises(NotFound, match="removed by retention"):
        put(saver, {"n": 3}, made[2], 4, id=id_of(made[3]))
    assert values_of(saver)["n"] == 19


def test_a_thread_that_has_to_stay_holds_up_no_other(saver: PerdureSaver) -> None:
    """The first one that a copy reads, or that has channels of deltas, ended the nightly call: all
    threads behind it by name kept all that they had."""
    for thread in ("t", "u"):
        line(saver, 20, config(thread))
    saver.copy_thread("t", "v")
    with pytest.raises(Conflict, match="'v'"):
        saver.trim(NOW)
    assert len(list(saver.list(config("u")))) < 5
    assert len(list(saver.list(config("t")))) == 20


def test_a_thread_that_is_copied_stays(saver: PerdureSaver) -> None:
    line(saver, 20)
    saver.copy_thread("t", "copy")
    with pytest.raises(Conflict, match="'copy'"):
        saver.trim(NOW, ["t"])
    assert len(list(saver.list(config("copy")))) == 20
    saver.delete_thread("copy")
    assert saver.trim(NOW, ["t"])[0].removed > 15
    saver.copy_thread("t", "later")
    assert get(saver, config("later")).checkpoint == get(saver).checkpoint
    assert len(list(saver.list(config("later")))) == 2


def test_channels_of_deltas_hold_their_history(saver: PerdureSaver) -> None:
    """Their value is made of all writes: without them a list of messages would begin anew."""

    class State(TypedDict):
        log: Annotated[list[str], DeltaChannel(lambda old, new: [*(old or []), *chain(*new)])]

    def step(state: State) -> Any:
        return {"log": [f"after {len(state.get('log') or [])}"]}

    graph = StateGraph(State)
    graph.add_node("step", step)
    graph.add_edge(START, "step")
    app = graph.compile(checkpointer=saver)
    for number in range(4):
        app.invoke({"log": [f"in {number}"]}, THREAD)
    before = app.get_state(THREAD).values
    with pytest.raises(Conflict, match="'log' has no value"):
        saver.trim(NOW)
    assert verified(saver) == 0
    assert app.get_state(THREAD).values == before
    saver.trim(NOW, passing=["log"])
    with pytest.raises(NotFound, match="removed by retention"):
        app.get_state(THREAD)


def test_a_snapshot_of_a_channel_of_deltas_lets_no_history_go(saver: PerdureSaver) -> None:
    """Where the latest checkpoint happened to have one, the thread was trimmed, and checkpoints
    younger than what was to go could not be read any more: one nightly trim in a hundred."""

    class State(TypedDict):
        log: Annotated[
            list[str],
            DeltaChannel(lambda old, new: [*(old or []), *chain(*new)], snapshot_frequency=4),
        ]

    graph = StateGraph(State)
    graph.add_node("step", lambda state: {"log": ["after"]})
    graph.add_edge(START, "step")
    app = graph.compile(checkpointer=saver)
    for number in range(4):
        app.invoke({"log": [f"in {number}"]}, THREAD)
    before = [found.values for found in app.get_state_history(THREAD)]
    with pytest.raises(Conflict, match="'log' is stored as deltas"):
        saver.trim(NOW, passing=["log"])
    assert verified(saver) == 0
    assert [found.values for found in app.get_state_history(THREAD)] == before


class Later(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    notes: Annotated[list[str], DeltaChannel(lambda old, new: [*(old or []), *chain(*new)])]


def later_graph(saver: PerdureSaver) -> Any:
    graph = StateGraph(Later)
    graph.add_node("step", lambda state: {"log": ["step"], "notes": ["step"]})
    graph.add_edge(START, "step")
    return graph.compile(checkpointer=saver)


def test_a_channel_of_deltas_may_begin_behind_what_went(place: Place) -> None:
    """A thread was trimmed before a channel of deltas was written to for the first time, as by a
    new version of its graph. From then on nothing could read it: the writes that the channel was
    made of were said to be removed, and there had never been any."""
    saver = place.open()
    app = later_graph(saver)
    for number in range(6):
        app.update_state(THREAD, {"log": [f"{number}"]}, as_node="step")
    (done,) = saver.trim(NOW)
    assert done.removed > 0
    for number in range(1, 4):
        app.invoke({"log": ["in"]}, THREAD)
        for reader in (app, later_graph(place.open())):
            assert reader.get_state(THREAD).values["notes"] == ["step"] * number
            notes = [one.values.get("notes") for one in reader.get_state_history(THREAD)]
            assert notes[0] == ["step"] * number
            assert not notes[-1]
    with pytest.raises(Conflict, match="'notes' has no value"):
        saver.trim(NOW)


def test_channels_of_deltas_of_a_copy_hold_what_it_was_copied_with(place: Place) -> None:
    """A copied thread was trimmed where the thread that it was copied from was refused: the writes
    to the channel were looked for in the copy's own log. Its value was lost."""
    saver = place.open()
    app = later_graph(saver)
    app.invoke({"log": ["in"]}, THREAD)
    saver.copy_thread("t", "copy")
    saver.copy_thread("copy", "again")
    for name in ("again", "copy"):
        for number in range(6):
            app.update_state(config(name), {"log": [f"{number}"]}, as_node="step")
        before = app.get_state(config(name)).values
        assert before["notes"] == ["step"]
        with pytest.raises(Conflict, match="'notes' has no value"):
            saver.trim(NOW, [name])
        assert verified(saver, name) == 0
        assert later_graph(place.open()).get_state(config(name)).values == before
        saver.delete_thread("again")


def joined(old: list[str] | None, new: list[list[str]]) -> list[str]:
    return [*(old or []), *chain(*new)]


class Noted(TypedDict, total=False):
    notes: Annotated[list[str], DeltaChannel(joined, snapshot_frequency=1)]
    n: int


def asking_graph(saver: PerdureSaver) -> Any:
    graph = StateGraph(Noted)
    graph.add_node("a", lambda state: {"notes": [f"note {interrupt('a?')}"]})
    graph.add_node("b", lambda state: {"n": 1})
    graph.add_node("c", lambda state: {"n": interrupt("c?")})
    graph.add_edge(START, "a")
    graph.add_edge("a", "b")
    graph.add_edge("b", "c")
    return graph.compile(checkpointer=saver)


@pytest.mark.parametrize("durability", [*product(("sync", "async", "exit"), repeat=3)])
def test_a_value_of_a_channel_of_deltas_holds_the_checkpoint_that_has_it(
    place: Place, durability: tuple[Durability, ...]
) -> None:
    """A graph went on with `durability="exit"`: then LangGraph stores the value of such a channel
    once, and no writes to it. The thread was trimmed, as nothing had been written to the channel.
    Its latest state could not be read any more: the value was that of a checkpoint that went."""
    saver = place.open()
    app = asking_graph(saver)
    turns: tuple[Any, ...] = ({"n": 0}, Command(resume="one"), Command(resume=2))
    for given, how in zip(turns, durability, strict=True):
        app.invoke(given, THREAD, durability=how)
    before = app.get_state(THREAD).values
    assert before["notes"] == ["note one"]
    with pytest.raises(Conflict, match="'notes' "):
        saver.trim(NOW)
    assert verified(saver) == 0
    assert asking_graph(place.open()).get_state(THREAD).values == before


def test_a_plain_value_that_a_channel_of_deltas_began_with_stays(saver: PerdureSaver) -> None:
    """A channel became one of deltas in a new version of its graph, after a trim: what it begins
    with is the value in a checkpoint that an earlier trim had kept."""
    made = line(saver, 9)
    side = put(saver, {"log": ["kept"], "n": 0}, made[2], 10, source="update")
    saver.put_writes(side, [("n", 1)], "task")
    saver.trim(NOW)
    at: Any = side
    for number in range(3):
        at = without(saver, "log", at, number + 11)
    seed = saver.get_delta_channel_history(config=at, channels=["log"])
    assert seed["log"]["seed"] == ["kept"]
    with pytest.raises(Conflict, match="'log' has no value"):
        saver.trim(NOW)
    assert saver.get_delta_channel_history(config=at, channels=["log"]) == seed


def without(saver: PerdureSaver, channel: str, at: Any, version: int) -> Any:
    """Put a checkpoint that has a version of a channel, and no value."""
    made = checkpoint({"n": version}, version)
    made["channel_versions"][channel] = version
    return saver.put(at, made, {"source": "loop", "step": version, "parents": {}}, {})


def test_a_state_that_is_one_value_may_be_a_channel_of_deltas(saver: PerdureSaver) -> None:
    """LangGraph calls it `__root__`: it was taken for one in which LangGraph leaves no value."""
    at = put(saver, {"n": 0})
    for number in range(4):
        saver.put_writes(at, [("__root__", [number])], "task")
        at = without(saver, "__root__", at, number + 2)
    with pytest.raises(Conflict, match="'__root__' has no value"):
        saver.trim(NOW)


def test_the_agent_itself_knows_that_it_is_a_thread(saver: PerdureSaver) -> None:
    line(saver, 20)
    info = saver.store.find("t")
    assert info is not None
    with pytest.raises(Conflict, match="is a thread"):
        saver.store.agent_of(info).trim(10)


async def _async(place: Place) -> None:
    async with PerdureSaver.from_url(place.url) as saver:
        line(saver, 20)
        (done,) = await saver.atrim(NOW)
        assert done.removed > 15


def test_async(place: Place) -> None:
    import asyncio

    asyncio.run(_async(place))


def test_deleting_runs_passes_over_what_went(saver: PerdureSaver) -> None:
    at = None
    for number in range(20):
        at = put(saver, {"n": number}, at, number + 1, run_id=f"r{number % 2}")
    saver.trim(10)
    saver.delete_for_runs(["r1"])
    left = [found.metadata["run_id"] for found in saver.list(config())]
    assert left and set(left) == {"r0"}
