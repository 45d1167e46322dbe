"""Detects pydantic classes that run code over several fields as an instance is made.

Pydantic does not run it where a field is assigned: `model_post_init`, an `__init__` of its own,
`__post_init__` of a dataclass, and validators that are told of the fields before theirs. A reader
of the log makes an instance, so an edit has to validate such a class as a whole.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any


def looks_around(cls: Any, validators: Iterable[Any]) -> bool:
    """True if the class runs such code.

    Args:
        validators: pydantic's decorators of the class's fields.
    """
    if hasattr(cls, "model_fields"):
        hook = getattr(cls, "model_post_init", None)
        if cls.__pydantic_custom_init__ or _is_users(hook):
            return True
    elif hasattr(cls, "__post_init__"):
        return True
    if any(takes_info(one.func, wraps=one.info.mode == "wrap") for one in validators):
        return True
    return any(
        map(asks_around, (m for info in cls.__pydantic_fields__.values() for m in info.metadata))
    )


def asks_around(mark: Any) -> bool:
    """True if a mark of an annotation is a validator that is given other fields."""
    function = getattr(mark, "func", None)
    return function is not None and takes_info(function, wraps=type(mark).__name__[:4] == "Wrap")


def _is_users(hook: Any) -> bool:
    """True if a hook does more than what pydantic generates for private attributes."""
    name = getattr(hook, "__name__", "init_private_attributes")
    own = getattr(hook, "__qualname__", "") == "BaseModel.model_post_init"
    return name != "init_private_attributes" and not own


def takes_info(function: Any, *, wraps: bool) -> bool:
    """True if a validator is given the fields before its own: after the value, and after the
    validator that it `wraps`, if it does."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    needed = [
        one
        for one in parameters
        if one.kind <= one.POSITIONAL_OR_KEYWORD and one.default is one.empty
    ]
    return len(needed) > 1 + wraps
