"""A toolkit for OpenAI Agents on a page: its calls are not silently repeated after a crash.

    python examples/toolkit.py      # kill it while it pays, and start it again

It goes on where it was. What the model said is recorded, so it is not asked again; the order is
not looked up again; and the bank is asked whether the payment in doubt was made. The bank is a
folder and the model a stand-in, so it runs anywhere; for a real one give `RecordedModel` its name.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

import perdure
from perdure.integrations.openai_agents import Conversation, RecordedModel, RunSession

BANK = Path("bank")


@perdure.step
def look_up(order: int) -> int:
    """What an order cost, in cents."""
    print("looking up", order)
    return 600 * order


def find_refund(order: int, cents: int) -> object:
    """Asks the bank whether the refund in doubt was made."""
    receipt = BANK / perdure.idempotency_key()
    return f"refunded order {order}" if receipt.exists() else perdure.NOT_DONE


@perdure.tool(on_crash="probe", probe=find_refund)
def refund(order: int, cents: int) -> str:
    """Pay an order back."""
    print("refunding", order)
    BANK.mkdir(0o700, exist_ok=True)
    (BANK / perdure.idempotency_key()).write_text(str(cents))
    time.sleep(3)  # here is a good moment to kill it
    return f"refunded order {order}"


TOOLKIT = [function_tool(look_up), function_tool(refund)]


class StandIn(Model):
    """Looks up, refunds, answers."""

    async def get_response(
        self, system_instructions: str | None, input: Any, *args: Any, **kwargs: Any
    ) -> ModelResponse:
        said = [item.get("type") for item in input].count("function_call_output")
        print("the model is asked, after", said, "calls")
        turns = [("look_up", {"order": 7}), ("refund", {"order": 7, "cents": 4200})]
        output = _call(*turns[said], said) if said < len(turns) else _answer("Your money is back.")
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


def _call(tool: str, arguments: dict[str, int], number: int) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        type="function_call", name=tool, arguments=json.dumps(arguments), call_id=f"call-{number}"
    )


def _answer(text: str) -> ResponseOutputMessage:
    content = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(
        id="answer", type="message", role="assistant", status="completed", content=[content]
    )


@perdure.agent(Conversation)
async def support(run: perdure.AsyncRun[Conversation], text: str) -> str:
    assistant = Agent("support", tools=list(TOOLKIT), model=RecordedModel(run, StandIn()))
    quiet = RunConfig(tracing_disabled=True)
    result = await Runner.run(assistant, text, session=RunSession(run), run_config=quiet)
    return str(result.final_output)


async def main() -> None:
    async with perdure.open_async("toolkit.db") as store:
        message = store.options(key="message-1")  # each message is a run of its own
        print(await message.run(support, "conversation-1", "Where is my money? It is order 7."))


if __name__ == "__main__":
    asyncio.run(main())
