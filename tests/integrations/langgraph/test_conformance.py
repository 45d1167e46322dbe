"""LangGraph's official conformance suite, whole: what every checkpointer must do, and what may."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import ALL_CAPABILITIES

from tests.integrations.langgraph.conftest import Place

TESTS_MIN = 81
"""So many there were when this was written: a suite that finds nothing to test passes, too."""


def test_the_official_suite_passes_whole(place: Place) -> None:
    found: list[tuple[str, str, str | None]] = []

    @checkpointer_test(name=f"PerdureSaver at {place.url}")
    async def perdure_saver() -> AsyncIterator[object]:
        async with place.open() as saver:
            yield saver

    report = asyncio.run(validate(perdure_saver))
    for name, result in report.results.items():
        found += [(name, "failed", problem) for problem in result.failures]
    assert found == []
    assert {name for name, result in report.results.items() if result.passed} == {
        capability.value for capability in ALL_CAPABILITIES
    }
    assert sum(result.tests_passed for result in report.results.values()) >= TESTS_MIN


@pytest.mark.parametrize("capability", sorted(one.value for one in ALL_CAPABILITIES))
def test_no_capability_is_inherited_from_the_base(capability: str) -> None:
    from langgraph.checkpoint.base import BaseCheckpointSaver

    from perdure.integrations.langgraph import PerdureSaver

    for name in (capability, f"a{capability}"):
        name = {"list": "list", "alist": "alist"}.get(name, name)
        assert getattr(PerdureSaver, name) is not getattr(BaseCheckpointSaver, name)
