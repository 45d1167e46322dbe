"""The types that a class's type variables stand for, in an annotation that names the class: those
given there, and those that its bases were given where it was defined."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Protocol, get_args, get_origin

from perdure.core.types.type_variables import (
    NOTHING,
    names_of,
    substitute,
    substitute_all,
)
from perdure.system.cached import cached


class TypeArguments:
    """Those of one annotation. A variable may stand for something else in each base."""

    def __init__(self, annotation: Any) -> None:
        self._by_class: dict[Any, Mapping[Any, Any]] = {}
        origin = get_origin(annotation)
        self._note(origin or annotation, get_args(annotation), applied=origin is not None)

    @cached
    def exist(self) -> bool:
        """True if the class, or a base of it, has type variables."""
        return any(getattr(cls, "__parameters__", ()) for cls in self._by_class)

    def of(self, field: str, annotation: Any) -> Any:
        """Returns a field's annotation with its type variables replaced."""
        return substitute(annotation, self._of_declarer(field))

    def _note(self, cls: Any, given: Sequence[Any], applied: bool) -> None:
        # A base may stand twice above a class, and be given types on one of the ways only.
        if self._by_class.get(cls) or cls in (object, dict, Generic, Protocol):
            return
        variables = getattr(cls, "__parameters__", ())
        names = names_of(variables, given, cls) if applied and variables else {}
        self._by_class[cls] = names
        for base in vars(cls).get("__orig_bases__", cls.__bases__):
            origin = get_origin(base)
            if isinstance(origin or base, type):
                passed = substitute_all(get_args(base), names)
                self._note(origin or base, passed, applied=origin is not None)

    def _of_declarer(self, field: str) -> Mapping[Any, Any]:
        """Returns what the variables stand for in the class that declares a field."""
        if not any(self._by_class.values()):
            return NOTHING
        cls = next(iter(self._by_class))
        if issubclass(cls, dict):
            return self._by_class[self._of_key(cls, field)]
        declaring = [one for one in cls.__mro__ if field in inspect.get_annotations(one)]
        return self._by_class.get(declaring[0], NOTHING) if declaring else NOTHING

    def _of_key(self, cls: Any, field: str) -> Any:
        """Returns the TypedDict that declares a key: each repeats those of its bases."""
        own = inspect.get_annotations(cls).get(field)
        for base in vars(cls).get("__orig_bases__", ()):
            origin = get_origin(base) or base
            if origin in self._by_class and inspect.get_annotations(origin).get(field) == own:
                return self._of_key(origin, field)
        return cls
