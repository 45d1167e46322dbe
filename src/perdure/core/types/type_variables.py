"""Type variables: what each of them stands for, and annotations with that in their place.

Whoever reads the whole of a value and whoever edits a part of it must see the same type in the
place of each variable. So they are replaced here for everyone, by name, however they are declared
and in whatever order they stand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ParamSpec, TypeVar, TypeVarTuple, Union, get_args

from perdure.core.types.forms import is_variable, replaced, unpacked
from perdure.errors import SchemaError

NOTHING: Mapping[Any, Any] = {}


def substitute(annotation: Any, names: Mapping[Any, Any]) -> Any:
    """Returns an annotation with its type variables replaced; those that `names` lacks stay."""
    return replaced(annotation, partial(_meant, names)) if names else annotation


def substitute_all(annotations: Sequence[Any], names: Mapping[Any, Any]) -> Sequence[Any]:
    """Returns several of them; what `*Ts` stands for takes as many places as it has."""
    found: Sequence[Any] = replaced([*annotations], partial(_meant, names))
    return found


def _meant(names: Mapping[Any, Any], part: Any) -> Any:
    if is_variable(part):
        found = names.get(part, part)
        return [*found] if isinstance(found, tuple) else found
    behind = unpacked(part)
    if isinstance(behind, TypeVarTuple) and behind in names:
        return [*names[behind]]
    return _model(part, names)


def _model(part: Any, names: Mapping[Any, Any]) -> Any:
    """Returns a generic model of pydantic's for the types meant: `Page[T]` is a class there, and
    that of a model's own variables is the model itself."""
    generic = getattr(part, "__pydantic_generic_metadata__", None)
    own = generic["parameters"] if isinstance(part, type) and generic else ()
    if not generic or not any(one in names for one in own):
        return part
    # Of one that has some of its types, pydantic would make another class than that of the same
    # types at once, which is the one that users make instances of.
    whole, given = generic["origin"] or part, generic["args"] or own
    return whole[tuple(substitute_all(given, names))]


def names_of(variables: Sequence[Any], given: Sequence[Any], what: Any) -> dict[Any, Any]:
    """Returns the type that each variable of a class or alias stands for, where types are given for
    them: `what`.

    A variable that none is given for has its default, or is missing. A TypeVarTuple stands for a
    tuple of types.

    Raises:
        SchemaError: too many are given, or too few.
    """
    if len(variables) == 1 and isinstance(variables[0], ParamSpec) and not _is_list(given):
        given = [list(given)]  # `Call[int, str]` for `Call[[int, str]]`
    several = next((at for at, one in enumerate(variables) if isinstance(one, TypeVarTuple)), None)
    if several is not None and len(given) >= len(variables) - 1:
        end = len(given) - (len(variables) - several - 1)
        given = [*given[:several], tuple(given[several:end]), *given[end:]]
    needed = [one for one in variables[len(given) :] if default_of(one) is None]
    if len(given) > len(variables) or needed:
        stated = ", ".join(one.__name__ for one in variables)
        raise SchemaError(
            f"{what!r} does not give a type for each of its variables: {stated}",
            target=getattr(what, "__name__", str(what)),
            hint="write one for each, in that order",
        )
    names: dict[Any, Any] = {}
    for at, one in enumerate(variables):
        default = default_of(one)
        meant = given[at] if at < len(given) else default
        # typing itself puts defaults in, and leaves the variables that they name.
        names[one] = substitute(meant, names) if meant == default else meant
        if isinstance(one, TypeVarTuple) and not isinstance(names[one], tuple):
            names[one] = (names[one],)
    return names


def _is_list(given: Sequence[Any]) -> bool:
    return len(given) == 1 and (given[0] is ... or isinstance(given[0], list | tuple | ParamSpec))


def default_of(variable: Any) -> Any:
    """Returns a variable's default; None without one."""
    default = getattr(variable, "__default__", None)
    none = type(default).__name__ in ("NoDefaultType", "_NoDefaultType")
    return None if none else default


def unfilled(variable: Any) -> Any:
    """Returns what a variable stands for that nothing was given for, as pydantic does."""
    default = default_of(variable)
    if default is not None:
        return default
    if not isinstance(variable, TypeVar):
        return Any
    if variable.__constraints__:
        return Union[variable.__constraints__]  # noqa: UP007
    return Any if variable.__bound__ is None else variable.__bound__


def are_plain(variables: Iterable[Any]) -> bool:
    """True if each stands for one type, and says nothing of itself."""
    return all(isinstance(one, TypeVar) and default_of(one) is None for one in variables)


def items_of_tuple(annotation: Any) -> tuple[list[Any], Any]:
    """Returns the types of a tuple's items, with what stands behind stars in its place.

    Returns:
        The types, one for each item, and None; or none, and that of all items.

    Raises:
        SchemaError: it has items of a known number, and any number of others.
    """
    if annotation is tuple or not hasattr(annotation, "__args__"):
        return [], Any
    items: list[Any] = []
    rest: list[Any] = []
    args = get_args(annotation)
    if len(args) == 2 and args[1] is ...:
        return [], args[0]
    for one in args:
        behind = unpacked(one)
        if behind is None:
            items.append(one)
            continue
        if isinstance(behind, TypeVarTuple):
            default = unpacked(default_of(behind))
            behind = tuple[Any, ...] if default is None else default
        within, more = items_of_tuple(behind)
        items += within
        rest += [] if more is None else [more]
    if rest and (items or len(rest) > 1):
        raise SchemaError(
            f"{annotation!r} has items of a known number, and any number of others",
            target="tuple",
            hint="declare tuple[X, ...], or a tuple with a list in it",
        )
    return items, rest[0] if rest else None
