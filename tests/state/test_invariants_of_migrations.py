"""Invariants of what a migration, or a class, makes of a stored state."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, field
from typing import Any

import pytest

import perdure
from perdure import Schema
from perdure.errors import SchemaError


@dataclass
class Tab:
    items: list[int] = field(default_factory=list)
    total: int = 0
    status: str = "open"
    note: str = ""


@dataclass
class Counted(Tab):
    def __post_init__(self) -> None:
        self.total = sum(self.items)


@dataclass
class Closing(Tab):
    def __post_init__(self) -> None:
        self.status = "full" if sum(self.items) > 50 else self.status


@dataclass
class Dated(Tab):
    id: str = field(default_factory=lambda: uuid.uuid4().hex)


@perdure.invariant("total")
def at_most_100(after: Tab) -> bool:
    return after.total <= 100


def small(after: Tab) -> bool:
    return after.total <= 100


def counted(state: dict[str, Any]) -> dict[str, Any]:
    return {**state, "total": sum(state["items"])}


MACHINE = perdure.transitions("status", {"open": ["closed"]})


def tab(cls: Any, *invariants: Any, version: int = 1) -> Schema[Any]:
    migrations = {1: counted} if version == 2 else {}
    return Schema(cls, id="tab", version=version, invariants=invariants, migrations=migrations)


@pytest.mark.parametrize(
    "schema",
    [
        tab(Counted, at_most_100),
        tab(Counted, small),
        tab(Closing, MACHINE),
        tab(Tab, at_most_100, version=2),
        tab(Tab, small, version=2),
    ],
    ids=["hook", "hook, whole", "transition", "migration", "migration, whole"],
)
def test_what_a_migration_or_a_hook_makes_is_asked_by_invariants(store, steady, schema):
    """A migration, or a class's hook, made a total that an invariant forbids, and the first edit
    of anything else committed it: nobody asked the invariant about that commit. The program that
    relied on the invariant read a forbidden state from the log."""
    store.agent("a", tab(Tab), initial=Tab([700])).checkpoint("made")
    agent = store.agent("a", schema)
    name = schema.invariants[0].name
    with steady.refuses(agent, SchemaError, re.escape(name)):
        agent.update(lambda draft: setattr(draft, "note", "x"))
    with pytest.raises(SchemaError, match="does not hold") as refused:
        agent.update(lambda draft: setattr(draft, "note", "x"))
    if schema.invariants[0].paths:
        assert "correct the migration" in refused.value.hint
    if schema.version[0] == 2:  # which any commit would store
        with steady.refuses(agent, SchemaError, re.escape(name)):
            agent.checkpoint("again")
    assert [one.cause.kind for one in agent.log()] == ["create", "checkpoint"]
    assert store.agent("a", tab(Tab)).refresh() == Tab([700])


def test_a_state_that_breaks_a_new_invariant_can_be_put_right(store):
    """What a hook or a default adds must not bar the edit that makes a state legal which was
    not."""
    store.agent("a", tab(Tab), initial=Tab([7], total=700)).checkpoint("made")
    agent = store.agent("a", tab(Dated, small, at_most_100))
    with pytest.raises(SchemaError, match="invariant small does not hold"):
        agent.update(lambda draft: draft.items.append(1))
    agent.update(lambda draft: setattr(draft, "total", 7))
    assert [one.cause.kind for one in agent.log()][2:] == ["migrate", "edit"]


def test_a_migration_may_rename_what_transitions_lead_between(store):
    """The values of another major version are not those that the transitions of this one name."""
    store.agent("a", tab(Tab), initial=Tab(status="draft")).checkpoint("made")
    renamed = Schema(
        Tab,
        id="tab",
        version=2,
        invariants=[MACHINE],
        migrations={1: lambda old: old | {"status": "open"}},
    )
    agent = store.agent("a", renamed)
    agent.update(lambda draft: setattr(draft, "status", "closed"))
    assert agent.refresh().status == "closed"
