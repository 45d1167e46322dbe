"""`Store.runs` beside a long queue of runs that nobody has begun."""

from __future__ import annotations

from typing import Any

import pytest

import perdure
from perdure.model import RunInfo
from perdure.store import Store


@perdure.agent(dict)
def ending(run: perdure.Run[dict[str, Any]]) -> None: ...


@perdure.agent(dict)
def other(run: perdure.Run[dict[str, Any]]) -> None: ...


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("agent", [None, "a", "b", "nobody"])
@pytest.mark.parametrize("function", [None, "ending", "other"])
@pytest.mark.parametrize("status", [None, ["pending"], ["done"], ["done", "pending"]])
def test_a_page_is_the_beginning_of_the_whole_list(
    store: Store, newest_first: bool, agent: str | None, function: str | None, status: Any
) -> None:
    """A page of five runs read all that was asked for of all agents, and so did the runs of one:
    beside a queue of 10,000 the answer took what those take. Now what is not wanted is not read."""
    for number in range(3):
        for name in ("a", "b"):
            store.options(key=f"done-{number}").run(ending, name)
            store.options(key=f"asked-{number}").start(other if number else ending, name)

    def wanted(run: RunInfo) -> bool:
        return (
            agent in (None, run.agent)
            and function in (None, run.function)
            and (status is None or run.status in status)
        )

    everything = store.runs(newest_first=newest_first)
    assert len(everything) == 12
    whole = [run.id for run in everything if wanted(run)]
    for limit in (1, 4, 7, 20, None):
        page = store.runs(
            agent, status=status, function=function, limit=limit, newest_first=newest_first
        )
        assert [run.id for run in page] == whole[:limit]
