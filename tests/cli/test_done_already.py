"""Commands whose work on the store is done, and which fail behind that: they say what is done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import StoreUnavailable
from perdure.transfer import whole_log
from tests.cli.operator import Operator


def failing(*_: Any, **__: Any) -> Any:
    raise StoreUnavailable("an input/output error", target="store x", hint="look at the disk")


@pytest.fixture
def export(operator: Operator) -> Path:
    path = operator.path.with_name("ticket-42.jsonl")
    operator.see("export", "ticket-42", "-o", str(path))
    return path


@pytest.fixture
def destination(operator: Operator) -> Operator:
    path = operator.path.with_name("destination.db")
    perdure.open(path).close()
    return Operator(path)


def error_of(operator: Operator, *words: str) -> dict[str, Any]:
    code, said = operator.refused("--json", *words)
    error: dict[str, Any] = json.loads(said.strip().splitlines()[-1])
    assert error["exit_code"] == code
    return error


@pytest.mark.parametrize("fails", ["Agent.verify", "Store.find", "Store.close"])
def test_an_import_that_cannot_be_read_back_is_done(
    destination: Operator, export: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """Behind its transaction the command reads the log again. The disk failed there: the command
    said that nothing was done, and that it may be repeated; repeated, it said that the agent was
    there already."""
    cls, name = fails.split(".")
    with monkeypatch.context() as patch:
        patch.setattr(getattr(perdure, cls), name, failing)
        error = error_of(destination, "import", str(export))
    assert (error["error"], error["outcome"], error["retry"]) == ("StoreUnavailable", "done", False)
    assert error["exit_code"] == 1, "6 is for what the store has not done"
    assert "ticket-42 is imported" in error["problem"] and "input/output" in error["problem"]
    assert "perdure verify ticket-42" in error["hint"]
    with perdure.open(destination.path) as store:
        assert store.agent("ticket-42").verify().commits == store.agent("ticket-42").seq


def test_an_import_that_fails_before_is_not_done(
    destination: Operator, export: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(whole_log, "_refuse_existing", failing)
        error = error_of(destination, "import", str(export))
    assert (error["exit_code"], error["outcome"], error["retry"]) == (6, "not_done", True)
    assert "ticket-42" in destination.see("import", str(export))


def test_the_library_says_so_too(
    operator: Operator, destination: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the transaction it exchanges messages with other logs that came at the same time."""
    with perdure.open(operator.path) as source, perdure.open(destination.path) as store:
        info = source.find("ticket-42")
        assert info is not None
        entries = [*source.export_log(info)]
        monkeypatch.setattr(whole_log, "_tell_of_others", failing)
        with pytest.raises(StoreUnavailable, match="'ticket-42' is imported") as caught:
            store.import_log(entries)
        assert (caught.value.outcome, caught.value.retry) == ("done", False)
        assert store.agent("ticket-42").seq == info.seq


@pytest.mark.parametrize("command", ["purge", "trim"])
def test_what_is_removed_is_said_though_the_store_cannot_be_shrunk(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """The room could not be given back, and nobody heard what had been removed for good."""
    words = ["trim", "ticket-42", "--before", "8", "--shrink"]
    if command == "purge":
        words = ["purge", "--shrink"]
        with perdure.open(operator.path) as store:
            store.delete("ticket-42", purge=True)
    with monkeypatch.context() as patch:
        patch.setattr(perdure.Store, "shrink", failing)
        code, said = operator.refused(*words)
    assert code == 6
    assert ("1 log purged" if command == "purge" else "commits emptied") in said
    assert "could not be given back" in said and "input/output" in said
    assert operator.json(*words)["shrunk"] is True
