"""A model that speaks from a script, and what its conversations are made of. No network."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Usage, function_tool
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
)
from openai.types.responses.response_reasoning_item import Summary

QUIET = RunConfig(tracing_disabled=True)  # tracing would go to the network


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def texts(items: Sequence[Any]) -> list[Any]:
    return [item["content"] for item in items]


def says(text: str) -> ResponseOutputMessage:
    content = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(
        id=f"msg-{text}", type="message", role="assistant", status="completed", content=[content]
    )


def calls(tool: str, call_id: str = "call-1", **args: Any) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        type="function_call", name=tool, arguments=json.dumps(args), call_id=call_id, id="fc-1"
    )


def thinks(text: str) -> ResponseReasoningItem:
    summary = Summary(text=text, type="summary_text")
    return ResponseReasoningItem(id=f"rs-{text}", type="reasoning", summary=[summary])


class Scripted(Model):
    """Says one turn after the other.

    Attributes:
        heard: the input of each call.
    """

    def __init__(self, *turns: Sequence[Any]) -> None:
        self.turns = list(turns)
        self.heard: list[Any] = []

    async def get_response(
        self, system_instructions: str | None, input: Any, *args: Any, **kwargs: Any
    ) -> ModelResponse:
        self.heard.append(input if isinstance(input, str) else list(input))
        output = list(self.turns.pop(0))
        return ModelResponse(output=output, usage=Usage(requests=1), response_id="resp-1")

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        whole = await self.get_response(*args, **kwargs)
        said = Response(
            id="resp-1",
            created_at=0,
            model="scripted",
            object="response",
            output=whole.output,
            tool_choice="auto",
            tools=[],
            parallel_tool_calls=True,
        )
        yield ResponseCompletedEvent(type="response.completed", sequence_number=0, response=said)


refunded: list[int] = []


@function_tool(needs_approval=True)
def refund(order: int) -> str:
    """Pay an order back."""
    refunded.append(order)
    return f"refunded {order}"


def support(*turns: Sequence[Any]) -> Agent[Any]:
    """An agent whose refunds need approval."""
    return Agent("support", model=Scripted(*turns), tools=[refund])
