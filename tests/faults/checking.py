"""What must hold after an exception came from anywhere inside a call."""

from __future__ import annotations

from typing import Any

import pydantic

from perdure.agents import Agent
from perdure.core.values.plain_values import copy
from perdure.errors import Conflict
from perdure.missing import MISSING
from perdure.store import Store
from tests.faults.injecting import Helper


class State(pydantic.BaseModel):
    """What the agents of these tests are."""

    n: int = 0
    items: list[str] = []
    facts: dict[str, int] = {}


class WrongError(AssertionError):
    """Something does not hold."""


def check_agent(agent: Agent[Any]) -> None:
    """A handle shows the state of the log at its seq, typed and plain."""
    seq, shown = agent.seq, agent.state.model_dump()
    if seq == 0:
        return
    working = agent._working
    with working.lock:
        held, known = working._plain, working.in_memory
    folded, schema = working.reader.fold(seq), working.schema
    logged = schema.migrate(copy(folded.state), folded.schema_version)
    if known and held is not MISSING and working._open is None and held != logged:
        raise WrongError(f"in memory at {seq}: {held}, in the log: {logged}")
    if shown != type(agent.state).model_validate(logged).model_dump():
        raise WrongError(f"shown at {seq}: {shown}, in the log: {logged}")


def check_beside(store: Store, agent: Agent[Any]) -> None:
    """What else the call wrote: logs that verify, and no run that nobody goes on with."""
    for info in store.agents(agent.id + "-"):
        store.agent_of(info).verify()
    left = [run for run in store.runs(agent=agent.id) if run.status == "running"]
    if left:
        raise WrongError(f"nobody goes on with {left}")


def check_usable(store: Store, agent: Agent[Any], helper: Helper) -> None:
    """Everybody can go on: this thread and another with this handle, and with another handle."""
    check_agent(agent)
    name = agent.id

    schema = agent._working.schema

    def mark(handle: Agent[Any], what: str) -> None:
        def change(draft: Any) -> None:
            draft.facts[what] = draft.facts.get(what, 0) + 1

        handle.update(change, what)
        check_agent(handle)

    mark(agent, "this")
    helper.call(lambda: mark(agent, "thread"))
    other = store.agent(name, schema)
    helper.call(lambda: mark(other, "other"))
    agent.refresh()
    check_agent(agent)
    with agent.edit("last") as draft:
        draft.n += 1
    check_agent(agent)
    if agent.drift():
        raise WrongError(f"drift: {agent.drift()}")
    facts = store.agent(name, schema).state.facts
    if facts != {**facts, "this": 1, "thread": 1, "other": 1}:
        raise WrongError(f"lost or doubled: {facts}")
    agent.verify()
    check_beside(store, agent)


__all__ = ["Conflict", "State", "WrongError", "check_agent", "check_beside", "check_usable"]
