"""Errors about states that are stored in a form which a schema does not take, with the remedies."""

from __future__ import annotations

from typing import Protocol

from perdure.core.types.nodes import TupleNode
from perdure.core.values.plain_values import Path, format_path
from perdure.errors import SchemaError
from perdure.system import shell


class Declared(Protocol):
    """The id and version of a schema."""

    id: str
    version: tuple[int, int]


def of_stored(
    schema: Declared, error: SchemaError, agent: str, seq: int, version: tuple[int, int]
) -> SchemaError:
    """Returns an error about a state that is stored under that version, with the commit that it is
    of (0: of none yet), and how else it can be read."""
    target = f"commit {seq}, {error.target or 'state'}" if seq else error.target
    hint = error.hint or _remedy(schema, version)
    if seq:
        hint += (
            f"; `{shell.perdure('state', agent, at=seq)}`, or a handle with "
            f"perdure.Schema(dict, id={schema.id!r}), gives it as plain data"
        )
    return SchemaError(error.problem, target=f"agent {agent!r}, {target}", hint=hint)


def _remedy(schema: Declared, version: tuple[int, int]) -> str:
    """Returns what to do about a state, stored under that version, that does not fit."""
    if version > schema.version:
        newer, own = (f"{major}.{minor}" for major, minor in (version, schema.version))
        return (
            f"a newer program stored it, under version {newer}, and this one has {own}: deploy "
            "the newer program here, too; what an older one cannot read needs a new major version"
        )
    return (
        f"it was stored this way under an earlier {schema.id!r}: let the type accept it, migrate "
        "it by the next major version of its schema, or `save` a whole value"
    )


def not_minor(schema: Declared, at: Path, node: TupleNode, version: tuple[int, int]) -> SchemaError:
    """Returns the error for a NamedTuple that has more fields than under an earlier minor
    version."""
    major, minor = schema.version
    return SchemaError(
        f"a {node.cls.__name__} has more fields than under version {version[0]}.{version[1]}, "
        "whose programs could not read it any more: it is stored by position",
        target=format_path(at),
        hint=f"this is no minor version {major}.{minor} of {schema.id!r}, but a major one: "
        f"perdure.Schema(…, version={major + 1}, migrations={{{major}: lambda old: old}})",
    )
