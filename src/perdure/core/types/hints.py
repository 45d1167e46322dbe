"""Annotations resolved one by one: one that names something unknown does not hide the others."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace
from typing import Annotated, Any, get_type_hints

from perdure.core.types.annotations import EphemeralMark
from perdure.core.types.forms import replaced
from perdure.errors import SchemaError
from perdure.system.user_errors import check_own

_EPHEMERAL = re.compile(r"(\w+\.)*Ephemeral\[")


def hints_of(target: Any) -> dict[str, Any]:
    """Returns the annotations of a function or class, with their metadata. Those that cannot be
    resolved, e.g. because they name what only type checkers import, are left out; that they are
    Ephemeral still shows."""
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


def all_hints(cls: Any) -> dict[str, Any]:
    """Returns the annotations of a class, with their metadata.

    Raises:
        SchemaError: one of them cannot be resolved.
    """
    try:
        return get_type_hints(cls, include_extras=True)
    except NameError as error:
        raise SchemaError(
            f"an annotation of {cls.__qualname__} names something unknown: {error}",
            target=cls.__qualname__,
            hint="define the class at module level, not inside a function",
        ) from error
    except RecursionError:
        raise
    except Exception as error:  # whatever evaluating an annotation raises
        check_own(error, partial(get_type_hints, cls, include_extras=True))
        raise SchemaError(
            f"an annotation of {cls.__qualname__} is no type: {type(error).__name__}: {error}",
            target=cls.__qualname__,
            hint="write it so that Python can evaluate it: `X | None`, with X imported",
        ) from error


def of_itself(cls: Any, annotation: Any) -> Any:
    """An annotation of a generic pydantic model's, with the model in place of what pydantic leaves
    where one refers to itself."""

    generic = getattr(cls, "__pydantic_generic_metadata__", {})

    def meant(part: Any) -> Any:
        if type(part).__name__ != "PydanticRecursiveRef":
            return part
        if f":{id(generic.get('origin'))}[" in part.type_ref:
            return cls
        raise SchemaError(
            "a generic model that refers to itself inside of another generic model is not known",
            target=cls.__name__,
            hint="derive a class from it, with its types filled in, and refer to that",
        )

    return replaced(annotation, meant)


def _names(owner: Any) -> Mapping[str, Any]:
    if isinstance(owner, type):
        return vars(sys.modules.get(owner.__module__, SimpleNamespace()))
    return getattr(owner, "__globals__", {})


def _one(name: str, said: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    stub = SimpleNamespace(__annotations__={name: said})
    return get_type_hints(stub, globalns=dict(names), include_extras=True)
