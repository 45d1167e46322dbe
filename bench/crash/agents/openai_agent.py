"""The agent under OpenAI Agents with its SQLiteSession: `FOLDER ORDER [--key call|order]`.

The SDK is the real one, the model a stand-in: it wants the card charged until the conversation
that it is shown has a receipt, so it never charges again what it can see was charged. After a
crash the customer sends the same message to the same session. With --key the company gets the id of
the model's tool call, or the order's number.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, SQLiteSession, Usage
from agents import function_tool as as_tool
from agents.tool_context import ToolContext
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from bench.crash import card

QUIET = RunConfig(tracing_disabled=True)  # tracing would go to the network
key_of = ""


def charge(context: ToolContext[None], order: str) -> str:
    """Charge the customer's card for an order."""
    keys = {"call": context.tool_call_id, "order": order}
    return card.charge(order, keys.get(key_of, ""))


class StandIn(Model):
    def __init__(self, order: str) -> None:
        self._order = order

    async def get_response(
        self, system_instructions: str | None, input: Any, *args: Any, **kwargs: Any
    ) -> ModelResponse:
        items = [item for item in input if isinstance(item, dict)]
        receipts = [
            str(item["output"]) for item in items if item.get("type") == "function_call_output"
        ]
        if receipts:
            card.moment(card.NEXT)
        output = _message(f"thank you for {receipts[-1]}") if receipts else self._call()
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def _call(self) -> ResponseFunctionToolCall:
        return ResponseFunctionToolCall(
            type="function_call",
            name="charge",
            arguments=json.dumps({"order": self._order}),
            call_id=f"call_{uuid.uuid4().hex}",
        )

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


def _message(text: str) -> ResponseOutputMessage:
    content = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(
        id="answer", type="message", role="assistant", status="completed", content=[content]
    )


async def serve(folder: str, order: str) -> str:
    session = SQLiteSession(order, Path(folder) / "sessions.db")
    shop = Agent("shop", model=StandIn(order), tools=[as_tool(charge)])
    result = await Runner.run(shop, f"I take {order}.", session=session, run_config=QUIET)
    session.close()
    return str(result.final_output)


def main(folder: str, order: str, *options: str) -> None:
    global key_of
    if options:
        key_of = options[1]
    card.report(card.FINISHED, asyncio.run(serve(folder, order)))


if __name__ == "__main__":
    main(*sys.argv[1:])
