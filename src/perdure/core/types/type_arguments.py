"""The types that a class's type variables stand for, in an annotation that names the class: those
given there, and those that its bases were given where it was defined."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Generic, Protocol, get_args, get_origin

from perdure.core.types.annotations import substitute

NOTHING: Mapping[Any, Any] = {}


class TypeArguments:
    """Those of one annotation. A variable may stand for something else in each base."""

    def __init__(self, annotation: Any) -> None:
        self._by_class: dict[Any, Mapping[Any, Any]] = {}
        self._note(get_origin(annotation) or annotation, get_args(annotation))

    @property
    def passed_on(self) -> bool:
        """True if the class says what a variable of a base stands for, not the annotation: pydantic
        does not know it."""
        given, *bases = self._by_class.values() or [NOTHING]
        return any(given.get(one, one) != meant for base in bases for one, meant in base.items())

    def of(self, field: str, annotation: Any) -> Any:
        """Returns a field's annotation with its type variables replaced."""
        return substitute(annotation, self._of_declarer(field))

    def _note(self, cls: Any, given: tuple[Any, ...]) -> None:
        if cls in self._by_class or cls in (object, dict, Generic, Protocol):
            return
        variables = getattr(cls, "__parameters__", ())
        names = self._by_class[cls] = dict(zip(variables, given, strict=False))
        bases = vars(cls).get("__orig_bases__", cls.__bases__)
        for base in bases:
            origin = get_origin(base) or base
            if isinstance(origin, type):
                self._note(origin, tuple(substitute(one, names) for one in get_args(base)))

    def _of_declarer(self, field: str) -> Mapping[Any, Any]:
        """Returns what the variables stand for in the class that declares a field."""
        if not any(self._by_class.values()):
            return NOTHING
        declaring = [cls for cls in self._by_class if field in inspect.get_annotations(cls)]
        if not declaring:
            return NOTHING
        # A TypedDict repeats the fields of its bases.
        first = declaring[-1] if issubclass(declaring[0], dict) else declaring[0]
        return self._by_class[first]
