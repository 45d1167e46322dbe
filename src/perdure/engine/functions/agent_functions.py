"""Agent functions: what `@agent` notes on them, and how they are found by name and version."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType
from typing import Any, Generic, TypeVar

from msgspec import Struct

from perdure.core.schema.schema import Schema
from perdure.engine.functions.decorators import MARK
from perdure.engine.journal.values import label
from perdure.state.guards import Guards
from perdure.storage.answers import Served

T = TypeVar("T")


class AgentSpec(Struct, Generic[T], frozen=True):
    """The properties that `@agent` gives a function.

    Attributes:
        replays: the other versions whose runs it can continue.
        compensate: what a run did is undone before it fails.
        guards: see `agent`.
    """

    name: str
    schema: Schema[T]
    version: str
    is_async: bool
    replays: frozenset[str] = frozenset()
    compensate: bool = False
    guards: Guards | None = None


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


def another(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a copy of an agent function, for another one with the same body: what the first one
    is stands on its object.

    Raises:
        TypeError: it is no plain function, and cannot be copied.
    """
    if isinstance(function, functools.partial):
        return functools.partial(function.func, *function.args, **function.keywords)
    if not isinstance(function, FunctionType):
        raise TypeError(
            f"{label(function)} is an agent function already, {spec_of(function).name!r}: wrap it "
            "in a function for another one"
        )
    parts = function.__defaults__, function.__closure__
    made = FunctionType(function.__code__, function.__globals__, function.__name__, *parts)
    for name in ("__kwdefaults__", *functools.WRAPPER_ASSIGNMENTS):
        setattr(made, name, getattr(function, name))
    made.__dict__.update(function.__dict__)
    return made


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


def taking(function: Callable[..., Any], version: str) -> Callable[..., Any] | None:
    """Returns the function of this process that a run of `function` continues with, which was begun
    by that version of it: the function of that version, or else `function` if it replays that. None
    if nothing here can: another program must."""
    spec = spec_of(function)
    if spec.version == version:
        return function
    own = _versions.get((spec.name, version))
    if own is not None and spec_of(own).is_async == spec.is_async:
        return own
    return function if version in spec.replays else None


class AgentFunctions:
    """The agent functions that a process runs for others, by name and version.

    Raises:
        TypeError: one is not an agent function.
        ValueError: two of them have the same name and version: runs would continue with either.
    """

    def __init__(self, functions: Iterable[Callable[..., Any]]) -> None:
        self._own: dict[str, dict[str, Callable[..., Any]]] = {}
        for function in functions:
            spec = spec_of(function)
            versions = self._own.setdefault(spec.name, {})
            other = versions.setdefault(spec.version, function)
            if other is not function:
                version = f", version {spec.version!r}" if spec.version else ""
                raise ValueError(
                    f"two agent functions have the name {spec.name!r}{version}: {_where(other)} "
                    f"and {_where(function)}; give one of them another name= (or a version=)"
                )

    @property
    def names(self) -> list[str]:
        return sorted(self._own)

    @property
    def words(self) -> list[str]:
        """Names with their versions, for people."""
        each = [(name, version) for name, own in sorted(self._own.items()) for version in own]
        return [f"{name} {version}" if version else name for name, version in each]

    def __contains__(self, name: str) -> bool:
        """True if it has the function, in any version."""
        return name in self._own

    def of_version(self, name: str, version: str) -> Callable[..., Any] | None:
        """Returns the function of exactly that version; None if it is not here. Of a function that
        is run for others, other versions that the program defines count, too."""
        if name not in self._own:
            return None
        return self._own[name].get(version) or _versions.get((name, version))

    def taking(self, name: str, version: str) -> Callable[..., Any] | None:
        """Returns the function that a run continues with which was begun by that version: of
        exactly that version, or else the last one that replays it; None if nothing here can."""
        if (own := self.of_version(name, version)) is not None:
            return own
        for function in reversed(self._own.get(name, {}).values()):
            if version in spec_of(function).replays:
                return function
        return None

    def served(self, queues: Iterable[str]) -> Iterator[Served]:
        """Yields what others are told that this process runs, in these queues."""
        for name, versions in self._own.items():
            replayed = {version: spec_of(one).replays for version, one in versions.items()}
            for other, version in [*_versions]:
                if other == name:
                    replayed.setdefault(version, frozenset())
            for queue in queues:
                for version, replays in replayed.items():
                    yield Served(name, queue, version, tuple(sorted(replays - {version})))


def _where(function: Callable[..., Any]) -> str:
    name = f"{function.__module__}.{function.__qualname__}"
    code = getattr(inspect.unwrap(function), "__code__", None)
    return name if code is None else f"{name} ({code.co_filename}:{code.co_firstlineno})"
