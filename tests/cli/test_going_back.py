"""Runs that are set back from the shell, and calls that were made before."""

from __future__ import annotations

from typing import Any

import pytest

import perdure
from perdure import NeedsAttention
from tests.cli.operator import Operator

broken = True


@perdure.step
def look() -> int:
    return 1


@perdure.tool(on_crash="retry")
def pay(cents: int) -> int:
    return cents


@perdure.agent(dict)
def buying(run: perdure.Run[dict]) -> int:
    look()
    paid = pay(5)
    if broken:
        raise ValueError("a bug")
    return paid


@perdure.agent(dict)
def idle(run: perdure.Run[dict]) -> None:
    raise ValueError("it has no steps")


@pytest.fixture(autouse=True)
def is_broken() -> Any:
    global broken
    broken = True
    yield
    broken = True


def mend() -> None:
    global broken
    broken = False


def fail(operator: Operator, function: Any, agent: str) -> None:
    with perdure.open(operator.path) as store, pytest.raises(ValueError, match=r"bug|steps"):
        store.run(function, agent)


def test_all_that_failed_are_set_back_at_once(operator: Operator) -> None:
    """A bad deploy fails many runs: there was no way to set them back but one by one."""
    agents = [f"buyer-{number}" for number in range(3)]
    for agent in agents:
        fail(operator, buying, agent)
    fail(operator, idle, "idler")
    words = ["retry", "--from", "pay#1", "--effects", "reuse", "--all", "--function", "buying"]
    assert operator.refused(*words)[0] == 2, "nobody agreed"
    done = operator.json(*words, "--yes")
    assert sorted(one["run"] for one in done) == [f"{agent}/buying/main" for agent in agents]
    assert {one["status"] for one in done} == {"pending"}
    mend()
    with perdure.open(operator.path) as store:
        assert [store.run(buying, agent) for agent in agents] == [5, 5, 5]
        assert store.handle("idler/idle/main").status == "failed"
    assert operator.refused("retry", "--from", "pay#1")[0] == 2, "neither runs nor --all"


@pytest.mark.parametrize(
    "words", [("cancel",), ("resume",), ("retry", "--from", "pay#1")], ids=lambda words: words[0]
)
def test_named_runs_and_filters_do_not_go_together(
    operator: Operator, words: tuple[str, ...]
) -> None:
    """Story: `perdure cancel RUN --older 7d` ended a run that had just begun: beside a name,
    filters were ignored."""
    fail(operator, buying, "buyer")
    for more in (["--older", "7d"], ["--status", "waiting"], ["--function", "buying"], ["--all"]):
        code, said = operator.refused(*words, "buyer", *more)
        assert code == 2 and "either RUN, or --all" in said


def test_a_call_made_before_is_told_as_that(operator: Operator) -> None:
    """`perdure runs` said of a call that waits for a decision that its process had ended, and that
    running it again would repeat it with the same key: neither was so."""
    fail(operator, buying, "buyer")
    operator.see("retry", "buyer", "--from", "look#1")
    mend()
    with perdure.open(operator.path) as store, pytest.raises(NeedsAttention):
        store.run(buying, "buyer")
    shown = operator.see("runs", "buyer")
    assert "was made before, at commit" in shown
    assert "same idempotency key" not in shown
    assert "its process ended" not in shown
    assert "make it again" in shown
    assert "pay#1 is not to be made again" in operator.see("why", "buyer")
    effects = operator.json("effects", "buyer")
    assert effects[-1]["state"] == "made before"
    operator.see("settle", "buyer", "pay#1", "--done", "7")
    with perdure.open(operator.path) as store:
        assert store.run(buying, "buyer") == 7
