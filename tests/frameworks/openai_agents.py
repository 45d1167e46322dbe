"""OpenAI Agents, with a model of its `Model` interface. Its default tells every `Exception` of a
tool to the model."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from agents import (
    Agent,
    FunctionTool,
    Model,
    ModelResponse,
    RunConfig,
    Runner,
    Usage,
    function_tool,
)
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from tests.frameworks.conversation import Framework, Tool, ToolCall

QUIET = RunConfig(tracing_disabled=True)  # tracing would go to the network


class OpenAIAgents(Framework):
    def answer(self, tools: Sequence[Tool]) -> str:
        return str(Runner.run_sync(self._agent(tools), "go", run_config=QUIET).final_output)

    async def answer_async(self, tools: Sequence[Tool]) -> str:
        return str((await Runner.run(self._agent(tools), "go", run_config=QUIET)).final_output)

    async def answer_streamed(self, tools: Sequence[Tool]) -> str:
        streamed = Runner.run_streamed(self._agent(tools), "go", run_config=QUIET)
        async for _ in streamed.stream_events():
            pass
        return str(streamed.final_output)

    @staticmethod
    def parameters(tool: Tool) -> dict[str, Any]:
        return _function_tool(tool).params_json_schema

    @staticmethod
    def description(tool: Tool) -> str:
        return _function_tool(tool).description

    def _agent(self, tools: Sequence[Tool]) -> Agent[None]:
        handed = [_function_tool(tool) for tool in tools]
        return Agent("an agent", model=ScriptedModel(self), tools=list(handed))


def _function_tool(tool: Tool) -> FunctionTool:
    return function_tool(tool)


class ScriptedModel(Model):
    def __init__(self, framework: Framework) -> None:
        self._framework = framework

    async def get_response(
        self, system_instructions: str | None, input: Any, *args: Any, **kwargs: Any
    ) -> ModelResponse:
        told = [str(item["output"]) for item in input if _is_output(item)]
        said = self._framework.says(told)
        output: list[Any] = [_message(said)] if isinstance(said, str) else _calls(said, len(told))
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        whole = await self.get_response(*args, **kwargs)
        response = Response(
            id="response",
            created_at=0,
            model="scripted",
            object="response",
            output=whole.output,
            tool_choice="auto",
            tools=[],
            parallel_tool_calls=True,
        )
        yield ResponseCompletedEvent(
            type="response.completed", sequence_number=0, response=response
        )


def _is_output(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") == "function_call_output"


def _calls(calls: Sequence[ToolCall], before: int) -> list[ResponseFunctionToolCall]:
    return [
        ResponseFunctionToolCall(
            type="function_call",
            name=call.tool,
            arguments=json.dumps(call.args),
            call_id=f"call-{before + number}",
            id=f"id-{before + number}",
        )
        for number, call in enumerate(calls)
    ]


def _message(text: str) -> ResponseOutputMessage:
    content = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(
        id="answer", type="message", role="assistant", status="completed", content=[content]
    )
