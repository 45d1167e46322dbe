"""All that a type is made of: what stands in its annotations, and in the fields of its classes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, get_args, get_origin

from perdure.core.types.annotations import Bare, unwrap
from perdure.core.types.classes import Face
from perdure.core.types.faces import face_of
from perdure.core.types.forms import is_alias, is_literal, key_of, size, unpacked
from perdure.core.types.hints import all_hints
from perdure.core.types.type_arguments import TypeArguments
from perdure.core.types.type_variables import items_of_tuple
from perdure.errors import SchemaError

_GROWTH_MAX = 8
"""Times that a class or alias may refer to itself with larger types than before. Of those that do
so without an end, the first few cost little."""


class Parts:
    """All that is found in an annotation, and below it.

    Attributes:
        annotations: all, without their wrappers.
        faces: those of the classes, by the key of the annotation that names each.
        tuples: the named tuples, with what their type variables stand for.
    """

    def __init__(self, annotation: Any) -> None:
        self.annotations: list[Bare] = []
        self.faces: dict[Any, Face] = {}
        self.tuples: list[tuple[Any, TypeArguments]] = []
        self._seen: set[Any] = set()
        self._open: dict[Any, list[int]] = {}
        self._find(annotation)

    def _find(self, annotation: Any) -> None:
        alias = get_origin(annotation) if is_alias(get_origin(annotation)) else annotation
        if not is_alias(alias):
            return self._find_in(annotation, unwrap(annotation))
        key = key_of(annotation)
        if key not in self._seen:
            self._seen.add(key)
            with self._inside(alias, annotation):
                self._find_in(annotation, unwrap(annotation))
        return None

    def _find_in(self, annotation: Any, bare: Bare) -> None:
        self.annotations.append(bare)
        kind = bare.type
        origin = get_origin(kind) or kind
        if any(unpacked(one) is not None for one in get_args(kind)):
            bare.misread = bare.beyond = True
        for one in () if is_literal(kind) else _arguments(kind):
            self._find(one)
        if not isinstance(origin, type) or origin.__module__ == "builtins":
            return
        key = key_of(kind)
        if key in self._seen:
            return
        self._seen.add(key)
        with self._inside(origin, kind):
            for one in self._fields(origin, kind):
                self._find(one)

    def _fields(self, origin: type, kind: Any) -> list[Any]:
        face = face_of(kind)
        if face is not None:
            self.faces[key_of(kind)] = face
            return [field.annotation for field in face.fields.values()]
        if issubclass(origin, tuple):
            self.tuples.append((kind, TypeArguments(kind)))
            return list(hints_of_tuple(kind).values())
        return []

    @contextmanager
    def _inside(self, origin: Any, annotation: Any) -> Iterator[None]:
        """Refuses what refers to itself with ever larger types."""
        sizes = self._open.setdefault(origin, [])
        sizes.append(size(annotation))
        if sum(a < b for a, b in pairwise(sizes)) > _GROWTH_MAX:
            name = origin.__name__
            raise SchemaError(
                f"{name} refers to itself with ever larger types: within {name}[T], say, to "
                f"{name}[list[T]]",
                target=name,
                hint=f"refer to {name}[T], or declare plain data there: Any",
            )
        try:
            yield
        finally:
            sizes.pop()


def _arguments(kind: Any) -> list[Any]:
    """Returns the types that are given to a type. Those of a function's parameters are none of a
    value's."""
    origin = get_origin(kind)
    if isinstance(origin, type) and issubclass(origin, tuple) and not hasattr(origin, "_fields"):
        items, rest = items_of_tuple(kind)
        return items if rest is None else [rest]
    return [one for one in get_args(kind) if one is not ... and not isinstance(one, list | tuple)]


def hints_of_tuple(annotation: Any) -> dict[str, Any]:
    """Returns the annotations of a named tuple's fields."""
    cls, arguments = get_origin(annotation) or annotation, TypeArguments(annotation)
    hints = all_hints(cls)
    names = getattr(cls, "_fields", ())
    return {name: arguments.of(name, hints.get(name, Any)) for name in names}
