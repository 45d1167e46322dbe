"""LangGraph: a graph of a model's node and a `ToolNode` that tells every `Exception` of a tool to
the model. LangChain's own fake chat model speaks the script."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import StructuredTool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from tests.frameworks.conversation import Framework, Tool, ToolCall


class LangGraph(Framework):
    def answer(self, tools: Sequence[Tool]) -> str:
        if any(inspect.iscoroutinefunction(tool) for tool in tools):  # `invoke` refuses these
            return asyncio.run(self.answer_async(tools))
        return _last(self.graph(tools).invoke({"messages": [HumanMessage("go")]}))

    async def answer_async(self, tools: Sequence[Tool]) -> str:
        return _last(await self.graph(tools).ainvoke({"messages": [HumanMessage("go")]}))

    async def answer_streamed(self, tools: Sequence[Tool]) -> str:
        given = {"messages": [HumanMessage("go")]}
        states = [state async for state in self.graph(tools).astream(given, stream_mode="values")]
        return _last(states[-1])

    @staticmethod
    def parameters(tool: Tool) -> dict[str, Any]:
        schema: Any = _structured(tool).tool_call_schema
        parameters: dict[str, Any] = schema.model_json_schema()
        return parameters

    @staticmethod
    def description(tool: Tool) -> str:
        return _structured(tool).description

    def graph(self, tools: Sequence[Tool]) -> Any:
        model = ScriptedModel(framework=self)

        def ask_model(state: MessagesState) -> dict[str, Any]:
            return {"messages": [model.invoke(state["messages"])]}

        async def ask_model_async(state: MessagesState) -> dict[str, Any]:
            return {"messages": [await model.ainvoke(state["messages"])]}

        graph = StateGraph(MessagesState)
        graph.add_node("model", RunnableLambda(ask_model, ask_model_async))
        graph.add_node("tools", ToolNode(list(tools), handle_tool_errors=True))
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "model")
        return graph.compile()


def _structured(tool: Tool) -> StructuredTool:
    made = ToolNode([tool]).tools_by_name
    (only,) = made.values()
    assert isinstance(only, StructuredTool)
    return only


def _last(state: dict[str, Any]) -> str:
    return str(state["messages"][-1].content)


class ScriptedModel(BaseChatModel):
    framework: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        told = [str(message.content) for message in messages if message.type == "tool"]
        said = self.framework.says(told)
        message = AIMessage(said) if isinstance(said, str) else _calls(said, len(told))
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _agenerate(self, messages: list[BaseMessage], *args: Any, **more: Any) -> ChatResult:
        return self._generate(messages)  # the inherited one calls it on a thread


def _calls(calls: Sequence[ToolCall], before: int) -> AIMessage:
    made = [
        {"name": call.tool, "args": call.args, "id": f"call-{before + number}"}
        for number, call in enumerate(calls)
    ]
    return AIMessage("", tool_calls=made)
