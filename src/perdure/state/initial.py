"""The state that an agent is created with."""

from __future__ import annotations

from typing import Any

from perdure.core.schema import Schema
from perdure.core.values import Plain
from perdure.errors import SchemaError
from perdure.model import MISSING


def initial_state(schema: Schema[Any], given: Any, agent: str) -> Plain:
    """As plain data; `given` is MISSING where nobody gave one: then the schema's type is called
    without arguments.

    Raises:
        SchemaError: it cannot be.
    """
    if given is MISSING:
        given = {} if schema.type is dict else _construct(schema, agent)
    return schema.take(given, (), aliases_refused=True)


def _construct(schema: Schema[Any], agent: str) -> Any:
    try:
        return schema.type()
    except Exception as error:
        raise SchemaError(
            "the agent does not exist, and its schema cannot be made without values",
            target=f"agent {agent!r}",
            hint=f"give one: store.agent(…, initial={schema.id}(…)) ({error})",
        ) from error
