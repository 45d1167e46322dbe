"""`perdure import-langgraph postgresql://…`: what is said, the exit codes, and going on."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from langgraph.types import Command

import perdure
from perdure.integrations.langgraph import PerdureSaver
from tests.cli import langgraph_graphs as graphs
from tests.cli.langgraph_graphs import DIES, THREADS, alike, at
from tests.cli.operator import Operator
from tests.integrations.langgraph.theirs import Theirs, filled

ROOT = Path(__file__).resolve().parents[2]
HUSH = "hush-hush"


@pytest.fixture(scope="module")
def original() -> Iterator[Theirs]:
    made = filled()
    yield made
    made.drop()


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(tmp_path / "agents.db")


def all_alike(theirs: Theirs, url: Any) -> int:
    with theirs.saver() as there, PerdureSaver.from_url(url) as here:
        return sum(alike(there, here, name) for name in THREADS)


def test_every_thread_comes_over_whole(original: Theirs, operator: Operator) -> None:
    url = original.url(password=HUSH)
    said = operator.see("import-langgraph", url)
    number = all_alike(original, operator.path)
    assert f"6 threads, {number} checkpoints, every state compared" in said
    assert all(f"✓ {name}  " in said for name in THREADS)
    assert f"of {original.url()} (" in said.replace("\n", " ") and "new, " in said
    assert "all there already" in operator.see("import-langgraph", url, "--thread", "asked")
    found = operator.json("import-langgraph", url)
    assert found["source"]["name"] == original.url() and found["source"]["bytes"] > 0
    assert [one["thread"] for one in found["threads"]] == THREADS
    assert HUSH not in said + str(found)
    operator.see("verify", "travel")


def test_into_another_schema_of_the_same_database(original: Theirs) -> None:
    target = original.url("agents", password=HUSH)
    operator = Operator(cast(Path, target))
    said = operator.see("import-langgraph", original.url())
    assert HUSH not in said and f"store {original.url('agents')}: new, " in said
    assert all_alike(original, target)
    assert HUSH not in str(operator.json("import-langgraph", original.url(), "--dry-run"))


@pytest.mark.parametrize(("call", "number"), [("put_writes", 9), ("list", 3)])
def test_killed_in_the_middle_it_goes_on(
    original: Theirs, operator: Operator, call: str, number: int
) -> None:
    """Between a checkpoint and its writes, and before they were compared."""
    words = ["import-langgraph", original.url(), "--store", str(operator.path)]
    done = subprocess.run(
        [sys.executable, "-c", DIES, call, str(number), *words],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    operator.see("import-langgraph", original.url())
    assert all_alike(original, operator.path)
    with perdure.open(operator.path, create=False) as store:
        assert [one.name for one in store.agents()] == THREADS


def test_a_dry_run_writes_nothing(original: Theirs, operator: Operator) -> None:
    with original.saver() as saver:
        graphs.bill(saver, "bill", graphs.Invoice(number="R-1"))
    try:
        result = operator.type("import-langgraph", original.url(), "--dry-run")
    finally:
        with original.saver() as saver:
            saver.delete_thread("bill")
    assert result.exit_code == 1 and not operator.path.exists()
    assert "1 thread would be left: bill" in result.stdout
    assert "--type tests.cli.langgraph_graphs:Invoice registers it" in result.stderr


def test_what_is_refused(original: Theirs, operator: Operator) -> None:
    server = original.server
    for url, code, words in (
        (server.url(database="nowhere", password=HUSH), 3, "no such database"),
        (f"postgresql://me:{HUSH}@127.0.0.1:1/db", 6, "cannot be reached"),
        (f"postgresql://me:{HUSH}@x:{HUSH}/db", 2, "cannot read this PostgreSQL URL"),
        (f"postgresql://me:{HUSH}@b@c/db", 2, "write them as %40"),
        (server.url("nowhere"), 9, "is not a database of LangGraph's PostgresSaver"),
        (f"mysql://me:{HUSH}@c/db", 2, "mysql:// is not a source"),
    ):
        found = operator.refused("import-langgraph", url)
        assert found[0] == code and words in " ".join(found[1].split()), found
        assert HUSH not in found[1]
    assert not operator.path.exists()


@pytest.mark.parametrize("absent", ["psycopg", "langgraph.checkpoint.postgres"])
def test_without_the_libraries(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, absent: str
) -> None:
    for name in ("moving.postgres", "moving.database"):
        monkeypatch.delitem(sys.modules, f"perdure.integrations.langgraph.{name}", raising=False)
    monkeypatch.setitem(sys.modules, absent, None)
    code, words = operator.refused("import-langgraph", f"postgresql://me:{HUSH}@host/db")
    assert code == 2 and HUSH not in words
    assert "pip install 'perdure[langgraph,postgres]' langgraph-checkpoint-postgres" in " ".join(
        words.split()
    )


def test_graphs_go_on_from_where_they_were(original: Theirs, operator: Operator) -> None:
    operator.see("import-langgraph", original.url(), "-t", "asked")
    with PerdureSaver.from_url(operator.path) as saver:
        found = graphs.review(saver).invoke(Command(resume="yes"), at("asked"))
    assert found["log"] == ["draft", "draft", "said yes"]
