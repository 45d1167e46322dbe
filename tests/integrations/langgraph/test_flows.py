"""LangGraph's own example flows, against the real library."""

import asyncio
import operator
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Durability, Send, interrupt
from typing_extensions import TypedDict

from perdure.integrations.langgraph import PerdureSaver
from tests.engine.waits import until
from tests.integrations.langgraph.conftest import Place

THREAD: RunnableConfig = {"configurable": {"thread_id": "t"}}


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


class Log(TypedDict):
    log: Annotated[list[str], operator.add]


def chat_graph(saver: PerdureSaver) -> Any:
    def answer(state: Chat) -> Chat:
        return {"messages": [AIMessage(f"answer to {len(state['messages'])}")]}

    graph = StateGraph(Chat)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    return graph.compile(checkpointer=saver)


def ask(text: str) -> Any:
    return {"messages": [HumanMessage(text)]}


def test_a_conversation_goes_on_in_another_process(place: Place) -> None:
    found: Any = None
    for number in range(3):
        saver = place.open()  # as another process would
        found = chat_graph(saver).invoke(ask(f"question {number}"), THREAD)
    assert [one.content for one in found["messages"]] == [
        "question 0",
        "answer to 1",
        "question 1",
        "answer to 3",
        "question 2",
        "answer to 5",
    ]
    state = chat_graph(place.open()).get_state(THREAD)
    assert state.values == found
    assert all(type(one) in (HumanMessage, AIMessage) for one in state.values["messages"])


def steps_graph(saver: PerdureSaver) -> Any:
    def step(name: str) -> Any:
        return lambda state: {"log": [name]}

    graph = StateGraph(Log)
    for before, name in ((START, "a"), ("a", "b"), ("b", "c")):
        graph.add_node(name, step(name))
        graph.add_edge(before, name)
    return graph.compile(checkpointer=saver)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_every_durability_ends_in_the_same_state(place: Place, durability: Durability) -> None:
    graph = steps_graph(place.open())
    assert graph.invoke({"log": []}, THREAD, durability=durability) == {"log": ["a", "b", "c"]}
    again = steps_graph(place.open())
    assert again.get_state(THREAD).values == {"log": ["a", "b", "c"]}
    steps = [one.metadata["step"] for one in again.get_state_history(THREAD)]
    assert steps == ([3] if durability == "exit" else [3, 2, 1, 0, -1])
    again.invoke({"log": ["more"]}, THREAD, durability=durability)
    assert again.get_state(THREAD).values == {"log": ["a", "b", "c", "more", "a", "b", "c"]}


def review_graph(saver: PerdureSaver, calls: list[str]) -> Any:
    def draft(state: Log) -> Log:
        calls.append("draft")
        return {"log": ["draft"]}

    def review(state: Log) -> Log:
        return {"log": [f"reviewed: {interrupt({'ask': 'good?'})}"]}

    graph = StateGraph(Log)
    graph.add_node("draft", draft)
    graph.add_node("review", review)
    graph.add_edge(START, "draft")
    graph.add_edge("draft", "review")
    return graph.compile(checkpointer=saver)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_interrupt_and_resume_elsewhere(place: Place, durability: Durability) -> None:
    calls: list[str] = []
    graph = review_graph(place.open(), calls)
    found = graph.invoke({"log": []}, THREAD, durability=durability)
    assert found["__interrupt__"][0].value == {"ask": "good?"}
    graph = review_graph(place.open(), calls)
    waiting = graph.get_state(THREAD)
    assert waiting.next == ("review",)
    assert waiting.tasks[0].interrupts[0].value == {"ask": "good?"}
    found = graph.invoke(Command(resume="yes"), THREAD, durability=durability)
    assert found["log"] == ["draft", "reviewed: yes"]
    assert calls == ["draft"]


def test_time_travel_replays_and_forks(place: Place) -> None:
    graph = steps_graph(place.open())
    graph.invoke({"log": []}, THREAD)
    after_a = next(one for one in graph.get_state_history(THREAD) if one.next == ("b",))
    assert graph.invoke(None, after_a.config) == {"log": ["a", "b", "c"]}
    forked = graph.update_state(after_a.config, {"log": ["edited"]})
    assert graph.invoke(None, forked) == {"log": ["a", "edited", "b", "c"]}
    assert graph.get_state(THREAD).values == {"log": ["a", "edited", "b", "c"]}
    children = [
        one.values["log"]
        for one in graph.get_state_history(THREAD)
        if one.parent_config
        and one.parent_config["configurable"]["checkpoint_id"]
        == after_a.config["configurable"]["checkpoint_id"]
    ]
    assert len(children) == 3
    agent = place.open().store.find("t")
    assert agent is not None
    branches = place.open().store.agent_of(agent).branches()
    assert [one.name for one in branches] == ["main", "main~2", "main~3"]
    place.open().store.agent_of(agent).verify()


def test_a_fork_goes_on_beside_its_origin_where_races_are_conflicts(place: Place) -> None:
    graph = steps_graph(place.open(on_race="conflict"))
    graph.invoke({"log": []}, THREAD)
    for one in list(graph.get_state_history(THREAD))[1:]:
        assert graph.invoke(None, one.config)["log"][-1:] == ["c"]


def sub_graphs(saver: PerdureSaver, *, own: bool = False) -> Any:
    inner = StateGraph(Log)
    inner.add_node("inner", lambda state: {"log": [f"inner: {interrupt('go on?')}"]})
    inner.add_edge(START, "inner")
    outer = StateGraph(Log)
    outer.add_node("sub", inner.compile(checkpointer=True if own else None))
    outer.add_node("after", lambda state: {"log": ["after"]})
    outer.add_edge(START, "sub")
    outer.add_edge("sub", "after")
    return outer.compile(checkpointer=saver)


@pytest.mark.parametrize("own", [False, True])
def test_subgraphs_have_namespaces_of_their_own(place: Place, own: bool) -> None:
    graph = sub_graphs(place.open(), own=own)
    graph.invoke({"log": []}, THREAD)
    state = sub_graphs(place.open(), own=own).get_state(THREAD, subgraphs=True)
    assert state.tasks[0].state.next == ("inner",)
    namespaces = {one.config["configurable"]["checkpoint_ns"] for one in place.open().list(THREAD)}
    assert len(namespaces) == 2
    assert "" in namespaces
    found = sub_graphs(place.open(), own=own).invoke(Command(resume="yes"), THREAD)
    assert "inner: yes" in found["log"]
    assert found["log"][-1] == "after"
    info = place.open().store.find("t")
    assert info is not None
    place.open().store.agent_of(info).verify()


def test_parallel_tasks_of_which_one_fails(place: Place) -> None:
    """What succeeded is not run again when the rest is.

    One that fails at once may end LangGraph's executor before its siblings' writes are handed over:
    they would then be run again with any saver. So it fails when those have arrived.
    """
    calls: list[str] = []
    savers: list[PerdureSaver] = []

    def arrived() -> int:
        found = savers[0].get_tuple(THREAD)
        return len({task for task, *_ in found.pending_writes or ()}) if found else 0

    def work(state: Any) -> Log:
        calls.append(state["name"])
        if state["name"] == "c" and savers:
            until(lambda: arrived() == 3)
            raise RuntimeError("not today")
        return {"log": [state["name"]]}

    def graph_on(saver: PerdureSaver) -> Any:
        graph = StateGraph(Log)
        graph.add_node("work", work)
        graph.add_conditional_edges(
            START, lambda state: [Send("work", {"name": name}) for name in "abcd"], ["work"]
        )
        graph.add_edge("work", END)
        return graph.compile(checkpointer=saver)

    savers.append(place.open())
    with pytest.raises(RuntimeError, match="not today"):
        graph_on(savers[0]).invoke({"log": []}, THREAD)
    assert sorted(calls) == ["a", "b", "c", "d"]
    calls.clear()
    savers.clear()
    found = graph_on(place.open()).invoke(None, THREAD)
    assert sorted(found["log"]) == ["a", "b", "c", "d"]
    assert calls == ["c"]


def test_the_functional_api(place: Place) -> None:
    calls: list[int] = []

    @task
    def square(number: int) -> int:
        calls.append(number)
        return number * number

    def flow_on(saver: PerdureSaver) -> Any:
        @entrypoint(checkpointer=saver)
        def flow(numbers: list[int], *, previous: Any = None) -> Any:
            squares = [square(number) for number in numbers]
            found = [one.result() for one in squares]
            word = interrupt("which word?")
            value = {"sum": sum(found), "word": word, "before": previous}
            return entrypoint.final(value=value, save=sum(found))

        return flow

    flow_on(place.open()).invoke([1, 2, 3], THREAD)
    found = flow_on(place.open()).invoke(Command(resume="yes"), THREAD)
    assert found == {"sum": 14, "word": "yes", "before": None}
    assert sorted(calls) == [1, 2, 3]
    flow_on(place.open()).invoke([4], THREAD)
    assert flow_on(place.open()).invoke(Command(resume="no"), THREAD)["before"] == 14


def test_the_async_face_on_two_event_loops(place: Place) -> None:
    saver = place.open()
    graph = steps_graph(saver)

    async def talk() -> Any:
        found = await graph.ainvoke({"log": []}, THREAD)
        states = [one async for one in graph.aget_state_history(THREAD)]
        return found["log"], len(states)

    assert asyncio.run(talk()) == (["a", "b", "c"], 5)
    assert asyncio.run(talk()) == (["a", "b", "c"] * 2, 10)


def test_many_threads_at_once_in_one_event_loop(place: Place) -> None:
    async def all_at_once() -> list[Any]:
        async with place.open() as saver:
            graph = chat_graph(saver)
            runs = [
                graph.ainvoke(ask("hi"), {"configurable": {"thread_id": f"t{number}"}})
                for number in range(20)
            ]
            return list(await asyncio.gather(*runs))

    assert [len(one["messages"]) for one in asyncio.run(all_at_once())] == [2] * 20


def test_a_message_is_changed_and_removed(place: Place) -> None:
    graph = chat_graph(place.open())
    found = graph.invoke(ask("hello"), THREAD)
    first = found["messages"][0]
    graph.update_state(THREAD, {"messages": [HumanMessage("hullo", id=first.id)]})
    state = chat_graph(place.open()).get_state(THREAD)
    assert [one.content for one in state.values["messages"]] == ["hullo", "answer to 1"]


def test_what_a_node_changes_in_place_is_stored(place: Place) -> None:
    """A node that appends to the list of its state and returns it hands in the same object."""

    class Bag(TypedDict):
        items: list[str]
        notes: dict[str, int]

    def grow(state: Bag) -> Bag:
        state["items"].append(f"item {len(state['items'])}")
        state["notes"]["count"] = len(state["items"])
        return state

    graph = StateGraph(Bag)
    graph.add_node("one", grow)
    graph.add_node("two", grow)
    graph.add_edge(START, "one")
    graph.add_edge("one", "two")
    saver = place.open()
    graph.compile(checkpointer=saver).invoke({"items": [], "notes": {}}, THREAD, durability="sync")
    history = [one.checkpoint["channel_values"] for one in place.open().list(THREAD)]
    assert [(len(one["items"]), one["notes"]) for one in history if "items" in one] == [
        (2, {"count": 2}),
        (1, {"count": 1}),
        (0, {}),
    ]


def test_a_message_that_is_changed_in_place_is_stored(place: Place) -> None:
    def shout(state: Chat) -> Chat:
        for message in state["messages"]:
            message.content = str(message.content).upper()
        return {"messages": [AIMessage("done", id="done")]}

    graph = StateGraph(Chat)
    graph.add_node("shout", shout)
    graph.add_edge(START, "shout")
    graph.compile(checkpointer=place.open()).invoke(
        {"messages": [HumanMessage(f"m{number}", id=str(number)) for number in range(100)]},
        THREAD,
        durability="sync",
    )
    found = place.open().get_tuple(THREAD)
    assert found is not None
    contents = [one.content for one in found.checkpoint["channel_values"]["messages"]]
    assert contents == [*(f"M{number}" for number in range(100)), "done"]
