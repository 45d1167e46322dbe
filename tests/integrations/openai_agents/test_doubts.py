"""Tool calls that took effect, or may have, and left with an error: the SDK tells the model that
the tool failed, and to try again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import Agent, Runner, function_tool

import perdure
from perdure.integrations.openai_agents import Conversation, RecordedModel, RunSession
from tests.integrations.openai_agents.speaking import QUIET, Scripted, calls, says


class CrashError(BaseException):
    """What the process would have died of."""


class Receipt:
    """As libraries of payments return: an object of theirs."""


paid: list[int] = []
crashes: list[str] = []


@perdure.tool(on_crash="fail")
async def pay(order: int) -> str:
    """Pay an order back."""
    paid.append(order)
    if "in the tool" in crashes:
        crashes.clear()
        raise CrashError
    return f"paid {order}"


@perdure.tool
async def pay_for_receipt(order: int) -> Any:
    """Pay an order back."""
    paid.append(order)
    return Receipt()


@perdure.step
async def noted(text: str) -> str:
    if "behind the tool" in crashes:
        crashes.clear()
        raise CrashError
    return text


def tells(context: Any, error: Exception) -> str:
    return f"a person looks after it: {type(error).__name__}"


def answered(
    path: Any, model: Scripted, tool: Any, *, streamed: bool = False, knows: bool = False
) -> str:
    """Returns the answer of a run, or raises what it ended with."""

    @perdure.agent(Conversation)
    async def support(run: perdure.AsyncRun[Conversation], text: str) -> str:
        class Noting(RunSession):
            async def add_items(self, items: list[Any]) -> None:
                await super().add_items(items)
                if any(item.get("type") == "function_call_output" for item in items):
                    await noted("the model comes next")

        recorded = RecordedModel(run, model, knows_doubt=knows)
        assistant = Agent("support", model=recorded, tools=[tool])
        given: Any = {"session": Noting(run), "run_config": QUIET}
        if not streamed:
            return str((await Runner.run(assistant, text, **given)).final_output)
        stream = Runner.run_streamed(assistant, text, **given)
        async for _ in stream.stream_events():
            pass
        return str(stream.final_output)

    async def main() -> str:
        async with perdure.open_async(path / "agents.db", durability="os") as store:
            return await store.run(support, "c-1", "Where is my money?")

    return asyncio.run(main())


@pytest.fixture(autouse=True)
def nothing_paid() -> None:
    paid.clear()
    crashes.clear()


def paying(tool: str) -> Scripted:
    """A model that does what it is told: it tries again what failed."""
    return Scripted(*([calls(tool, f"call-{n}", order=7)] for n in range(3)), [says("done")])


@pytest.mark.parametrize("streamed", [False, True])
def test_a_call_in_doubt_is_not_made_again_by_a_model_that_is_told_to_try_again(tmp_path, streamed):
    """A process was killed while it paid, with a tool that is called at most once. The SDK took
    InDoubt for a failure of the tool, and told the model to try again: it was paid twice, and the
    run was done."""
    model = paying("pay")
    crashes.append("in the tool")
    with pytest.raises(CrashError):
        answered(tmp_path, model, function_tool(pay), streamed=streamed)
    for _ in range(2):
        with pytest.raises(perdure.InDoubt):
            answered(tmp_path, model, function_tool(pay), streamed=streamed)
    assert paid == [7]
    assert len(model.heard) == 1


@pytest.mark.parametrize("crash", [False, True])
def test_a_payment_without_a_storable_result_is_not_made_again(tmp_path, crash):
    """A tool returned an object that cannot be stored. The SDK told the model to try again, and it
    was paid as often as the SDK has turns."""
    model = paying("pay_for_receipt")
    if crash:
        crashes.append("behind the tool")
        with pytest.raises(CrashError):
            answered(tmp_path, model, function_tool(pay_for_receipt))
    for _ in range(2):
        with pytest.raises(perdure.CallFailed, match="took effect"):
            answered(tmp_path, model, function_tool(pay_for_receipt))
    assert paid == [7]
    assert len(model.heard) == 1


def test_a_model_that_is_told_of_a_doubt_is_asked_on(tmp_path):
    model = Scripted([calls("pay", "call-1", order=7)], [says("a person will call you")])
    tool = function_tool(pay, failure_error_function=tells)
    crashes.append("in the tool")
    with pytest.raises(CrashError):
        answered(tmp_path, model, tool, knows=True)
    for _ in range(2):
        assert answered(tmp_path, model, tool, knows=True) == "a person will call you"
    assert paid == [7]
    assert "looks after it: InDoubt" in str(model.heard[1])


def test_a_tool_that_failed_is_tried_again(tmp_path):
    """An error that a tool raised is an outcome: it had no effect."""

    @perdure.tool
    async def refuses(order: int) -> str:
        """Pay an order back."""
        raise ValueError("there is no such order")

    model = Scripted([calls("refuses", "call-1", order=7)], [says("there is none")])
    assert answered(tmp_path, model, function_tool(refuses)) == "there is none"
    assert "try again" in str(model.heard[1])
