"""Undo of all that a run changed, or of its last turns; and forks to before a run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from threading import Event, Thread
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perdure
from perdure import Agent, Conflict, NotFound, Store
from perdure.state import time_travel
from perdure.testing import replay, run_until_waiting
from tests.engine.conftest import Place
from tests.engine.waits import verify_all


@pytest.fixture(autouse=True)
def rows_follow_from_the_log(place: Place) -> Iterator[None]:
    yield
    verify_all(place)


@perdure.tool(on_crash="retry")
def search(words: str) -> str:
    return f"about {words}"


@perdure.agent(dict)
def reply(run: perdure.Run[dict], words: str) -> str:
    """One message of a chat, one run."""
    with run.edit("user message") as draft:
        draft.setdefault("messages", []).append(words)
        draft["count"] = draft.get("count", 0) + 1
    found = search(words)
    with run.edit("answer") as draft:
        draft["messages"].append(found)
    with run.edit("title") as draft:
        draft["title"] = words
    return found


@perdure.agent(dict)
def assistant(run: perdure.Run[dict]) -> Any:
    """One run for the whole chat: a message is a turn."""
    words = run.wait_for("message", schema=str)
    if words == "bye":
        return run.state.get("messages", [])
    with run.edit("user message") as draft:
        draft.setdefault("messages", []).append(words)
    found = search(words)
    with run.edit("answer") as draft:
        draft["messages"].append(found)
    return run.again()


def chat(store: Store, *messages: str) -> Agent[dict[str, Any]]:
    for number, words in enumerate(messages, 1):
        store.options(key=f"m-{number}").run(reply, "a", words)
    return store.agent("a")


def messages(agent: Agent[dict[str, Any]]) -> list[str]:
    return list(agent.refresh().get("messages", []))


def test_the_last_message_is_taken_back_as_a_whole(store: Store) -> None:
    """A user pressed "undo": `agent.undo()` took back the title, and left the message and its
    answer. A run's edits are no group, and calling it three times is a guess."""
    agent = chat(store, "cats", "dogs")
    before = agent.at(store.runs("a")[1].started).state
    undone = agent.undo(run="a/reply/m-2")
    assert (
        agent.state == before == {"messages": ["cats", "about cats"], "count": 1, "title": "cats"}
    )
    assert [call["place"] for call in undone.tool_calls] == ["search#1"]
    assert len(undone.commit.cause.refers) == 3
    agent.redo()
    assert messages(agent) == ["cats", "about cats", "dogs", "about dogs"]
    agent.undo(run=store.handle("a/reply/m-2"))
    with pytest.raises(NotFound, match="run a/reply/m-2 has changed nothing that is left"):
        agent.undo(run="a/reply/m-2")
    agent.undo()
    assert agent.state == {"messages": ["cats", "about cats"], "count": 1}, "as if it had not been"


def test_one_that_others_have_built_on_is_refused(store: Store) -> None:
    agent = chat(store, "cats", "dogs")
    with pytest.raises(Conflict, match="later commits touched"):
        agent.undo(run="a/reply/m-1")
    agent.undo(run="a/reply/m-2")
    agent.undo(run="a/reply/m-1")
    assert agent.state == {}


def test_what_others_wrote_meanwhile_stays(store: Store) -> None:
    handle = run_until_waiting(store, assistant, "a")
    handle.signal("message", "cats")
    run_until_waiting(store, assistant, "a")
    agent = store.agent("a")
    with agent.edit("a note") as draft:
        draft["note"] = "likes cats"
    agent.undo(run=handle)
    assert agent.state == {"note": "likes cats"}


def test_turn_after_turn_beside_the_run_that_waits(store: Store) -> None:
    """The run of a chat waits, unloaded, for the next message, in a turn that has changed nothing:
    the last turn is the one before. It was refused as the run had not finished."""
    handle = run_until_waiting(store, assistant, "a")
    agent = store.agent("a")
    for words in ("cats", "dogs", "birds"):
        handle.signal("message", words)
        run_until_waiting(store, assistant, "a")
    undone = agent.undo(run=handle, turns=1)
    assert messages(agent) == ["cats", "about cats", "dogs", "about dogs"]
    assert [call["preview"] for call in undone.tool_calls] == ["words='birds'"]
    agent.undo(run=handle, turns=1)
    assert messages(agent) == ["cats", "about cats"]
    agent.redo()
    assert messages(agent) == ["cats", "about cats", "dogs", "about dogs"]
    handle.signal("message", "fish")
    run_until_waiting(store, assistant, "a")
    assert messages(agent)[4:] == ["fish", "about fish"]
    agent.undo(run=handle, turns=2)
    assert messages(agent) == ["cats", "about cats"]
    handle.signal("message", "bye")
    assert store.run(assistant, "a") == ["cats", "about cats"]
    replay(store, assistant, handle.id).check()


def test_in_the_middle_of_a_turn(store: Store) -> None:
    """The run sees it when it goes on, as any write of others."""

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> dict[str, Any]:
        with run.edit("one") as draft:
            draft["n"] = 1
        run.wait_for("go")
        with run.edit("two") as draft:
            draft["m"] = 2
        return dict(run.state)

    handle = run_until_waiting(store, act, "a")
    store.agent("a").undo(run=handle)
    handle.signal("go")
    assert store.run(act, "a") == {"m": 2}
    assert store.run(act, "a") == {"m": 2}
    replay(store, act, handle.id).check()


def test_a_run_that_executes_does_it_at_its_next_boundary(place: Place) -> None:
    store, other = place.open(), place.open()
    begun = Event()

    @perdure.step
    def look(n: int) -> int:
        begun.set()
        return n

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> dict[str, Any]:
        with run.edit("one") as draft:
            draft["n"] = 1
        with run.edit("two") as draft:
            draft["m"] = 2
        while run.state:
            look(len(run.state))
        return dict(run.state)

    results: list[Any] = []
    runs = Thread(target=lambda: results.append(store.run(act, "a")))
    runs.start()
    begun.wait(60)
    undone = other.agent("a").undo(run="a/act/main")
    runs.join(60)
    assert results == [{}]
    assert len(undone.commit.cause.refers) == 2
    assert undone.commit.cause.run == "a/act/main"
    replay(store, act, "a/act/main").check()


def test_it_takes_part_in_a_turn_meanwhile(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run waited when "undo" looked, and had answered the next message when that was about to
    be committed: a `Conflict` about the head, or about a process that had the branch for that
    moment, was shown to a user who could do nothing about it."""
    store, other = place.open(), place.open()
    handle = run_until_waiting(store, assistant, "a")
    handle.signal("message", "cats")
    run_until_waiting(store, assistant, "a")
    agent, honest = other.agent("a"), time_travel._at_rest
    woken: list[bool] = []

    def wakes(working: Any) -> Any:
        found = honest(working)
        if not woken:
            woken.append(handle.signal("message", "dogs"))
            run_until_waiting(store, assistant, "a")
        return found

    monkeypatch.setattr(time_travel, "_at_rest", wakes)
    agent.undo(run=handle, turns=1)
    assert woken and messages(agent) == ["cats", "about cats"]


def test_turns_that_were_redone_at_once_are_not_told_apart(store: Store) -> None:
    """Two turns were undone together, and redone behind a third one. The undo of two turns took
    back all three, and named two; the next one was Corrupt."""
    handle = run_until_waiting(store, assistant, "a")
    agent = store.agent("a")

    def says(words: str) -> None:
        handle.signal("message", words)
        run_until_waiting(store, assistant, "a")

    for words in ("fish", "cats", "dogs"):
        says(words)
    agent.undo(run=handle, turns=2)
    says("birds")
    agent.redo()
    every = messages(agent)
    assert len(every) == 8
    with pytest.raises(Conflict, match=r"later commits touched state\.messages"):
        agent.undo(run=handle, turns=2)
    assert messages(agent) == every
    undone = agent.undo(run=handle, turns=3)
    assert len(undone.commit.cause.refers) == 6 and messages(agent) == ["fish", "about fish"]


def test_on_a_branch(store: Store) -> None:
    """Edit and send again: a branch from the head, on which the last message is taken back; or one
    from before it."""
    agent = chat(store, "cats", "dogs")
    shorter = agent.fork("shorter")
    shorter.undo(run="a/reply/m-2")
    edited = agent.fork("edited", before="a/reply/m-2")
    assert shorter.state == edited.state == agent.at(store.runs("a")[1].started).state
    store.options(key="m-2", branch="edited").run(reply, "a", "birds")
    assert messages(agent.branch("edited"))[2:] == ["birds", "about birds"]
    assert messages(agent)[2:] == ["dogs", "about dogs"]
    changed = {change.path for change in agent.diff("main", "edited")}
    assert "state.title" in changed or len(changed) == 3
    first = agent.fork("anew", before=store.handle("a/reply/m-1"))
    assert first.state == {}


def test_what_cannot_be(store: Store) -> None:
    agent = chat(store, "cats")
    store.run(reply, "b", "dogs")
    waiting = store.start(assistant, "a")
    for wrong, said in (
        ("b/reply/main", "is one of agent 'b'"),
        ("a/reply/none", "no such run"),
        (waiting, "has not begun"),
    ):
        with pytest.raises(NotFound, match=said):
            agent.undo(run=wrong)
        with pytest.raises(NotFound, match=said):
            agent.fork("never", before=wrong)
    for turns in (1, 0):
        with pytest.raises(ValueError, match="turns="):
            agent.undo(turns=turns)
    with pytest.raises(ValueError, match="turns="):
        agent.undo(run="a/reply/m-1", turns=0)
    with pytest.raises(TypeError, match="turns="):
        agent.undo(run="a/reply/m-1", turns="1")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="id or its handle"):
        agent.undo(run=7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="either at="):
        agent.fork("x", at=1, before="a/reply/m-1")
    assert messages(agent) == ["cats", "about cats"]


def test_another_run_of_the_branch_may_be_ended_for_it(store: Store) -> None:
    agent = chat(store, "cats")
    handle = run_until_waiting(store, assistant, "a")
    agent.undo(run="a/reply/m-1", cancel_run=True)
    assert handle.status == "cancelled"
    assert agent.state == {}


def test_in_an_event_loop(place: Place) -> None:
    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict], words: str) -> None:
        for part in words.split():
            async with run.edit("said") as draft:
                draft.setdefault("said", []).append(part)

    async def main() -> None:
        async with perdure.open_async(place.url, durability="os") as store:
            await store.run(act, "a", "a b c")
            again = store.options(key="2")
            await again.run(act, "a", "d e")
            agent = await store.agent("a")
            handle = await store.handle("a/act/2")
            there = await agent.fork("there", before=handle)
            assert there.state == {"said": ["a", "b", "c"]}
            await agent.undo(run=handle)
            assert await agent.refresh() == {"said": ["a", "b", "c"]}
            await agent.undo(run="a/act/main", turns=1)
            assert await agent.refresh() == {}

    asyncio.run(main())


# -- whatever it did -----------------------------------------------------------------------


MOVES = st.sampled_from(["set", "add", "drop", "undo", "redo", "back", "name"])


@perdure.agent(dict)
def wander(run: perdure.Run[dict], moves: list[str]) -> None:
    for number, move in enumerate(moves):
        with suppress(NotFound, Conflict):
            if move == "undo":
                run.undo()
            elif move == "redo":
                run.redo()
            elif move == "name":
                run.checkpoint("point")
            elif move == "back":
                run.rollback("point")
            else:
                with run.edit(move) as draft:
                    change(draft, move, number)


def change(draft: Any, move: str, number: int) -> None:
    if move == "set":
        draft[f"k{number % 3}"] = number
    elif move == "drop":
        draft.pop(f"k{number % 3}", None)
    else:
        draft.setdefault("list", []).append(number)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["set", "add", "drop", "undo", "redo"]), max_size=6),
    st.lists(MOVES, max_size=10),
    st.lists(MOVES, max_size=10),
)
def test_whatever_a_run_did_comes_to_nothing(
    before: list[str], moves: list[str], others: list[str]
) -> None:
    """Also what it undid, redid and rolled back, of itself or of what was there before; and undo
    and redo go on from there as if it had not been."""
    with perdure.open("memory://") as store:
        agent = store.agent("a", initial={})
        agent.checkpoint("point")
        for number, move in enumerate(before):
            with suppress(NotFound, Conflict):
                if move in ("undo", "redo"):
                    getattr(agent, move)()
                else:
                    with agent.edit(move) as draft:
                        change(draft, move, number)
        states = [deepcopy(agent.refresh())]
        for key, its in (("1", moves), ("2", others)):
            store.options(key=key).run(wander, "a", its)
            states.append(deepcopy(agent.refresh()))
        for key, state in (("2", states[1]), ("1", states[0])):
            with suppress(NotFound):
                agent.undo(run=f"a/wander/{key}")
            assert agent.state == state
        undoes(agent, before, states[0])
        agent.verify()


def undoes(agent: Agent[dict[str, Any]], before: list[str], state: dict[str, Any]) -> None:
    """An undo finds what it would have found before the runs."""
    with perdure.open("memory://") as store:
        alike = store.agent("a", initial={})
        for number, move in enumerate(before):
            with suppress(NotFound, Conflict):
                if move in ("undo", "redo"):
                    getattr(alike, move)()
                else:
                    with alike.edit(move) as draft:
                        change(draft, move, number)
        assert alike.state == state
        try:
            alike.undo()
        except NotFound:
            with pytest.raises(NotFound):
                agent.undo()
        except Conflict:
            return
        else:
            agent.undo()
            assert agent.state == alike.state
