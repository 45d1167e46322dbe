"""Annotations as types, one by one: one that names something unknown does not hide the others."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace
from typing import Annotated, Any, get_type_hints

from perdure.core.types.annotations import EphemeralMark
from perdure.system.user_errors import check_own

_EPHEMERAL = re.compile(r"(\w+\.)*Ephemeral\[")


def hints_of(target: Any) -> dict[str, Any]:
    """The annotations of a function or class, with their metadata; those that cannot be resolved,
    names that only type checkers import say, are left out. That they are Ephemeral still shows."""
    try:
        target = inspect.unwrap(target)
        return get_type_hints(target, include_extras=True)
    except Exception as error:  # whatever evaluating an annotation raises
        check_own(error, partial(get_type_hints, target, include_extras=True))
    found: dict[str, Any] = {}
    owners = reversed(target.__mro__) if isinstance(target, type) else [target]
    for owner in owners:
        names = _names(owner)
        for name, said in (getattr(owner, "__annotations__", None) or {}).items():
            found.pop(name, None)
            try:
                found.update(_one(name, said, names))
            except Exception as error:
                check_own(error, partial(_one, name, said, names))
                if isinstance(said, str) and _EPHEMERAL.match(said):
                    found[name] = Annotated[Any, EphemeralMark()]
    return found


def _names(owner: Any) -> Mapping[str, Any]:
    if isinstance(owner, type):
        return vars(sys.modules.get(owner.__module__, SimpleNamespace()))
    return getattr(owner, "__globals__", {})


def _one(name: str, said: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    stub = SimpleNamespace(__annotations__={name: said})
    return get_type_hints(stub, globalns=dict(names), include_extras=True)
