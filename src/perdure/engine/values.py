"""Arguments and results on their way into the journal: digests, previews, and typed round trips."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, get_origin, get_type_hints

from perdure.core import codec
from perdure.core.schema import EphemeralMark, Schema
from perdure.core.values import Plain, take
from perdure.errors import PerdureError, Unstorable

PREVIEW_MAX = 200
DIGEST_SIZE = 8


class Results:
    """How the results of one function are stored and rebuilt: by its declared return type."""

    def __init__(self, function: Callable[..., Any], returns: Any = None) -> None:
        declared = returns if returns is not None else _hints(function).get("return")
        untyped = declared is None or declared is Any or declared is inspect.Parameter.empty
        self._name = getattr(function, "__name__", "call")
        self._schema: Schema[Any] | None = None
        if not untyped and declared is not type(None):
            self._schema = Schema(declared, id=self._name)

    def take(self, value: Any) -> Plain:
        """The plain form of a result.

        Raises:
            Unstorable: with its path.
        """
        if self._schema is None:
            return take(value, root=f"{self._name}()")
        return self._schema.take(value, (), aliases_refused=False)

    def build(self, plain: Plain) -> Any:
        return plain if self._schema is None else self._schema.build(plain)


def refuse_async(function: Callable[..., Any]) -> None:
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{label(function)} is async; runs of async functions are not there yet")


def label(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return str(name).rsplit("<locals>.", 1)[-1]


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(inspect.unwrap(function), include_extras=True)
    except (TypeError, NameError):  # callables without annotations, or with unresolvable ones
        return {}


def bind(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], *, skip: int = 0
) -> dict[str, Any]:
    """Arguments by parameter name; defaults left out. `skip`: leading parameters to leave out."""
    try:
        signature = inspect.signature(function)
        bound = signature.bind(*([None] * skip), *args, **kwargs)
    except ValueError:  # builtins without a signature
        return {**{str(i): arg for i, arg in enumerate(args)}, **kwargs}
    named = list(bound.arguments.items())[skip:]
    ephemeral = {
        name for name, hint in _hints(function).items()
        if any(isinstance(mark, EphemeralMark) for mark in getattr(hint, "__metadata__", ()))
    }  # fmt: skip
    return {name: value for name, value in named if name != "self" and name not in ephemeral}


def digests(arguments: Mapping[str, Any]) -> dict[str, str]:
    """A short digest of each argument; "" for what cannot be stored (clients and the like)."""
    return {name: _digest(value) for name, value in arguments.items()}


def _digest(value: Any) -> str:
    try:
        plain = _take_any(value)
    except Unstorable:
        return ""
    return sha256(codec.canonical(plain)).digest()[:DIGEST_SIZE].hex()


def _take_any(value: Any) -> Plain:
    kind = type(value)
    try:
        return take(value)
    except Unstorable:
        if get_origin(kind) is not None or kind in (list, dict, tuple, set, frozenset):
            raise
        try:
            return Schema(kind, id=kind.__name__).take(value, (), aliases_refused=False)
        except (PerdureError, TypeError) as error:
            raise Unstorable(str(error)) from error


def preview(arguments: Mapping[str, Any]) -> str:
    """The arguments as a person reads them, bounded: histories must not grow with their size."""
    text = ", ".join(f"{name}={_short(value)}" for name, value in arguments.items())
    return text if len(text) <= PREVIEW_MAX else text[: PREVIEW_MAX - 1] + "…"


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 60 else text[:59] + "…"
