"""Annotations, read: the wrappers around a type, and the marks and limits that it carries."""

from __future__ import annotations

from collections import abc
from collections.abc import Iterable, Iterator
from dataclasses import is_dataclass
from typing import (
    Annotated,
    Any,
    Final,
    NotRequired,
    Required,
    TypeVar,
    get_args,
    get_origin,
)

import msgspec
from msgspec import Struct, field

from perdure.core.types.forms import is_alias, is_union, is_variable, replaced
from perdure.core.types.type_aliases import is_in_order, is_simple, meant_by, meant_with_types
from perdure.core.types.type_variables import default_of, unfilled
from perdure.errors import SchemaError

T = TypeVar("T")


class EphemeralMark(Struct, frozen=True):
    """Marks a field that is never stored; see `Ephemeral`."""


Ephemeral = Annotated[T, EphemeralMark()]
"""A field that lives in memory only: never stored, its default after rehydration.

``client: Ephemeral[Client | None] = None``. It needs a default.
"""

_WRAPPERS = (Required, NotRequired, Final)


class Bare(Struct):
    """An annotation with its wrappers removed.

    Attributes:
        misread: True if msgspec may take it for another type.
        beyond: True if pydantic does not know what it stands for.
    """

    type: Any
    metadata: list[Any] = field(default_factory=list)
    misread: bool = False
    beyond: bool = False

    @property
    def ephemeral(self) -> bool:
        return any(isinstance(mark, EphemeralMark) for mark in self.metadata)


def unwrap(annotation: Any) -> Bare:
    """Removes Annotated, NewType, Required, Final, type aliases and type variables.

    Raises:
        SchemaError: an alias stands for nothing but itself, or is not given what it needs.
    """
    metadata: list[Any] = []
    misread = beyond = False
    for _ in range(_WRAPPERS_MAX):
        origin = get_origin(annotation)
        if origin is Annotated:
            metadata = [*annotation.__metadata__, *metadata]
            annotation = annotation.__origin__
        elif origin in _WRAPPERS or getattr(origin, "__name__", "") == "ReadOnly":
            annotation = get_args(annotation)[0]
        elif hasattr(annotation, "__supertype__"):  # NewType
            annotation = annotation.__supertype__
        elif is_alias(annotation):
            annotation = meant_by(annotation)
        elif is_alias(origin):
            misread = misread or not is_in_order(origin)
            beyond = beyond or not is_simple(annotation)
            annotation = meant_with_types(annotation)
        elif is_variable(annotation):
            misread = misread or default_of(annotation) is not None
            annotation = unfilled(annotation)
        elif annotation is None:
            return Bare(type(None), metadata, misread, beyond)
        else:
            return Bare(annotation, metadata, misread, beyond)
    name = (get_origin(annotation) or annotation).__name__
    raise SchemaError(
        f"the alias {name} stands for nothing but itself",
        target=name,
        hint="give it a type that has a part of its own kind: type Tree = dict[str, Tree]",
    )


_WRAPPERS_MAX = 200


def spelled_out(annotation: Any) -> Any:
    """Returns an annotation with what aliases and type variables stand for in their place: for a
    library, which may read them otherwise."""

    def meant(part: Any) -> Any:
        if not (is_alias(part) or is_alias(get_origin(part)) or is_variable(part)):
            return part
        bare = unwrap(part)
        inner = spelled_out(bare.type)
        return Annotated[(inner, *bare.metadata)] if bare.metadata else inner

    return replaced(annotation, meant)


def of_key(annotation: Any) -> tuple[Any, bool | None]:
    """Returns a TypedDict's annotation without Required, NotRequired and ReadOnly, which are not
    types.

    Returns:
        The annotation, and whether these say that the key must be there; None where they
        say nothing.
    """
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, needed = of_key(annotation.__origin__)
        if inner is not annotation.__origin__:
            return Annotated[(inner, *annotation.__metadata__)], needed
    elif origin in (Required, NotRequired):
        inner, _ = of_key(get_args(annotation)[0])
        return inner, origin is Required
    elif getattr(origin, "__name__", "") == "ReadOnly":
        return of_key(get_args(annotation)[0])
    return annotation, None


class ItemLimits(Struct, frozen=True):
    """The number of items that a container may have. `judged`: something else judges the whole of
    what stands there, or an item: functions of the user, or what only a library knows."""

    least: int = 0
    most: int | None = None
    judged: bool = False

    def problem(self, count: int) -> str | None:
        if count < self.least:
            return f"has {count} items; at least {self.least} are needed"
        if self.most is not None and count > self.most:
            return f"has {count} items; at most {self.most} are allowed"
        return None


def limits(metadata: Iterable[Any]) -> ItemLimits:
    """Returns the limits that annotated_types, pydantic and msgspec write as min_length and
    max_length; judged if there are other marks than these."""
    least, most, judged = 0, None, False
    for mark in marks_of(metadata):
        low, high = getattr(mark, "min_length", None), getattr(mark, "max_length", None)
        least = low if isinstance(low, int) else least
        most = high if isinstance(high, int) else most
        judged = judged or not (_says_nothing(mark) or _is_of_size(mark))
    return ItemLimits(least, most, judged)


def marks_of(metadata: Iterable[Any]) -> Iterator[Any]:
    """Yields the marks of an annotation, those within others too."""
    for mark in metadata:
        yield mark
        nested = getattr(mark, "metadata", None)  # pydantic's FieldInfo keeps its marks there
        if isinstance(nested, list | tuple):
            yield from nested


def _says_nothing(mark: Any) -> bool:
    """True if a mark is known to judge no value: those of msgspec judge by size alone, and pydantic
    passes over all but its own, those of annotated_types, and those with a hook of its."""
    if isinstance(mark, EphemeralMark | msgspec.Meta):
        return True
    if hasattr(mark, "__get_pydantic_core_schema__"):
        return type(mark).__name__ in _SILENT and type(mark).__module__.startswith("pydantic.")
    homes = {one.__module__.partition(".")[0] for one in type(mark).__mro__}
    return not homes & {"pydantic", "annotated_types"} or type(mark).__name__ in _SILENT


_SILENT = {"FieldInfo", "Discriminator", "Tag", "WithJsonSchema", "Examples", "DocInfo"}
"""Marks of these libraries that demand nothing. What a `FieldInfo` does stands in its own
metadata."""


def _is_of_size(mark: Any) -> bool:
    """True if a mark says nothing but how many items there may be."""
    own = type(mark).__module__.partition(".")[0] == "annotated_types"
    return own and type(mark).__name__ in ("MinLen", "MaxLen", "Len")


def is_judged(annotation: Any) -> bool:
    """True if functions of the user check a whole value of this annotation; of one with parts, also
    if anything else may."""
    bare = unwrap(annotation)
    members = get_args(bare.type) if is_union(bare.type) else ()
    if has_validators(bare.metadata) or any(map(is_judged, members)):
        return True
    return has_parts(bare.type) and judges_whole(bare)


def judges_whole(bare: Bare) -> bool:
    """True if a mark may judge the whole of a value with parts, other than by the number of items
    of a list, dict or set, which is looked at wherever it changes."""
    said = limits(bare.metadata)
    counted = (get_origin(bare.type) or bare.type) in COUNTED
    return said.judged or (not counted and said != ItemLimits())


LISTS = (list, abc.Sequence, abc.MutableSequence)
DICTS = (dict, abc.Mapping, abc.MutableMapping)
SETS = (set, abc.Set, abc.MutableSet)
COUNTED = (*LISTS, *DICTS, *SETS, frozenset)


def has_parts(kind: Any) -> bool:
    """True if a value of this type may be changed inside."""
    if is_union(kind):
        return any(has_parts(unwrap(one).type) for one in get_args(kind))
    origin = get_origin(kind) or kind
    return origin in (Any, object, *COUNTED) or (
        isinstance(origin, type)
        and (
            is_dataclass(origin)
            or issubclass(origin, Struct)
            or hasattr(origin, "__pydantic_fields__")
            or hasattr(origin, "__required_keys__")
        )
    )


def has_validators(metadata: Iterable[Any]) -> bool:
    """True if functions of the user run when a value of this annotation is validated."""
    return any(
        type(mark).__module__.startswith("pydantic.functional_validators") for mark in metadata
    )
