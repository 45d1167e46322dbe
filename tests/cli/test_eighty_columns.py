"""Eighty columns, and pipes: names stand in one piece, and nothing is cut where nobody looks."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.testing import run_until_waiting
from tests.cli.operator import Operator
from tests.cli.test_process import terminal

LONG = "ticket-77-of-a-customer-with-a-rather-long-name"
POINT = "before the filters of hall B were changed by the night shift"
ASIDE = "what-if-we-change-all-of-them-at-once"
WORDS = "the night shift noted that machine 7 in hall B needs a new filter, soon"
QUESTION = "Refund this invoice of 42.00 EUR, although it is older than ninety days?"
RUN = f"{LONG}/asking/main"
CHILD = f"{LONG}-child/leaf/leaf-"


@perdure.tool(on_crash="fail")
def look_up(customer: str, more: str) -> dict[str, str]:
    return {"invoice": "i-7" * 40}


@perdure.agent(dict)
def leaf(run: perdure.Run[dict[str, Any]]) -> str:
    return "found " * 30


@perdure.agent(dict)
def asking(run: perdure.Run[dict[str, Any]]) -> bool:
    look_up("c-7" * 50, "more" * 50)
    run.start(leaf, f"{LONG}-child")
    return bool(run.ask(QUESTION))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("long") / "long.db"
    with perdure.open(path, durability="os") as store:
        agent = store.agent(LONG)
        for number in range(3):
            with agent.edit(f"{WORDS}, {number}") as draft:
                draft[f"machine {number}"] = WORDS * 2
        agent.checkpoint(POINT)
        agent.fork(ASIDE, at=2)
        run_until_waiting(store, asking, LONG)
        store.handle(RUN).signal("hello", {"words": WORDS * 3}, by="eve")
        child = store.runs(parent=RUN)[0]
        store.options(key=child.key).run(leaf, child.agent)
    return path


@pytest.fixture
def operator(made: Path, tmp_path: Path) -> Operator:
    shutil.copy(made, tmp_path / "long.db")
    return Operator(tmp_path / "long.db")


TABLES: dict[str, list[str]] = {
    "ls": [LONG],
    "runs": [RUN],
    f"show {LONG}": [ASIDE, POINT, RUN],
    f"branches {LONG}": [ASIDE, POINT],
    "stats": [LONG],
    f"effects {LONG}": [],
    f"run show {LONG}": [],
    f"tree {LONG}": [RUN],
}


@pytest.mark.parametrize("words", TABLES)
def test_names_stand_in_one_piece_on_a_terminal(operator: Operator, words: str) -> None:
    """An agent's name was folded into pieces of sixteen characters, and an id into four lines:
    nobody could paste them."""
    lines = terminal(*words.split(" "), store=operator.path).split("\n")
    for name in TABLES[words]:
        assert any(name in line for line in lines), lines


@pytest.mark.parametrize("words", TABLES)
def test_tables_fit_the_terminal(operator: Operator, words: str) -> None:
    """What stands above the hints, which are commands to paste, and so one line each."""
    shown = terminal(*words.split(" "), store=operator.path)
    above = shown.partition("\n! ")[0].partition("\n? ")[0].partition("\n  →")[0]
    above = above.partition("last commits")[0]
    lines = [line for line in above.split("\n") if CHILD not in line]  # longer, and in one piece
    assert max(map(len, lines)) <= 80, above


@pytest.mark.parametrize("words", [*TABLES, f"diff {LONG} 1 3"])
def test_nothing_is_cut_in_a_pipe(operator: Operator, words: str) -> None:
    """`perdure ls | grep` found nothing of a cause that was longer than forty characters, and the
    result of a child was cut, for programs as for people."""
    lines = operator.see(*words.split(" ")).split("\n")
    for name in TABLES.get(words, []):
        assert any(name in line for line in lines)
    cut = [line for line in lines if "…" in line.removesuffix("…") and " … " not in line]
    assert cut == [] or words.startswith(("effects", "run show")), cut
    if words == f"run show {LONG}":
        assert ("found " * 30).strip() in "\n".join(lines)
        assert WORDS * 3 in "\n".join(lines)
    if words == f"effects {LONG}":
        assert "i-7" * 40 in "\n".join(lines)
