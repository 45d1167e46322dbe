"""Frameworks make the JSON schemas that models see out of signatures, annotations and docstrings:
those of a decorated function must be those of the function that it decorates."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.frameworks.conftest import Make
from tests.frameworks.conversation import ToolCall, in_place
from tests.frameworks.tools import Desk, order_plain, order_step, order_tool


@pytest.fixture(
    params=[order_tool, order_step, in_place(order_tool)], ids=["tool", "step", "async"]
)
def decorated(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_parameters_are_those_of_the_function(make: Make, decorated: Any) -> None:
    framework = make([])
    wanted = framework.parameters(order_plain)
    assert set(wanted["properties"]) == {"items", "reason", "note"}
    assert wanted["properties"]["reason"]["enum"] == ["broken", "late"]
    assert framework.parameters(decorated) == wanted


def test_the_docstring_is_that_of_the_function(make: Make, decorated: Any) -> None:
    framework = make([])
    assert "Order things again." in framework.description(order_plain)
    assert framework.description(decorated) == framework.description(order_plain)


def test_arguments_arrive_as_what_they_are_declared(make: Make) -> None:
    """A model sends JSON; the function gets its own types, outside of runs too."""
    args = {"items": [{"sku": "a", "count": 2}, {"sku": "b"}], "reason": "late", "note": None}
    framework = make([[ToolCall("order_plain", args)]])
    answer = framework.answer([in_place(order_tool)])
    assert "number" in answer and "300" in answer, answer


def test_outside_of_runs_they_are_just_functions(make: Make) -> None:
    """Handed over as they are; each framework calls them on threads of its own."""
    desk = Desk()
    refund = ToolCall("refund", {"order": "7", "cents": 5})
    framework = make([[ToolCall("look_up", {"order": "7"})], [refund]])
    assert framework.answer([desk.look_up, desk.refund]) == "done: 500, receipt 1 for 7"
    assert (desk.looked, desk.refunded) == (["7"], [("7", 5)])


@pytest.mark.parametrize("streamed", [False, True])
def test_outside_of_runs_they_are_just_functions_for_async_code_too(
    make: Make, streamed: bool
) -> None:
    desk = Desk()
    refund = ToolCall("refund", {"order": "7", "cents": 5})
    framework = make([[ToolCall("look_up", {"order": "7"})], [refund, refund]])
    answer = framework.answer_streamed if streamed else framework.answer_async
    said = asyncio.run(answer([desk.look_up, desk.refund]))
    assert said.startswith("done: 500, receipt ")
    assert (desk.looked, len(desk.refunded), framework.asked) == (["7"], 2, 3)
