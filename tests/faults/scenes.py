"""Calls in which an exception may come from anywhere, each on an agent of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure.agents import Agent
from perdure.store import Store
from tests.faults.checking import State

Call = Callable[[], object]
Scene = Callable[[Store, str], tuple[Agent[Any], Call]]
"""Gives the handle that is checked, and the call. What else that writes is in agents whose names
begin with the one that it is given: they are looked at, too."""

SCENES: dict[str, Scene] = {}


def scene(fn: Scene) -> Scene:
    SCENES[fn.__name__] = fn
    return fn


def grow(draft: State) -> None:
    draft.n += 1
    draft.items.append(f"item {draft.n}")
    draft.facts["n"] = draft.n


def begun(store: Store, name: str, commits: int = 2) -> Agent[State]:
    agent = store.agent(name, State, initial=State())
    for _ in range(commits):
        agent.update(grow)
    return agent


@scene
def edit(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)

    def call() -> None:
        with agent.edit("grow") as draft:
            grow(draft)

    return agent, call


@scene
def first_edit(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = store.agent(name, State, initial=State())

    def call() -> None:
        with agent.edit("grow", key="k") as draft:
            grow(draft)

    return agent, call


@scene
def deleting_edit(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)

    def call() -> None:
        with agent.edit("shrink") as draft:
            draft.facts.pop("n", None)
            draft.items.pop(0)
            draft.n = 5

    return agent, call


@scene
def failing_edit(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)

    def call() -> None:
        try:
            with agent.edit("fail") as draft:
                grow(draft)
                raise LookupError
        except LookupError:
            pass

    return agent, call


@scene
def update(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    store.agent(name, State).update(grow)
    return agent, lambda: agent.update(grow, key="k")


@scene
def save(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    state = State(n=9, items=["a", "item 2"], facts={"z": 1})
    return agent, lambda: agent.save(state, "whole")


@scene
def refresh(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    other = store.agent(name, State)
    other.update(grow)
    other.update(grow)
    return agent, agent.refresh


@scene
def follow(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    other = store.agent(name, State)
    other.update(grow)
    other.update(grow)
    return agent, agent.follow


@scene
def follow_a_move(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    store.agent(name, State).rollback(2)
    return agent, agent.follow


@scene
def undo(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    return agent, agent.undo


@scene
def redo(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    agent.undo()
    return agent, agent.redo


@scene
def checkpoint(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    return agent, lambda: agent.checkpoint("point")


@scene
def fork(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    return agent, lambda: agent.fork("side")


@scene
def rollback(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    return agent, lambda: agent.rollback(2)


@scene
def adopt(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    agent.fork("side", at=2).update(grow)
    return agent, lambda: agent.adopt("side")


@scene
def used_key(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    agent.update(grow, key="k")
    return agent, lambda: agent.update(grow, key="k")


@scene
def looking(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    agent.checkpoint("point")

    def call() -> None:
        assert agent.at("point").state.n == 2 and agent.at(2).state.n == 1
        assert len(list(agent.log())) == 4 and agent.diff(2, 3) and not agent.drift()
        assert [branch.name for branch in agent.branches()] == ["main"]

    return agent, call


@scene
def branches(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)

    def call() -> None:
        agent.fork("side", at=2)
        agent.branch("side").update(grow)
        agent.delete_branch("side")

    return agent, call


@scene
def trim(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name, 4)
    return agent, lambda: agent.trim(4)
