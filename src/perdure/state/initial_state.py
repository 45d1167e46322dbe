"""The state that an agent is created with."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from perdure.core.schema.schema import Schema
from perdure.core.schema.value_digest import class_label
from perdure.core.values.plain_values import Plain
from perdure.errors import SchemaError, Unstorable
from perdure.missing import MISSING


class FirstState(Struct, frozen=True):
    """An initial state that was made, and maybe shown: an id that the types filled in stays."""

    plain: Plain


def initial_state(schema: Schema[Any], given: Any, agent: str) -> Plain:
    """Returns the initial state as plain data. If `given` is MISSING, the schema's type is called
    without arguments.

    Raises:
        SchemaError: no state may be of the type, it needs arguments, or the state does not fit.
    """
    _ = schema.is_declared
    if given is MISSING:
        words = "the agent does not exist, and its schema cannot be made without values"
        return default_state(
            schema,
            words,
            f"agent {agent!r}",
            "store.agent(…, initial={}), whose first commit creates it",
        )
    return schema.take(given, (), aliases_refused=True)


def default_state(schema: Schema[Any], problem: str, target: str, way: str) -> Plain:
    """Returns the value of the schema's type without arguments, as plain data.

    Args:
        problem, target: of the error if it needs arguments.
        way: the call that gives them, with {} for the state.

    Raises:
        SchemaError: the type needs arguments.
    """
    try:
        made = schema.empty()
    except Exception as error:
        raise _needed(schema, problem, target, way, str(error)) from error
    try:
        return schema.take(made, (), aliases_refused=True)
    except Unstorable:
        raise
    except SchemaError as error:  # e.g. of a TypedDict, which can be made without its keys
        why = f"{error.target}: {error.problem}"
        raise _needed(schema, problem, target, way, why) from error


def _needed(schema: Schema[Any], problem: str, target: str, way: str, why: str) -> SchemaError:
    named = f"{class_label(schema.type)}(…)" if isinstance(schema.type, type) else "…"
    return SchemaError(problem, target=target, hint=f"give one: {way.format(named)} ({why})")
