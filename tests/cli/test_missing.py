"""Commits that are missing from a log: commands that read it say so, as `verify` does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import perdure
from tests.cli.operator import Operator, fill

RUN = "ticket-42/support/main"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("missing") / "agents.db"
    fill(path)
    return path


@pytest.fixture
def operator(filled: Path, tmp_path: Path) -> Operator:
    return Operator(Path(shutil.copy(filled, tmp_path / "agents.db")))


def lose(operator: Operator, first: int, last: int) -> None:
    with perdure.open(operator.path) as store:
        backend: Any = store._context.backend
        no = backend.agent("ticket-42").no
        with backend._transaction() as db:
            bounds = no << 36 | first, no << 36 | last
            db.execute("DELETE FROM commits WHERE id BETWEEN ? AND ?", bounds)


def told(operator: Operator, *words: str) -> tuple[str, str]:
    """What a command shows, and says of the damage, for which there is an exit code."""
    result = operator.type(*words)
    assert result.exit_code == 5, result.output
    return result.stdout, result.stderr


@pytest.mark.parametrize(("first", "last"), [(1, 1), (1, 4), (3, 3), (5, 12)])
def test_a_log_says_what_is_missing(operator: Operator, first: int, last: int) -> None:
    """A log whose beginning, or middle, was gone was shown as if it had never had more, and the
    exit code was 0."""
    lose(operator, first, last)
    words = f"commits {first}–{last} are missing" if last > first else "it is missing"
    for more in ([], ["--all"], ["--oldest-first"], ["-n", "0"]):
        shown, said = told(operator, "log", "ticket-42", *more)
        assert words in " ".join(shown.split()), shown
        assert f"agent 'ticket-42', commit {last}: is" in said and "verify" in said
    shown, _ = told(operator, "log", "ticket-42", "--all", "--json")
    seqs = [commit["seq"] for commit in json.loads(shown)]
    assert seqs == sorted({*range(1, 19)} - {*range(first, last)}, reverse=True)
    with perdure.open(operator.path) as store:
        agent = store.agent("ticket-42")
        lost = [one for one in agent.log(damaged_too=True, all_branches=True) if one.damaged]
        assert [one.seq for one in lost] == [last] and not lost[0].foldable
        with pytest.raises(perdure.Corrupt):
            list(agent.log(all_branches=True))


def test_a_log_that_is_read_in_part_says_it_of_that_part(operator: Operator) -> None:
    lose(operator, 1, 4)
    assert "and there are more" in operator.see("log", "ticket-42", "-n", "3")


def test_effects_of_a_log_without_its_beginning(operator: Operator) -> None:
    """What it did before is in no list: that was not said."""
    lose(operator, 1, 4)
    shown, said = told(operator, "effects", "ticket-42")
    assert "refund#1" in shown and "commit 1" in said
    told(operator, "effects", "ticket-42", "--json")


@pytest.mark.parametrize("lost", [(5, 8), (11, 13)])
def test_a_finished_run_whose_record_is_gone(operator: Operator, lost: tuple[int, int]) -> None:
    """`why` said that it is done, by its row, and `run show` that nothing was recorded of it yet,
    where what would prove it was gone."""
    assert "it is done" in operator.see("why", RUN)
    lose(operator, *lost)
    said = operator.see("why", RUN)
    assert "as its row says, and its record cannot be read" in " ".join(said.split())
    assert "verify" in said
    shown, said = told(operator, "run", "show", RUN)
    assert "yet" not in shown and "'ticket-42', commit" in said
    assert "commit" in operator.json("run", "show", RUN)["damaged"]
