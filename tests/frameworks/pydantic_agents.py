"""Pydantic AI, with its `FunctionModel`, and a capability that tells every `Exception` of a tool to
the model."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import (
    AgentInfo,
    DeltaToolCall,
    DeltaToolCalls,
    FunctionModel,
)
from pydantic_ai.tools import Tool as PydanticTool

from tests.frameworks.conversation import Framework, Tool, ToolCall


class Forgiving(AbstractCapability[Any]):
    async def on_tool_execute_error(self, ctx: Any, *, error: Exception, **more: Any) -> Any:
        return f"failed: {error}"


class PydanticAI(Framework):
    def answer(self, tools: Sequence[Tool]) -> str:
        return self._agent(tools).run_sync("go").output

    async def answer_async(self, tools: Sequence[Tool]) -> str:
        return (await self._agent(tools).run("go")).output

    async def answer_streamed(self, tools: Sequence[Tool]) -> str:
        async with self._agent(tools).run_stream("go") as streamed:
            return await streamed.get_output()

    @staticmethod
    def parameters(tool: Tool) -> dict[str, Any]:
        made: PydanticTool[Any] = PydanticTool(tool)
        return made.tool_def.parameters_json_schema

    @staticmethod
    def description(tool: Tool) -> str:
        made: PydanticTool[Any] = PydanticTool(tool)
        return made.tool_def.description or ""

    def _agent(self, tools: Sequence[Tool]) -> Agent[None, str]:
        model = FunctionModel(self._respond, stream_function=self._stream)
        return Agent(model, tools=list(tools), capabilities=[Forgiving()])

    async def _respond(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        said = self._says(messages)
        if isinstance(said, str):
            return ModelResponse(parts=[TextPart(said)])
        return ModelResponse(parts=[ToolCallPart(call.tool, call.args) for call in said])

    async def _stream(
        self, messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[str | DeltaToolCalls]:
        said = self._says(messages)
        if isinstance(said, str):
            yield said
        else:
            yield {
                number: DeltaToolCall(call.tool, json.dumps(call.args))
                for number, call in enumerate(said)
            }

    def _says(self, messages: list[ModelMessage]) -> Sequence[ToolCall] | str:
        parts = [part for message in messages for part in message.parts]
        told = [
            str(part.content)
            for part in parts
            if isinstance(part, ToolReturnPart | RetryPromptPart)
        ]
        return self.says(told)
