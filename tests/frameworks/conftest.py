"""One store, and each framework in turn. Nothing here may reach the network."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

os.environ["LANGSMITH_TRACING"] = "false"  # read once, at import

import perdure
from perdure.store import Store
from tests.frameworks.conversation import Framework, Turns
from tests.frameworks.langgraph_graphs import LangGraph
from tests.frameworks.openai_agents import OpenAIAgents
from tests.frameworks.pydantic_agents import PydanticAI

Make = Callable[[Turns], Framework]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with perdure.open(tmp_path / "runs.db", durability="os") as store:
        yield store


@pytest.fixture(autouse=True)
def loop() -> Iterator[None]:
    """A loop for each test: `Runner.run_sync` leaves the thread's loop open and half shut down,
    and the next framework would go on with it."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


@pytest.fixture(params=[OpenAIAgents, LangGraph, PydanticAI])
def make(request: pytest.FixtureRequest) -> Make:
    """Makes the framework, with what its model is to say."""
    made: Make = request.param
    return made
