"""`Store.runs` beside a long queue of runs that nobody has begun."""

from __future__ import annotations

from typing import Any

import pytest

import perdure
from perdure.model import RunInfo
from perdure.store import Store
from tests.engine.waits import go


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


@perdure.agent(dict)
def top(run: perdure.Run[dict[str, Any]]) -> None:
    for number in range(3):
        run.start(ending, f"of {run.agent} {number}")
    run.wait_for("the end")


def test_the_children_of_a_run_are_listed_begun_or_not(store: Store) -> None:
    """Who looked for the children of a run read all runs, and had to sort out the parents."""
    for agent in ("a", "b"):
        store.start(ending, f"beside {agent}")
        go(store, top, agent)
    first, *others = store.runs(parent="a/top/main")
    assert [run.status for run in (first, *others)] == ["pending"] * 3
    store.options(key=first.key).run(ending, first.agent)
    for newest_first in (False, True):
        every = [run.id for run in store.runs(newest_first=newest_first)]
        for limit in (1, 2, None):
            some = store.runs(parent="a/top/main", limit=limit, newest_first=newest_first)
            wanted = [one for one in every if one in {first.id, *(run.id for run in others)}]
            assert [run.id for run in some] == wanted[:limit]
    assert [run.id for run in store.runs(parent="a/top/main", status=["done"])] == [first.id]
    assert [run.agent for run in store.runs(parent="", function="ending")] == [
        "beside a",
        "beside b",
    ]
    assert [run.agent for run in store.runs(parent="", function="top", limit=1)] == ["a"]
    assert store.runs(parent="nobody's") == store.runs(parent="é\n%2F") == []


def test_a_parent_is_a_runs_id(store: Store) -> None:
    for wrong in (7, b"a/top/main", ["a/top/main"], perdure.MISSING):
        with pytest.raises(TypeError, match="parent="):
            store.runs(parent=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="parent="):
        store.runs(parent="\ud800")
