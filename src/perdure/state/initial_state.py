"""The state that an agent is created with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from perdure.core.draft.draft import view
from perdure.core.schema.downgrades import as_written
from perdure.core.schema.schema import Schema
from perdure.core.schema.value_digest import class_label
from perdure.core.values.plain_values import Plain
from perdure.errors import SchemaError, Unstorable
from perdure.missing import MISSING
from perdure.state.not_found import other_schema


class FirstState(Struct, frozen=True):
    """An initial state that was made, and maybe shown: an id that the types filled in stays."""

    plain: Plain


class Brought(Struct, frozen=True):
    """The first state that the request of a run brings along for its agent, which is not there yet:
    whoever begins the run, or ends it before it begins, creates the agent with it.

    Attributes:
        schema, version: id and version of the schema under which it was made.
        state: the state as plain data.
    """

    schema: str
    version: tuple[int, int]
    state: Any

    @classmethod
    def of(cls, schema: Schema[Any], given: Any, agent: str, way: str) -> Brought:
        """Returns the first state of an agent, checked like the one that an agent is created with.

        Args:
            given, way: as for `initial_state`.

        Raises:
            SchemaError: the type needs arguments, the state does not fit, or an invariant does not
                hold.
        """
        plain = schema.complete(initial_state(schema, given, agent, way))
        try:
            schema.check_invariants(None, view(schema, plain), [()])
        except SchemaError as error:
            if given is not MISSING:
                raise
            words = "the agent does not exist, and what its schema makes without values is illegal"
            raise _needed(schema, words, f"agent {agent!r}", way, error.problem) from error
        if schema.writes is not None:
            return cls(schema.id, schema.writes, as_written(schema, plain, MISSING, schema.writes))
        return cls(schema.id, schema.version, plain)

    def to_plain(self) -> dict[str, Plain]:
        return {"schema": self.schema, "version": [*self.version], "state": self.state}

    @classmethod
    def from_plain(cls, plain: Any) -> Brought | None:
        """Returns what `to_plain` made; None for nothing.

        Raises:
            TypeError, ValueError: it is something else.
        """
        return None if plain is None else msgspec.convert(plain, cls)

    def read_by(self, schema: Schema[Any], agent: str) -> FirstState:
        """Returns the state as a program with this schema creates the agent.

        Raises:
            SchemaError: the program reads no states of that schema or version, or fields in it
                seem to be renamed.
        """
        if self.schema != schema.id:
            raise other_schema(agent, self.schema, schema)
        plain = schema.migrate(self.state, self.version)
        schema.refuse_renamed(plain, agent, 0, self.version)
        return FirstState(schema.complete(plain))


class LateInitial(Struct, frozen=True):
    """An initial state that is looked for only where an agent has to be created."""

    find: Callable[[], Brought | None]


CREATING = "store.agent(…, initial={}), whose first commit creates it"
"""The call that gives an agent its first state, with {} for the state."""


def initial_state(schema: Schema[Any], given: Any, agent: str, way: str = CREATING) -> Plain:
    """Returns the initial state as plain data. If `given` is MISSING, the schema's type is called
    without arguments.

    Args:
        way: as for `default_state`.

    Raises:
        SchemaError: no state may be of the type, it needs arguments, or the state does not fit.
    """
    _ = schema.is_declared
    if given is MISSING:
        words = "the agent does not exist, and its schema cannot be made without values"
        return default_state(schema, words, f"agent {agent!r}", way)
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
