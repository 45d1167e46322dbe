"""What is the same for all frameworks: what the model is to say, and what it was told."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Tool = Callable[..., Any]


@dataclass(frozen=True)
class ToolCall:
    """One call that the model asks for."""

    tool: str
    args: dict[str, Any]


Turns = Sequence[Sequence[ToolCall]]
"""What the model says, one after the other: in each turn calls, made at once; then it answers."""


@dataclass
class Framework(ABC):
    """A framework with a model that speaks from a script. What is left is an adapter each.

    Each is set up as the most forgiving one: whatever a tool raises is told to the model.

    Attributes:
        asked: how often the model was asked.
        told: all that the model was told of its calls, in the order of the calls.
    """

    turns: Turns
    asked: int = 0
    told: list[str] = field(default_factory=list)

    @abstractmethod
    def answer(self, tools: Sequence[Tool]) -> str:
        """Run the framework's agent as it is run from a plain function."""

    @abstractmethod
    async def answer_async(self, tools: Sequence[Tool]) -> str:
        """Run the framework's agent as it is run from an async function."""

    @abstractmethod
    async def answer_streamed(self, tools: Sequence[Tool]) -> str:
        """The same, with the model's words and the framework's events streamed."""

    @staticmethod
    @abstractmethod
    def parameters(tool: Tool) -> dict[str, Any]:
        """The JSON schema of the tool's parameters that the framework sends to models."""

    @staticmethod
    @abstractmethod
    def description(tool: Tool) -> str:
        """What the framework tells models of the tool."""

    def says(self, told: Sequence[str]) -> Sequence[ToolCall] | str:
        """The model's next turn; `told` is all that it was told so far.

        It follows from the conversation alone, so that a run that resumes hears the same.
        """
        self.asked += 1
        self.told = list(told)
        left = len(told)
        for turn in self.turns:
            if left <= 0:
                return turn
            left -= len(turn)
        return f"done: {', '.join(told)}"


def in_place(tool: Tool) -> Tool:
    """The tool as an async function that does not wait: it is called where the loop runs.

    Frameworks call plain functions on threads of theirs, and async ones on their loop's. A run of
    a plain function has its thread, and under ``run_sync`` and the like that is the loop's.
    """

    @functools.wraps(tool)
    async def call(*args: Any, **kwargs: Any) -> Any:
        return tool(*args, **kwargs)

    return call
