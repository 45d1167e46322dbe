"""`perdure import-langgraph` again, while the old application goes on, and when the new one did."""

from __future__ import annotations

import contextlib
import itertools
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

import perdure
from perdure.integrations.langgraph import PerdureSaver
from tests.cli.langgraph_graphs import DIES, Log, alike, at
from tests.cli.operator import Operator
from tests.integrations.langgraph.theirs import Theirs

ROOT = Path(__file__).resolve().parents[2]
THREAD = "order-7"
Opens = Callable[[], Any]


def graph(saver: Any, work: Any) -> Any:
    built = StateGraph(Log)
    built.add_node("work", work)
    built.add_edge(START, "work")
    return built.compile(checkpointer=saver)


def failing(requests: Iterator[int], until: int = 3) -> Callable[[Any], Log]:
    def work(state: Any) -> Log:
        number = next(requests)
        if number < until:
            raise ValueError(f"service down, request {number}")
        return {"log": ["through"]}

    return work


def asking(state: Any) -> Log:
    return {"log": [interrupt("which?"), interrupt("sure?")]}


def call(saver: Any, work: Any, given: Any) -> None:
    with contextlib.suppress(ValueError):
        graph(saver, work).invoke(given, at(THREAD))


@pytest.fixture(params=["sqlite", "postgres"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Opens]]:
    if request.param == "sqlite":
        path = str(tmp_path / "threads.sqlite")
        yield path, lambda: SqliteSaver.from_conn_string(path)
        return
    theirs = Theirs()
    with theirs.saver() as saver:
        saver.setup()
    yield theirs.url(), theirs.saver
    theirs.drop()


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(tmp_path / "agents.db")


def commits(path: Path) -> int:
    with perdure.open(path, create=False) as store:
        return next(info.seq for info in store.agents() if info.name == THREAD)


def imported(operator: Operator, source: tuple[str, Opens]) -> None:
    """Import, compare, and import again, which writes nothing."""
    operator.see("import-langgraph", source[0])
    with source[1]() as theirs, PerdureSaver.from_url(operator.path) as ours:
        assert alike(theirs, ours, THREAD)
    before = commits(operator.path)
    assert "all there already" in operator.see("import-langgraph", source[0])
    assert commits(operator.path) == before


def refused(operator: Operator, source: tuple[str, Opens]) -> str:
    before = commits(operator.path)
    result = operator.type("import-langgraph", source[0])
    assert result.exit_code == 1 and commits(operator.path) == before
    return " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("work", "given"),
    [
        pytest.param(lambda: failing(itertools.count(1)), [{"log": []}, None, None], id="errors"),
        pytest.param(
            lambda: asking, [{"log": []}, Command(resume="a"), Command(resume="b")], id="interrupts"
        ),
    ],
)
def test_what_a_task_stopped_for_changes(
    operator: Operator, source: tuple[str, Opens], work: Any, given: list[Any]
) -> None:
    """LangGraph replaces a task's error, its interrupt and the answers to it at the checkpoint that
    it stopped at. A thread that came over in between was refused as one that differs, then and for
    ever, though all that it had done since could be brought over."""
    node = work()
    for one in given:
        with source[1]() as saver:
            call(saver, node, one)
        imported(operator, source)
    with PerdureSaver.from_url(operator.path) as ours:
        assert graph(ours, node).get_state(at(THREAD)).next == ()


def test_killed_while_it_takes_them_over(operator: Operator, source: tuple[str, Opens]) -> None:
    """Between an answer and the question behind it."""
    with source[1]() as saver:
        call(saver, asking, {"log": []})
    imported(operator, source)
    with source[1]() as saver:
        call(saver, asking, Command(resume="a"))
    words = ["import-langgraph", source[0], "--store", str(operator.path)]
    done = subprocess.run(
        [sys.executable, "-c", DIES, "put_writes", "2", *words],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    imported(operator, source)


def test_a_dry_run_says_that_they_would_come(operator: Operator, source: tuple[str, Opens]) -> None:
    with source[1]() as saver:
        call(saver, asking, {"log": []})
    imported(operator, source)
    with source[1]() as saver:
        call(saver, asking, Command(resume="a"))
    before = commits(operator.path)
    assert "can come over" in operator.see("import-langgraph", source[0], "--dry-run")
    assert commits(operator.path) == before


def test_what_stopped_it_in_the_store_is_not_overwritten(
    operator: Operator, source: tuple[str, Opens]
) -> None:
    """Both applications went on, and the task failed in both."""
    node = failing(itertools.count(1), until=9)
    with source[1]() as saver:
        call(saver, node, {"log": []})
    imported(operator, source)
    with PerdureSaver.from_url(operator.path) as ours:
        call(ours, node, None)
    said = refused(operator, source)
    assert "request 1')\" in the source, \"ValueError('service down, request 2')\" in the " in said
    with source[1]() as saver:
        call(saver, node, None)
    said = refused(operator, source)
    assert "it went on in the store" in said and "import into another store" in said
    assert "request 3')\" in the source, \"ValueError('service down, request 2')\" in the " in said


def test_what_the_store_alone_has_is_not_mixed_with_what_comes(
    operator: Operator, source: tuple[str, Opens]
) -> None:
    """Both applications went on. What the old one did became a branch beside what the new one had
    done, and the thread's state that of whichever checkpoint was the later."""
    node = failing(itertools.count(9))
    with source[1]() as saver:
        call(saver, node, {"log": []})
    imported(operator, source)
    with PerdureSaver.from_url(operator.path) as ours:
        call(ours, node, {"log": ["new"]})
        head = graph(ours, node).get_state(at(THREAD)).config["configurable"]["checkpoint_id"]
    assert "all there already" in operator.see("import-langgraph", source[0])
    with source[1]() as saver:
        call(saver, node, {"log": ["old"]})
    said = refused(operator, source)
    assert "it went on in the store" in said and "is not in the source" in said
    with PerdureSaver.from_url(operator.path) as ours:
        now = graph(ours, node).get_state(at(THREAD)).config["configurable"]["checkpoint_id"]
    assert now == head
