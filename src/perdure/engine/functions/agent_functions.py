"""Agent functions: what `@agent` notes on them, and how they are found by name and version."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from msgspec import Struct

from perdure.core.schema.schema import Schema
from perdure.engine.functions.decorators import MARK
from perdure.engine.journal.values import label

T = TypeVar("T")


class AgentSpec(Struct, Generic[T], frozen=True):
    """The properties that `@agent` gives a function."""

    name: str
    schema: Schema[T]
    version: str
    is_async: bool


_versions: dict[tuple[str, str], Callable[..., Any]] = {}


def note_spec(function: Callable[..., Any], spec: AgentSpec[Any]) -> None:
    """Makes a function an agent function.

    Raises:
        TypeError: nothing can be noted on it.
    """
    try:
        setattr(function, MARK, spec)
    except AttributeError:
        raise TypeError(
            f"{label(function)} cannot be an agent function, as nothing can be noted on it (a "
            "bound method, a built-in function, an object with __slots__): wrap it in a function, "
            "or in functools.partial"
        ) from None
    if spec.version:
        _versions[spec.name, spec.version] = function


def spec_of(function: Callable[..., Any]) -> AgentSpec[Any]:
    """Returns the properties that `@agent` gave a function.

    Raises:
        TypeError: it is not an agent function.
    """
    spec = getattr(function, MARK, None)
    if not isinstance(spec, AgentSpec):
        raise TypeError(
            f"{label(function)} is not an agent function: decorate it with @perdure.agent(…)"
        )
    return spec


def check_kind(function: Callable[..., Any], *, is_async: bool) -> None:
    """Checks that a store of that kind can run an agent function.

    Raises:
        TypeError: the function is of the other kind.
    """
    spec = spec_of(function)
    if spec.is_async and not is_async:
        raise TypeError(
            f"{spec.name} is async: run it with a store from perdure.open_async, "
            "as `await store.run(…)`"
        )
    if is_async and not spec.is_async:
        raise TypeError(
            f"{spec.name} is synchronous, and would hold up the event loop: make it `async def`, "
            "run it with a store from perdure.open, or leave it to a worker by store.start"
        )


def of_version(name: str, version: str) -> Callable[..., Any] | None:
    """The agent function of that name that was defined with that version, if one was."""
    return _versions.get((name, version))


def by_name(functions: Iterable[Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Returns agent functions by their names; of several versions of one name the last.

    Raises:
        TypeError: one is not an agent function.
        ValueError: two of them have the same name and version: runs would continue with either.
    """
    found: dict[str, Callable[..., Any]] = {}
    versions: dict[tuple[str, str], Callable[..., Any]] = {}
    for function in functions:
        spec = spec_of(function)
        other = versions.setdefault((spec.name, spec.version), function)
        if other is not function:
            version = f", version {spec.version!r}" if spec.version else ""
            raise ValueError(
                f"two agent functions have the name {spec.name!r}{version}: {_where(other)} and "
                f"{_where(function)}; give one of them another name= (or a version=)"
            )
        found[spec.name] = function
    return found


def _where(function: Callable[..., Any]) -> str:
    name = f"{function.__module__}.{function.__qualname__}"
    code = getattr(inspect.unwrap(function), "__code__", None)
    return name if code is None else f"{name} ({code.co_filename}:{code.co_firstlineno})"
