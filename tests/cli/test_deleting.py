"""`perdure delete`: agents are deleted from a shell, after somebody agreed."""

from __future__ import annotations

import os
import pty
import subprocess
import threading
from typing import Any

import pytest

import perdure
from tests.cli.operator import Operator
from tests.cli.test_process import COMMAND


@perdure.agent(dict)
def asking(run: perdure.Run[dict]) -> Any:
    return run.wait_for("go")


def names(operator: Operator) -> list[str]:
    with perdure.open(operator.path) as store:
        return [info.name for info in store.agents()]


def test_one_is_deleted_when_that_is_said(operator: Operator) -> None:
    code, words = operator.refused("delete", "ticket-42")
    assert code == 2 and "would delete 1 agent: pass --yes" in words
    assert operator.refused("delete", "ticket-42", "--json")[0] == 2
    assert "did you mean ticket-4" in operator.refused("delete", "ticket-4", "--yes")[1]
    assert "perdure purge ticket-42" in operator.see("delete", "ticket-42", "--yes")
    assert "no such agent" in operator.refused("delete", "ticket-42", "--yes")[1]
    assert names(operator) == ["ticket-43"]
    assert "agent deleted" in operator.see("log", "--all", "ticket-42")


def test_all_of_a_customer_are_deleted_with_what_was_requested(operator: Operator) -> None:
    with perdure.open(operator.path) as store:
        store.start(asking, "ticket-44")
        store.start(asking, "other")
    assert "3 agents" in operator.refused("delete", "--prefix", "ticket-")[1]
    done = operator.json("delete", "--prefix", "ticket-", "--purge", "--yes")
    assert done == {"deleted": ["ticket-42", "ticket-43", "ticket-44"], "purged": True}
    with perdure.open(operator.path) as store:
        assert [run.agent for run in store.runs(unfinished=True)] == ["other"]
        assert all(info.purged for info in store.incarnations("ticket-44"))
    assert "begins so" in operator.refused("delete", "--prefix", "ticket-", "--yes")[1]


@pytest.mark.parametrize("answer", ["y", "n"])
def test_a_person_is_asked(operator: Operator, answer: str) -> None:
    person, terminal = pty.openpty()
    words = ["delete", "--prefix", "ticket-", "--store", str(operator.path)]
    command = subprocess.Popen(
        [*COMMAND, *words], stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    os.write(person, f"{answer}\n".encode())
    _, said = command.communicate(timeout=60)
    os.close(person)
    os.close(terminal)
    assert command.returncode == 0, said
    assert b"Delete these 2 agents?" in said and b"ticket-42  0 unfinished runs" in said
    assert names(operator) == ([] if answer == "y" else ["ticket-42", "ticket-43"])


def test_an_executed_run_is_ended_only_where_that_is_said(operator: Operator) -> None:
    inside, go_on = threading.Event(), threading.Event()

    @perdure.agent(dict)
    def holding(run: perdure.Run[dict]) -> None:
        run.call(inside.set)
        assert go_on.wait(60)
        run.call(str, 1)

    store = perdure.open(operator.path)
    ended: list[str] = []

    def execute() -> None:
        try:
            store.run(holding, "busy")
        except perdure.RunFailed as failed:
            ended.append(failed.problem)

    thread = threading.Thread(target=execute)
    thread.start()
    assert inside.wait(60)
    assert "--cancel-runs" in operator.refused("delete", "busy", "--yes")[1]
    late = operator.refused("delete", "busy", "--yes", "--cancel-runs", "--timeout", "0s")
    assert "is running still" in late[1]
    go_on.set()
    thread.join(60)
    operator.see("delete", "busy", "--yes", "--cancel-runs")
    assert ended == ["was cancelled: its agent is being deleted"]
    store.close()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "give either"),
        (("ticket-42", "--prefix", "t"), "give either"),
        (("--prefix", ""), "all agents"),
        (("ticket-42", "--timeout", "5s"), "is for --cancel-runs"),
        (("ticket-42", "--cancel-runs", "--timeout", "soon"), "a length of time"),
    ],
    ids=str,
)
def test_what_is_not_said_clearly_deletes_nothing(
    operator: Operator, words: tuple[str, ...], problem: str
) -> None:
    assert problem in operator.refused("delete", *words, "--yes")[1]
    assert names(operator) == ["ticket-42", "ticket-43"]
