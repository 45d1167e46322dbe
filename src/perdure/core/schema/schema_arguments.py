"""Checks of a schema's parts when it is made: its id and version go into every header.

A header that says something else than its readers expect makes a log that nobody can open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_origin

from perdure.core.arguments.checks import mapping
from perdure.core.arguments.names import check_name, shown

VERSION_MAX = 2**31 - 1
TYPING = frozenset({"typing", "types", "typing_extensions"})
"""The modules whose classes represent `int | None`, `NewType` and other annotations."""


def check_type(type_: Any) -> None:
    """Refuses what describes no state: a name, or a value.

    Raises:
        TypeError: it is not a type.
    """
    kind = type(type_)  # not `isinstance`: a mock with a spec claims another class
    if issubclass(kind, type) or kind.__module__ in TYPING or get_origin(type_):
        return
    if isinstance(type_, str):
        raise TypeError(
            f"a schema must be a type, not its name {shown(type_)}; "
            "perdure.Schema(Type, id=…) gives a type another name"
        )
    raise TypeError(
        f"a schema must be a type, not a value: {shown(type_)}; "
        f"{kind.__name__} is the type, and initial= takes the value"
    )


def check_id(schema_id: object) -> str:
    """Returns a schema's id in the form that the log keeps.

    Raises:
        TypeError: it is not a str. ValueError: it is empty, or not valid text.
    """
    given: Any = schema_id
    return check_name(given, "a schema (the id of a schema, id=)")


def whole_version(version: object) -> tuple[int, int]:
    """Returns major and minor of a version that may leave the minor out.

    Raises:
        TypeError: it is not made of ints. ValueError: there are not one or two of
            them, or one is negative or too large.
    """
    said = version if type(version) is tuple else (version, 0)
    if any(type(number) is not int for number in said):
        raise TypeError(f"the version of a schema must be {_WRITTEN}, not {shown(version)}")
    if len(said) != 2 or not all(0 <= number <= VERSION_MAX for number in said):
        raise ValueError(f"the version of a schema must be {_WRITTEN}, not {shown(version)}")
    return said


_WRITTEN = f"(major, minor), or the major alone, each from 0 to {VERSION_MAX}"


def check_migrations(
    migrations: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]],
) -> dict[int, Callable[[dict[str, Any]], dict[str, Any]]]:
    """Returns the migrations by the major version that each starts from.

    Raises:
        TypeError: they have another form.
    """
    made = mapping(migrations, "migrations must be {major: function}")
    for major, function in made.items():
        if type(major) is not int or not callable(function):
            raise TypeError(
                "migrations must be {major: function}, from that major version to the next one, "
                f"not {{{shown(major)}: {shown(function)}}}"
            )
    return made
