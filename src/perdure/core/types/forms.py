"""The forms of annotations: unions, literals, type aliases, variables; and annotations made anew of
their parts."""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Iterator, Sequence
from typing import (
    Annotated,
    Any,
    Literal,
    ParamSpec,
    TypeVar,
    TypeVarTuple,
    Union,
    get_args,
    get_origin,
)

from perdure.errors import SchemaError


def is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (Union, types.UnionType)


def is_literal(annotation: Any) -> bool:
    return get_origin(annotation) is Literal


def is_alias(annotation: Any) -> bool:
    """True for what `type` or `TypeAliasType` declares, that of typing_extensions, too."""
    return type(annotation).__name__ == "TypeAliasType"


def is_variable(annotation: Any) -> bool:
    return isinstance(annotation, TypeVar | ParamSpec | TypeVarTuple)


def unpacked(annotation: Any) -> Any:
    """Returns what stands behind the star of `*Ts` and `*tuple[int, str]`; None without a star."""
    if getattr(annotation, "__unpacked__", False):
        return get_origin(annotation)[get_args(annotation)]
    origin = get_origin(annotation)
    starred = getattr(origin, "_name", None) == "Unpack"
    return get_args(annotation)[0] if starred else None


def replaced(annotation: Any, by: Callable[[Any], Any]) -> Any:
    """Returns an annotation with each of its parts as `by` gives it: as a list what stands in the
    place of several."""
    if isinstance(annotation, list | tuple):  # the parameters of a Callable
        return _parts(annotation, by)
    found, args = by(annotation), get_args(annotation)
    if found is not annotation or not args or is_literal(annotation):
        return found
    origin: Any = get_origin(annotation)
    if origin is Annotated:
        inner = replaced(args[0], by)
        return annotation if inner is args[0] else Annotated[(inner, *annotation.__metadata__)]
    parts = _parts(args, by)
    if len(parts) == len(args) and all(map(operator.is_, parts, args)):
        return annotation
    if is_union(annotation):
        return _union(parts)
    made = origin[parts[0] if len(parts) == 1 else tuple(parts)]
    return next(iter(made)) if getattr(annotation, "__unpacked__", False) else made


def _union(parts: Sequence[Any]) -> Any:
    try:
        return Union[tuple(parts)]  # noqa: UP007
    except TypeError as error:
        raise SchemaError(
            f"Python makes no union of {', '.join(map(str, parts))}: {error}",
            hint="use marks that have a hash, in Annotated, or leave them out",
        ) from error


def _parts(args: Sequence[Any], by: Callable[[Any], Any]) -> list[Any]:
    return [*_spliced(args, by)]


def _spliced(args: Sequence[Any], by: Callable[[Any], Any]) -> Iterator[Any]:
    for one in args:
        made = replaced(one, by)
        if isinstance(made, list) and unpacked(one) is not None:
            yield from made
        else:
            yield made


def names_generic_model(annotation: Any) -> bool:
    """True if a model of pydantic's that has type variables is among the parts of an annotation."""
    generic = getattr(annotation, "__pydantic_generic_metadata__", {})
    return bool(generic.get("parameters")) or any(map(names_generic_model, get_args(annotation)))


def key_of(annotation: Any) -> Any:
    """Returns what stands for an annotation in dicts and sets: itself, if it can."""
    try:
        hash(annotation)
    except TypeError:
        inside = annotation if isinstance(annotation, list | tuple) else get_args(annotation)
        if not inside:
            return _Itself(annotation)
        return (get_origin(annotation), *map(key_of, inside))
    return annotation


class _Itself:
    """Stands for an object that has no hash: a mark, say. It holds it, so that its id stays its
    own."""

    def __init__(self, one: object) -> None:
        self._one = one

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other._one is self._one

    def __hash__(self) -> int:
        return id(self._one)


def size(annotation: Any) -> int:
    """Returns the number of types that an annotation names."""
    if isinstance(annotation, list | tuple):
        return sum(map(size, annotation))
    generic = getattr(annotation, "__pydantic_generic_metadata__", {})
    return 1 + sum(map(size, generic.get("args") or get_args(annotation)))
