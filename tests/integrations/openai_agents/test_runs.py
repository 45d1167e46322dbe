"""The SDK inside a durable run: it goes on after a crash, and does nothing twice."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from agents import Agent, ModelResponse, ModelSettings, Runner, Usage, function_tool
from agents.retry import (
    ModelRetryAdvice,
    ModelRetryAdviceRequest,
    ModelRetryNormalizedError,
    ModelRetrySettings,
    retry_policies,
)
from httpx import Request
from httpx import Response as HttpResponse
from openai import RateLimitError
from openai.types.responses import EasyInputMessageParam, Response, ResponseFunctionToolCall

import perdure
from perdure.integrations.openai_agents import (
    Conversation,
    PerdureRunStates,
    PerdureSession,
    RecordedModel,
    RunSession,
)
from perdure.integrations.openai_agents.model import _as_advice, _heard, _recorded
from tests.integrations.openai_agents.speaking import QUIET, Scripted, calls, says, thinks


class CrashError(BaseException):
    """What the process would have died of."""


paid: list[int] = []
crashes: list[str] = []


@perdure.tool(on_crash="retry")
async def pay(order: int) -> str:
    """Pay an order back."""
    paid.append(order)
    if "in the tool" in crashes:
        crashes.clear()
        raise CrashError
    return f"paid {order}"


@perdure.tool(on_crash="retry")
async def tell(text: str) -> str:
    """Write to the customer."""
    if "after the tool" in crashes:
        crashes.clear()
        raise CrashError
    return f"told {text}"


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("crash", ["in the tool", "after the tool"])
def test_a_run_that_died_goes_on(tmp_path, crash, streamed):
    """The model would say something else each time: it is not asked again what it answered."""
    crashes[:] = [crash]
    paid.clear()
    model = Scripted(
        [thinks("hm"), calls("pay", "call-1", order=7)],
        [calls("tell", "call-2", text="soon")],
        [says("all done")],
    )
    seen: list[Any] = []

    @perdure.agent(Conversation)
    async def support(run: perdure.AsyncRun[Conversation], text: str) -> str:
        session = RunSession(run)
        assistant = Agent(
            "support",
            model=RecordedModel(run, model),
            tools=[function_tool(pay), function_tool(tell)],
        )
        if streamed:
            stream = Runner.run_streamed(assistant, text, session=session, run_config=QUIET)
            async for _ in stream.stream_events():
                pass
            answer = str(stream.final_output)
        else:
            result = await Runner.run(assistant, text, session=session, run_config=QUIET)
            answer = str(result.final_output)
        seen.append(await session.get_items())
        return answer

    async def main() -> str:
        async with perdure.open_async(tmp_path / "agents.db", durability="os") as store:
            return await store.run(support, "c-1", "Where is my money?")

    with pytest.raises(CrashError):
        asyncio.run(main())
    assert asyncio.run(main()) == "all done"
    assert asyncio.run(main()) == "all done"
    assert paid == ([7, 7] if crash == "in the tool" else [7])  # "retry" says it may
    assert len(model.heard) == 3
    kinds = [item.get("type", item.get("role")) for item in seen[-1]]
    assert kinds == [
        "user",
        "reasoning",
        "function_call",
        "function_call_output",
        "function_call",
        "function_call_output",
        "message",
    ]

    async def look() -> None:
        async with perdure.open_async(tmp_path / "agents.db") as store:
            agent = await store.agent("c-1", Conversation)
            assert agent.state.items == seen[-1]

    asyncio.run(look())


def test_a_conversation_of_several_runs(tmp_path):
    model = Scripted([says("Paris")], [says("French")])

    @perdure.agent(Conversation)
    async def chat(run: perdure.AsyncRun[Conversation], text: str) -> str:
        assistant = Agent("geographer", model=RecordedModel(run, model))
        session = RunSession(run, session_settings={"limit": 9})  # a dict, as the SDK takes it
        result = await Runner.run(assistant, text, session=session, run_config=QUIET)
        return str(result.final_output)

    async def main() -> None:
        async with perdure.open_async(tmp_path / "agents.db", durability="os") as store:
            for key, text, answer in (("1", "Capital?", "Paris"), ("2", "Language?", "French")):
                assert await store.options(key=key).run(chat, "c-1", text) == answer
        assert len(model.heard[1]) == 3

    asyncio.run(main())


def test_while_a_run_has_the_conversation_others_read_it_and_are_told_who_has_it():
    @perdure.agent(Conversation)
    async def chat(run: perdure.AsyncRun[Conversation]) -> str:
        await RunSession(run).add_items([{"role": "user", "content": "mine"}])
        await run.call(look)
        return "done"

    async def look() -> None:
        async with PerdureSession("c-1", "memory://told") as session:
            assert len(await session.get_items()) == 1
            with pytest.raises(perdure.Conflict):
                await session.add_items([{"role": "user", "content": "theirs"}])

    async def main() -> None:
        async with perdure.open_async("memory://told") as store:
            assert await store.run(chat, "c-1") == "done"

    asyncio.run(main())


@dataclass
class Support(Conversation):
    notes: dict[str, int] = field(default_factory=dict)


def _said(text: str) -> EasyInputMessageParam:
    return {"role": "user", "content": text}


SUPPORT: list[Any] = [
    Support,
    perdure.Schema(Support),
    perdure.Schema(Conversation, id="Support"),  # a program that has not got the class
]


@pytest.mark.parametrize("schema", SUPPORT, ids=repr)
def test_a_session_of_a_run_whose_state_is_a_subclass(tmp_path, schema):
    """No session could read or write what such a run had kept, and the error's advice, to open it
    with that type, could not be followed."""
    mine, theirs = _said("mine"), _said("theirs")

    @perdure.agent(Support)
    async def chat(run: perdure.AsyncRun[Support]) -> None:
        await RunSession(run).add_items([mine])
        async with run.edit("noted") as draft:
            draft.notes["seen"] = 1

    async def main() -> None:
        async with perdure.open_async(tmp_path / "agents.db", durability="os") as store:
            await store.run(chat, "c-1")
            session = PerdureSession("c-1", store=store, schema=schema)
            for limit in (1, None):
                assert await session.get_items(limit) == [mine]
            await session.add_items([theirs])
            branch = await session.fork("other")
            await branch.pop_item()
            assert len(await branch.get_items()) == 1
            support = await store.agent("c-1", Support)
            assert support.state.items == [mine, theirs]
            assert support.state.notes == {"seen": 1}
            await PerdureRunStates(store=store, schema=schema).clear("c-1")
        async with PerdureSession("c-1", tmp_path / "agents.db", schema=schema) as session:
            assert len(await session.get_items(5)) == 2  # the store is opened for it

    asyncio.run(main())


@pytest.mark.parametrize("schema", [dict, perdure.Schema(dict), Support(), None], ids=repr)
def test_a_session_of_no_conversation_is_refused(schema):
    for make in (
        lambda: PerdureSession("c", "memory://", schema=schema),
        lambda: PerdureRunStates("memory://", schema=schema),
    ):
        with pytest.raises(TypeError, match="schema="):
            make()


def test_popping_and_clearing_in_a_run():
    @perdure.agent(Conversation)
    async def edit(run: perdure.AsyncRun[Conversation]) -> list[Any]:
        session = RunSession(run)
        await session.add_items([{"role": "user", "content": str(n)} for n in range(4)])
        popped = [await session.pop_item()]
        changed: Any = await session.get_items()
        changed[0]["content"] = "changed"
        popped += await session.get_items(limit=2)
        await session.clear_session()
        popped.append(await session.pop_item())
        return [item and item["content"] for item in popped]  # type: ignore[typeddict-item]

    async def main() -> None:
        async with perdure.open_async("memory://") as store:
            assert await store.run(edit, "c-1") == ["3", "1", "2", None]
            assert await store.run(edit, "c-1") == ["3", "1", "2", None]

    asyncio.run(main())


def heard(*said: Any, streamed: bool = False) -> tuple[list[Any], Any]:
    """Returns the items that a run heard from a model that said these, and what came of the run."""
    model = Scripted(list(said))
    items: list[Any] = []

    @perdure.agent(Conversation)
    async def answer(run: perdure.AsyncRun[Conversation]) -> str:
        assistant = Agent("a", model=RecordedModel(run, model))
        if streamed:
            result: Any = Runner.run_streamed(assistant, "hi", run_config=QUIET)
            async for _ in result.stream_events():
                pass
        else:
            result = await Runner.run(assistant, "hi", run_config=QUIET)
        items[:] = result.raw_responses[-1].output
        return str(result.final_output)

    async def main() -> Any:
        async with perdure.open_async("memory://") as store:
            return await store.run(answer, "a")

    return items, asyncio.run(main())


def test_what_is_recorded_of_an_answer_is_all_of_it():
    said = [thinks("hm"), says("done")]
    assert heard(*said) == (said, "done")


def test_a_field_that_the_api_names_otherwise_is_heard():
    """Fields were recorded under the names of their attributes, and read under those of the API: a
    call that the model made `async` came back as one that says nothing of it."""
    said = ResponseFunctionToolCall.model_validate({**calls("pay").to_dict(), "async": True})
    response = ModelResponse(output=[said], usage=Usage(), response_id="r")
    (again,) = _heard(_recorded(response)).output
    assert again == said


MESSAGE: Any = says("hello").to_dict()
TEXT = MESSAGE["content"][0]
SCROLLED = {
    "id": "w",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "scroll"},
}
LENIENT = {
    "a message without a status": [{k: v for k, v in MESSAGE.items() if k != "status"}],
    "a text without annotations": [
        {**MESSAGE, "content": [{k: v for k, v in TEXT.items() if k != "annotations"}]}
    ],
    "a status of tomorrow": [{**MESSAGE, "status": "paused"}],
    "an annotation of tomorrow": [
        {**MESSAGE, "content": [{**TEXT, "annotations": [{"type": "shiny", "x": 1}]}]}
    ],
    "an item of tomorrow": [{"id": "n", "type": "brand_new_call", "foo": {"bar": 1}}, MESSAGE],
    "an action of tomorrow": [SCROLLED, MESSAGE],
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("wire", LENIENT.values(), ids=LENIENT)
def test_an_answer_that_the_client_takes_leniently_is_heard(wire: list[Any], streamed: bool):
    """openai's client takes an answer that lacks a field, or that has a kind of item which it does
    not know, and the SDK goes on with it. Here it was recorded, and then refused by a stricter
    look: paid for, and the run failed, each time that it was tried again."""
    said = Response.construct(output=wire).output
    items, outcome = heard(*said, streamed=streamed)
    assert outcome == "hello"
    assert items == said
    assert [item.to_dict(warnings=False) for item in items] == wire


class Busy(Scripted):
    """A model whose provider asks for a pause, once."""

    def __init__(self) -> None:
        super().__init__([says("done")])
        self.tried = 0

    async def get_response(self, *args: Any, **kwargs: Any) -> Any:
        self.tried += 1
        if self.tried == 1:
            response: Any = HttpResponse(429, request=REQUEST, headers={"retry-after": "0.001"})
            raise RateLimitError("slow down", response=response, body=None)
        return await super().get_response(*args, **kwargs)

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice:
        facts = ModelRetryNormalizedError(status_code=429)
        return ModelRetryAdvice(suggested=True, retry_after=0.001, normalized=facts)


class Silent(Busy):
    """One that leaves it to the SDK to look into the error."""

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> Any:
        return None


REQUEST = Request("POST", "https://localhost/responses")


@pytest.mark.parametrize(
    ("model", "name"),
    [(Busy(), "retry_after"), (Busy(), "provider_suggested"), (Silent(), "retry_after")],
)
def test_a_model_is_asked_again_as_it_says_itself(model: Busy, name: str) -> None:
    """Story: a rate limit that says after how long to ask again failed the run for good: the SDK
    asks the model for its advice, and a recorded one had none. Nor was the header there any more of
    a model without advice of its own."""
    settings = ModelRetrySettings(max_retries=2, policy=getattr(retry_policies, name)())

    @perdure.agent(Conversation)
    async def chat(run: perdure.AsyncRun[Conversation], text: str) -> str:
        recorded = RecordedModel(run, model)
        assistant = Agent("a", model=recorded, model_settings=ModelSettings(retry=settings))
        return str((await Runner.run(assistant, text, run_config=QUIET)).final_output)

    async def main() -> None:
        async with perdure.open_async("memory://") as store:
            assert await store.run(chat, "c", "hi") == "done"

    asyncio.run(main())
    assert model.tried == 2


def test_advice_that_a_newer_sdk_recorded_is_taken_as_far_as_it_is_known() -> None:
    """A release was taken back while runs waited to try a model again. The older SDK did not know
    one of the recorded facts: its look for advice raised TypeError, and the runs failed."""
    said = {"suggested": True, "normalized": {"status_code": 429, "a_new_fact": 1}, "why": "busy"}
    advice = _as_advice(said)
    assert advice.suggested
    assert advice.normalized is not None
    assert advice.normalized.status_code == 429
