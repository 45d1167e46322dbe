"""What the SDK and its users rely on in a session, whatever it is kept in."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import Agent, RunConfig, Runner, SessionSettings, function_tool
from agents.memory import Session

import perdure
from tests.integrations.openai_agents.speaking import (
    QUIET,
    Scripted,
    calls,
    says,
    texts,
    thinks,
    user,
)


def test_it_is_a_session(make):
    session = make("c-1")
    asyncio.run(session.close())
    assert session.session_id == "c-1"
    assert isinstance(session, Session)


def test_items_come_back_in_order_and_whole(make):
    items: list[Any] = [
        user("Where is my money?"),
        {"type": "function_call", "call_id": "1", "name": "look", "arguments": '{"a": [1, 2]}'},
        {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "\ud800 é 🙂 \0"}]},
        {"role": "user", "content": "", "extra": [None, 1.5, True, 2**70, {"deep": {"er": []}}]},
    ]

    async def main():
        async with make() as session:
            assert await session.get_items() == []
            await session.add_items(items[:2])
            await session.add_items(items[2:])
            found = await session.get_items()
            assert found == items
            assert [list(item) for item in found] == [list(item) for item in items]
        async with make() as again:
            assert await again.get_items() == items

    asyncio.run(main())


def test_sessions_of_other_names_are_apart(make):
    async def main():
        async with make("a") as a, make("b") as b:
            await a.add_items([user("to a")])
            await b.add_items([user("to b")])
            await a.clear_session()
            assert await a.get_items() == []
            assert texts(await b.get_items()) == ["to b"]

    asyncio.run(main())


def test_pop_takes_the_newest_until_nothing_is_left(make):
    async def main():
        async with make() as session:
            assert await session.pop_item() is None
            await session.add_items([user("1"), user("2")])
            assert [await session.pop_item() for _ in range(3)] == [user("2"), user("1"), None]
            await session.add_items([user("3")])
            assert texts(await session.get_items()) == ["3"]

    asyncio.run(main())


def test_clear_empties_it_and_it_goes_on(make):
    async def main():
        async with make() as session:
            await session.clear_session()
            await session.add_items([user("1"), user("2")])
            await session.clear_session()
            await session.clear_session()
            assert await session.get_items() == []
            await session.add_items([user("3")])
            assert texts(await session.get_items()) == ["3"]

    asyncio.run(main())


def test_limits(make):
    async def main():
        async with make(session_settings=SessionSettings(limit=2)) as session:
            await session.add_items([user(str(number)) for number in range(5)])
            assert texts(await session.get_items()) == ["3", "4"]
            assert texts(await session.get_items(limit=3)) == ["2", "3", "4"]
            assert texts(await session.get_items(limit=99)) == ["0", "1", "2", "3", "4"]
            assert await session.get_items(limit=0) == []
            with pytest.raises(ValueError, match="None stands for all items"):
                await session.get_items(limit=-1)
        async with make(session_settings={"limit": 1}) as session:
            assert texts(await session.get_items()) == ["4"]
            session.session_settings = {"limit": 2}  # the SDK's own take it here, too
            assert texts(await session.get_items()) == ["3", "4"]
        async with make() as session:
            assert len(await session.get_items()) == 5

    asyncio.run(main())


def test_settings_that_there_are_not_are_refused(make):
    """A misspelled ``limit`` in a dict was ignored, and all of the history went to the model; the
    SDK's own sessions refuse it."""
    with pytest.raises(TypeError, match="Unknown session settings: limitt; there are: limit"):
        make(session_settings={"limitt": 1})


def test_looking_makes_nothing(make):
    async def main():
        async with make() as session:
            await session.get_items()
            await session.pop_item()
            await session.clear_session()
            await session.add_items([])
            assert not (await session.agent()).exists

    asyncio.run(main())


def test_what_is_handed_out_and_taken_in_stays_the_callers(make):
    """The SDK changes items that it has read or written, and uses one object in several places."""

    async def main():
        async with make() as session:
            part = {"type": "input_text", "text": "hi"}
            item: Any = {"role": "user", "content": [part, part]}
            await session.add_items([item, item])
            part["text"] = "changed"
            (await session.get_items())[0]["content"][0]["text"] = "changed"
            popped = await session.pop_item()
            assert popped["content"][1]["text"] == "hi"
            popped["content"].clear()
            assert (await session.get_items())[0]["content"] == [
                {"type": "input_text", "text": "hi"}
            ] * 2

    asyncio.run(main())


def test_what_tasks_add_at_once_is_all_there_in_whole_batches(make):
    async def main():
        async with make() as one, make() as two:
            await asyncio.gather(
                *(
                    session.add_items([user(f"{number}-a"), user(f"{number}-b")])
                    for number in range(15)
                    for session in (one, two)
                )
            )
            found = texts(await one.get_items())
            assert len(found) == 60
            assert all(
                a.removesuffix("a") == b.removesuffix("b")
                for a, b in zip(found[::2], found[1::2], strict=True)
            )

    asyncio.run(main())


def test_tasks_of_one_session_add_in_their_order(make):
    async def main():
        async with make() as session:
            await asyncio.gather(*(session.add_items([user(str(n))]) for n in range(20)))
            assert texts(await session.get_items()) == [str(n) for n in range(20)]

    asyncio.run(main())


def test_no_item_is_popped_twice(make):
    async def main():
        async with make() as one, make() as two:
            await one.add_items([user(str(number)) for number in range(20)])
            popped = await asyncio.gather(*(s.pop_item() for s in (one, two) for _ in range(12)))
            found = [item["content"] for item in popped if item is not None]
            assert sorted(found, key=int) == [str(number) for number in range(20)]

    asyncio.run(main())


# With the SDK's Runner


def test_a_conversation_goes_on_in_a_later_run(make):
    model = Scripted([says("Paris")], [says("French")])
    agent = Agent("geographer", model=model)

    async def main():
        async with make() as session:
            await Runner.run(agent, "Capital of France?", session=session, run_config=QUIET)
        async with make() as session:
            result = await Runner.run(agent, "Its language?", session=session, run_config=QUIET)
            assert result.final_output == "French"
            assert len(await session.get_items()) == 4
        heard = model.heard[1]
        assert [heard[0]["content"], heard[1]["role"], heard[2]["content"]] == [
            "Capital of France?",
            "assistant",
            "Its language?",
        ]

    asyncio.run(main())


def test_tools_and_reasoning_are_kept(make):
    @function_tool
    def look_up(order: int) -> str:
        return f"order {order} is late"

    model = Scripted([thinks("hm"), calls("look_up", order=7)], [says("It is late")])
    agent = Agent("support", model=model, tools=[look_up])

    async def main():
        async with make() as session:
            await Runner.run(agent, "Order 7?", session=session, run_config=QUIET)
            kinds = [item.get("type", item.get("role")) for item in await session.get_items()]
            expected = ["user", "reasoning", "function_call", "function_call_output", "message"]
            assert kinds == expected
            last = (await (await session.agent()).commit("main")).cause.what
            assert last.startswith("add ")

    asyncio.run(main())


def test_run_sync_and_the_limit_of_a_run(make):
    model = Scripted([says("1")], [says("2")])
    agent = Agent("counter", model=model)
    session = make()
    few = RunConfig(tracing_disabled=True, session_settings=SessionSettings(limit=1))
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)  # `run_sync` would make one and leave it open
    try:
        Runner.run_sync(agent, "one", session=session, run_config=QUIET)
        Runner.run_sync(agent, "two", session=session, run_config=few)
        assert len(model.heard[1]) == 2
        loop.run_until_complete(session.close())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


@pytest.mark.parametrize("streamed", [False, True])
def test_lists_of_input_and_callbacks_on_the_history(make, streamed):
    """What a callback repeats of the history is for the model, and is not added again."""
    model = Scripted([says("1")], [says("2")], [says("3")])
    agent = Agent("counter", model=model)

    def first_again(history: list[Any], new: list[Any]) -> list[Any]:
        return [*history, history[0], *new]

    repeating = RunConfig(tracing_disabled=True, session_input_callback=first_again)

    async def ask(session: Any, text: str) -> None:
        given: Any = [user(text)]
        if not streamed:
            await Runner.run(agent, given, session=session, run_config=repeating)
            return
        result = Runner.run_streamed(agent, given, session=session, run_config=repeating)
        async for _ in result.stream_events():
            pass

    async def main():
        async with make() as session:
            await session.add_items([user("0")])
            for number in range(1, 4):
                await ask(session, f"question {number}")
            kept = [item for item in await session.get_items() if item.get("role") == "user"]
            assert texts(kept) == ["0", "question 1", "question 2", "question 3"]
            assert len(await session.get_items()) == 7
        assert [item.get("content") for item in model.heard[0]] == ["0", "0", "question 1"]

    asyncio.run(main())


def test_a_stream_ends_with_the_error_of_a_session_that_cannot_be_written(make):
    agent = Agent("talker", model=Scripted([says("never heard")]))

    async def main():
        session = make()
        await session.close()
        result = Runner.run_streamed(agent, "hello", session=session, run_config=QUIET)
        with pytest.raises(perdure.StoreUnavailable, match="closed"):
            async for _ in result.stream_events():
                pass

    asyncio.run(main())


def test_a_run_that_fails_leaves_what_was_said(make):
    agent = Agent("silent", model=Scripted())

    async def main():
        async with make() as session:
            await session.add_items([user("before")])
            with pytest.raises(IndexError):
                await Runner.run(agent, "hello", session=session, run_config=QUIET)
            assert texts(await session.get_items())[0] == "before"

    asyncio.run(main())
