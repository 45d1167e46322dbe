"""Runs that are cancelled by a move of their branch: those that they started end with them, as they
do with one that is cancelled by request."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import perdure
from perdure.errors import RunFailed
from perdure.model import FINISHED
from perdure.store import Store
from perdure.testing import run_until_waiting
from tests.engine.conftest import Place
from tests.engine.waits import at_every_boundary, go, verify_all
from tests.simulation.house import Once


@perdure.agent(dict)
def grandchild(run: perdure.Run[dict]) -> Any:
    return run.wait_for("go")


@perdure.agent(dict)
def child(run: perdure.Run[dict]) -> Any:
    return run.options(key="k").start(grandchild, f"grand{run.agent}").result()


@perdure.agent(dict)
def parent(run: perdure.Run[dict], let_live: bool) -> Any:
    return run.options(key="k", let_live=let_live).start(child, f"child of {run.agent}").result()


def look(store: Store) -> None:
    """All that a worker can do now."""
    Once(store, [parent, child, grandchild]).look_once()


def prepared(store: Store, name: str) -> perdure.Agent[dict[str, Any]]:
    """An agent that can be moved each way."""
    agent = store.agent(name)
    for number in range(3):
        with agent.edit() as draft:
            draft["n"] = number
    agent.fork("side")
    agent.undo()
    return agent


def begun_by(store: Store, name: str) -> dict[str, tuple[str, str | None]]:
    return {
        run.id: (run.status, run.problem)
        for run in store.runs()
        if run.agent.endswith(f"child of {name}")
    }


def with_it(name: str) -> dict[str, tuple[str, str | None]]:
    return {
        f"child of {name}/child/k": ("cancelled", f"with {name}/parent/main"),
        f"grandchild of {name}/grandchild/k": ("cancelled", f"with child of {name}/child/k"),
    }


LIVING = {
    "child of a/child/k": ("waiting", None),
    "grandchild of a/grandchild/k": ("waiting", None),
}
MOVES: dict[str, Callable[[perdure.Agent[Any]], object]] = {
    "rollback": lambda agent: agent.rollback(2, cancel_run=True),
    "undo": lambda agent: agent.undo(cancel_run=True),
    "redo": lambda agent: agent.redo(cancel_run=True),
    "adopt": lambda agent: agent.adopt("side", cancel_run=True),
}


@pytest.mark.parametrize("let_live", [False, True])
@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("way", MOVES)
def test_children_end_with_a_parent_whose_branch_is_moved(
    place: Place, way: str, begun: bool, let_live: bool
) -> None:
    """Somebody went back by `rollback --cancel-run`, as an error had told him to. The run was
    cancelled; those that it had started held their agents' branches, and went on to call their
    tools, for a parent that was gone."""
    store = place.open()
    agent = prepared(store, "a")
    run_until_waiting(store, parent, "a", let_live)
    if begun:
        look(store)
        assert begun_by(store, "a") == LIVING
    MOVES[way](agent)
    assert store.handle("a/parent/main").info.problem == "the branch was moved under it"
    look(store)
    if let_live:
        assert begun_by(store, "a") == LIVING
    else:
        wanted = [*with_it("a").items()]
        assert begun_by(store, "a") == dict(wanted if begun else wanted[:1])
        assert store.runner.context.backend.inbox() == []
        assert store.runs(unfinished=True) == []
    verify_all(place)


def test_i2_they_are_told_in_the_commit_of_the_move(place: Place) -> None:
    """Or the process ends behind that, and nobody tells them any more."""

    def work(store: Store, name: str) -> Any:
        agent = store.agent(name)
        with agent.edit(key="first") as draft:
            draft["n"] = 1
        if store.start(parent, name, False).status not in FINISHED:
            go(store, parent, name, False)
            go_on(store, name)
            agent.rollback(1, cancel_run=True)
        go_on(store, name)
        return begun_by(store, name)

    def go_on(store: Store, name: str) -> None:
        for function in (child, grandchild):
            with suppress(RunFailed):
                go(store, function, f"{function.__name__} of {name}", key="k")

    lost = 0
    for where, store, name, found in at_every_boundary(place, work):
        assert found == with_it(name), where
        assert store.runner.context.backend.inbox() == [], where
        lost += 1
    assert lost >= 20
    verify_all(place)
