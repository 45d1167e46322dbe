"""Errors for an agent or branch that is not there, or is another's."""

from __future__ import annotations

from typing import Any

from perdure.core.schema.schema import Schema
from perdure.core.schema.value_digest import class_label
from perdure.errors import NotFound, SchemaError


def not_created(agent: str) -> NotFound:
    return NotFound(
        "has no commits yet", target=f"agent {agent!r}", hint="the first edit creates it"
    )


def no_first_branch(agent: str, branch: str) -> NotFound:
    return NotFound(
        "has no commits yet",
        target=f"agent {agent!r}, branch {branch!r}",
        hint="its first commit makes the branch 'main'; fork from there",
    )


def no_branch(agent: str, branch: str) -> NotFound:
    return NotFound(
        f"{branch!r} is a checkpoint, not a branch",
        target=f"agent {agent!r}",
        hint="agent.at(name) shows its state, agent.fork(new, at=name) works from it",
    )


def deleted(agent: str, branch: str) -> NotFound:
    return NotFound(
        "was deleted", target=f"agent {agent!r}, branch {branch!r}", hint="open the agent again"
    )


def other_schema(agent: str, stored: str, own: Schema[Any]) -> SchemaError:
    return SchemaError(
        f"its state was written under schema {stored!r}, not {own.id!r}",
        target=f"agent {agent!r}",
        hint=f"open it with that type; or, if the type was renamed, use: "
        f"perdure.Schema({class_label(own.type)}, id={stored!r})",
    )
