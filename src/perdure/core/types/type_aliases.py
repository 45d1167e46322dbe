"""Type aliases, of `type` and `TypeAliasType`: what they stand for, and which of them libraries may
take for something else."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any, get_args, get_origin, get_type_hints

from perdure.core.types.forms import names_generic_model
from perdure.core.types.type_variables import are_plain, names_of, substitute
from perdure.errors import SchemaError
from perdure.system.user_errors import check_own


def meant_by(alias: Any) -> Any:
    """Returns the type that an alias stands for, without names in quotes: mostly its own, which is
    recursive.

    Raises:
        SchemaError: it names what is not there.
    """
    own = {one.__name__: one for one in (alias, *alias.__type_params__)}
    names = {**vars(sys.modules.get(alias.__module__, SimpleNamespace())), **own}

    def evaluated() -> Any:
        said = SimpleNamespace(__annotations__={"it": alias.__value__})
        return get_type_hints(said, globalns=names, include_extras=True)["it"]

    try:
        return evaluated()
    except Exception as error:  # whatever evaluating it raises
        check_own(error, evaluated)
        raise SchemaError(
            f"what the alias {alias.__name__} stands for is not known: "
            f"{type(error).__name__}: {error}",
            target=alias.__name__,
            hint="define it, and what it names, at module level",
        ) from error


def meant_with_types(applied: Any) -> Any:
    """Returns what an alias stands for that is given types for its variables.

    Raises:
        SchemaError: it is given too many, or too few.
    """
    alias = get_origin(applied)
    names = names_of(alias.__type_params__, get_args(applied), applied)
    return substitute(meant_by(alias), names)


def is_in_order(alias: Any) -> bool:
    """True if msgspec gives types to the right variables: it does so in the order in which they
    stand in what the alias means, not in that of their declaration."""
    own = alias.__type_params__
    return are_plain(own) and own == getattr(alias.__value__, "__parameters__", None)


def is_simple(applied: Any) -> bool:
    """True if pydantic reads it right: each variable is given the one type that it stands for, and
    no generic model is among what the alias means: pydantic would make further classes of it."""
    alias = get_origin(applied)
    own = alias.__type_params__
    all_given = are_plain(own) and len(own) == len(get_args(applied))
    return all_given and not names_generic_model(alias.__value__)
