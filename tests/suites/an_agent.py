"""One life of a LangChain agent with an answer of a schema, as a user has it; see test_suites.

``an_agent.py begin|resume|look sync|async FILE``: to be run by the environment of the suites.
"""

from __future__ import annotations

import asyncio
import enum
import sys
from typing import Any

from langchain.agents import create_agent  # type: ignore[import-not-found]
from langchain.agents.structured_output import ToolStrategy  # type: ignore[import-not-found]
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from perdure.integrations.langgraph import PerdureSaver


class Mood(enum.Enum):
    GOOD = "good"
    BAD = "bad"


class Line(BaseModel):
    name: str
    mood: Mood = Mood.GOOD


class Answer(BaseModel):
    text: str
    lines: list[Line] = []


class Model(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **more: Any) -> Any:
        return self


@tool
def pay(cents: int) -> str:
    """Pay, if somebody says so."""
    return f"paid {cents}: {interrupt(Line(name='pay?'))}"


SAID = {
    "begin": {"name": "pay", "args": {"cents": 5}, "id": "1"},
    "resume": {
        "name": "Answer",
        "id": "2",
        "args": {"text": "done", "lines": [{"name": "a", "mood": "bad"}]},
    },
    "look": {"name": "pay", "args": {}, "id": "3"},
}
GIVEN: dict[str, Any] = {
    "begin": {"messages": [HumanMessage("hello")]},
    "resume": Command(resume="yes"),
}


def agent(saver: PerdureSaver, act: str) -> Any:
    model = Model(messages=iter([AIMessage("", tool_calls=[SAID[act]])]))
    return create_agent(
        model, tools=[pay], response_format=ToolStrategy(Answer), checkpointer=saver
    )


THREAD: Any = {"configurable": {"thread_id": "bill"}}


def live(act: str, file: str) -> Any:
    with PerdureSaver.from_url(file) as saver:
        if act == "look":
            return agent(saver, act).get_state(THREAD).values
        return agent(saver, act).invoke(GIVEN[act], THREAD)


async def alive(act: str, file: str) -> Any:
    async with PerdureSaver.from_url(file) as saver:
        if act == "look":
            return (await agent(saver, act).aget_state(THREAD)).values
        return await agent(saver, act).ainvoke(GIVEN[act], THREAD)


if __name__ == "__main__":
    act, how, file = sys.argv[1:]
    found = live(act, file) if how == "sync" else asyncio.run(alive(act, file))
    print(repr(found["__interrupt__"][0].value if act == "begin" else found["structured_response"]))
