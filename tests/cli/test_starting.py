"""`perdure start`: a run is requested from a shell, for a worker to begin."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import perdure
from perdure.testing import run_until_waiting
from tests.cli.operator import Operator

JOBS = """
from typing import Literal
from pydantic import BaseModel
import perdure

class Ticket(BaseModel):
    customer: str

@perdure.agent(dict)
def adding(run, a: int, b: int = 1) -> int:
    return a + b

@perdure.agent(dict)
async def saying(run, text: str, loud: bool = False) -> str:
    return text

@perdure.agent(dict)
def patient(run) -> str:
    return run.wait_for("go")

@perdure.agent(Ticket)
def handling(run) -> str:
    return run.state.customer
"""


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "jobs"
    folder.mkdir()
    (folder / "started_jobs.py").write_text(JOBS)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.delitem(sys.modules, "started_jobs", raising=False)
    return "started_jobs"


def test_a_run_is_requested_and_says_who_will_begin_it(operator: Operator, jobs: str) -> None:
    said = operator.json("start", f"{jobs}:adding", "sum-1", "2", "--arg", "b=3")
    assert (said["run"], said["status"]) == ("sum-1/adding/main", "pending")
    assert "no living worker serves function 'adding'" in said["why"]["why"]
    assert "perdure worker" in operator.see("start", f"{jobs}:adding", "sum-1", "2", "--arg", "b=3")
    code, words = operator.refused("start", f"{jobs}:adding", "sum-1", "4")
    assert code == 4 and "other arguments" in words
    operator.see("start", f"{jobs}:adding", "sum-1", "4", "--key", "next", "-q", "sums")
    with perdure.open(operator.path) as store:
        assert [run.queue for run in store.runs("sum-1")] == ["default", "sums"]
        import started_jobs  # type: ignore[import-not-found]

        assert store.run(started_jobs.adding, "sum-1", 2, b=3) == 5


def test_text_is_taken_as_it_is_where_text_is_wanted(operator: Operator, jobs: str) -> None:
    """A title in quotes lost them."""
    words = ("start", f"{jobs}:saying", "s")
    for number, text in enumerate(("42", "plain words", '"in quotes"', "true", "{not json")):
        operator.see(*words, text, "--key", f"{number}", "--arg", "loud=true")
    with perdure.open(operator.path) as store:
        found = [
            message.value["input"][0][0]
            for message in store.runner.context.backend.inbox(agent="s")
        ]
    assert found == ["42", "plain words", '"in quotes"', "true", "{not json"]


def test_how_long_it_may_take_is_said_and_shown(operator: Operator, jobs: str) -> None:
    """Nobody could see why a run would end, before it had."""
    limits = ("--deadline", "2d", "--time-limit", "90min")
    said = operator.json("start", f"{jobs}:patient", "p", *limits)["why"]
    assert "; it has 1 h 30 min left of its time limit of 1 h 30 min" in said["why"]
    assert said["time_limit_s"] == said["time_left_s"] == 5400 and said["deadline"] is None
    with perdure.open(operator.path) as store:
        import started_jobs

        run_until_waiting(store, started_jobs.patient, "p")
    said = operator.json("why", "p")
    assert "; its deadline is 20" in said["why"] and "in 1 d 23 h" in said["why"]
    assert "it has 1 h 29 min left of its time limit of 1 h 30 min" in said["why"]
    assert "timer" not in said["why"] and 5300 < said["time_left_s"] < 5400
    shown = operator.see("run", "show", "p")
    assert "time limit  1 h " in shown and " left of 1 h 30 min" in shown
    assert "deadline    20" in shown
    assert operator.json("run", "show", "p")["why"]["time_limit_s"] == 5400


def test_an_agent_that_needs_values_is_given_them(operator: Operator, jobs: str) -> None:
    words = operator.refused("start", f"{jobs}:handling", "new")[1]
    assert "cannot be made without values" in words and "--initial JSON" in words
    assert "customer" in words and "store.options" not in words
    operator.see("start", f"{jobs}:handling", "new", "--initial", '{"customer": "c-7"}')
    with perdure.open(operator.path) as store:
        import started_jobs

        assert store.run(started_jobs.handling, "new") == "c-7"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("started_jobs", "a"), "say which"),
        (("started_jobs:nothing", "a"), "has no 'nothing'"),
        (("started_jobs:Ticket", "a"), "not an agent function"),
        (("nowhere:f", "a"), "no module"),
        (("started_jobs:adding", "a"), "missing a required argument"),
        (("started_jobs:adding", "a", "two"), "is not an integer|`int`"),
        (("started_jobs:adding", "a", "{"), "is not JSON"),
        (("started_jobs:adding", "a", "1", "--arg", "b"), "NAME=VALUE"),
        (("started_jobs:adding", "a", "1", "--arg", "c=1"), "unexpected keyword"),
        (("started_jobs:adding", "a", "1", "--key", ""), "a run's key must have"),
        (("started_jobs:adding", "a", "1", "--queue", ""), "a queue must have"),
        (("started_jobs:adding", "", "1"), "an agent must have"),
        (("started_jobs:adding", "a", "1", "--deadline", "soon"), "a length of time"),
        (("started_jobs:adding", "a", "1", "--deadline", "0s"), "deadline"),
        (("started_jobs:adding", "a", "1", "--time-limit", "soon"), "a length of time"),
        (("started_jobs:adding", "a", "1", "--time-limit", "0s"), "time_limit"),
    ],
    ids=str,
)
def test_what_is_mistyped_requests_nothing(
    operator: Operator, jobs: str, words: tuple[str, ...], problem: str
) -> None:
    said = operator.refused("start", *words)[1]
    assert any(one in said for one in problem.split("|")), said
    with perdure.open(operator.path) as store:
        assert store.runs(status=["pending"]) == []
