"""`@agent`: functions that a store can run durably on an agent."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from msgspec import Struct

from perdure.core.arguments.bounds import NAME_MAX
from perdure.core.arguments.checks import function as check_function
from perdure.core.arguments.names import check_name, check_words
from perdure.core.schema.schema import Schema
from perdure.engine.functions.decorators import MARK
from perdure.engine.journal.values import is_async, label, refuse_generator

if TYPE_CHECKING:
    from perdure.engine.functions.async_run import AsyncRun
    from perdure.engine.functions.run import Run

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class AgentSpec(Struct, Generic[T], frozen=True):
    """What `@agent` knows of a function."""

    name: str
    schema: Schema[T]
    version: str
    is_async: bool


class AgentDecorator(Protocol[T]):
    """What `agent` returns: for functions of either kind."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Run[T], P], R], /
    ) -> Callable[Concatenate[Run[T], P], R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[AsyncRun[T], P], R], /
    ) -> Callable[Concatenate[AsyncRun[T], P], R]: ...


@overload
def agent(  # type: ignore[overload-overlap]  # a class can be called, too, and is a schema
    schema: type[T] | Schema[T], *, name: str | None = None, version: str = ""
) -> AgentDecorator[T]: ...
@overload
def agent(*, name: str | None = None, version: str = "") -> AgentDecorator[dict[str, Any]]: ...
@overload
def agent(
    function: Callable[Concatenate[Run[dict[str, Any]], P], R], /
) -> Callable[Concatenate[Run[dict[str, Any]], P], R]: ...
@overload
def agent(
    function: Callable[Concatenate[AsyncRun[dict[str, Any]], P], R], /
) -> Callable[Concatenate[AsyncRun[dict[str, Any]], P], R]: ...
def agent(schema: Any = dict, *, name: str | None = None, version: str = "") -> Any:
    """A function that a store can run durably on an agent whose state has this schema.

    It is called as ``function(run, …)``, from its beginning each time the run resumes; recorded
    calls give what they gave. What it does between them must follow from its arguments, its state
    and what they gave. An ``async def`` function gets an `AsyncRun`.

    Args:
        schema: the type of the agent's state; default: dict, as with ``@perdure.agent`` alone.
        name: names its runs; default: the function's own name. It must stay the same.
        version: runs that were begun under another version go on with the function of that
            version, where the process has one too; else with this one, as far as it does what
            they recorded.
    """
    if inspect.isfunction(schema):
        return agent(dict)(schema)
    of_schema = Schema.of(schema)
    name = None if name is None else check_name(name, "an agent function")
    version = check_words(version, "version=")
    if len(version) > NAME_MAX:
        raise ValueError(f"version= has {NAME_MAX} characters at most, not {len(version):,}")

    def decorate(function: Any) -> Any:
        check_function(function, "an agent function")
        refuse_generator(function)
        named = check_name(label(function) if name is None else name, "an agent function")
        spec = AgentSpec(named, of_schema, version, is_async(function))
        setattr(function, MARK, spec)
        if version:
            _versions[spec.name, version] = function
        return function

    return decorate


def spec_of(function: Callable[..., Any]) -> AgentSpec[Any]:
    """What `@agent` noted on a function.

    Raises:
        TypeError: it is none.
    """
    spec = getattr(function, MARK, None)
    if not isinstance(spec, AgentSpec):
        raise TypeError(
            f"{label(function)} is not an agent function: decorate it with @perdure.agent(…)"
        )
    return spec


def check_kind(function: Callable[..., Any], *, is_async: bool) -> None:
    """Whether a store of that face can run an agent function.

    Raises:
        TypeError: it is of the other kind.
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


_versions: dict[tuple[str, str], Callable[..., Any]] = {}


def of_version(name: str, version: str) -> Callable[..., Any] | None:
    """The agent function of that name that was defined with that version, if one was."""
    return _versions.get((name, version))


def by_name(functions: Iterable[Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Agent functions by their names; of several versions of one name the last.

    Raises:
        TypeError: one is no agent function.
        ValueError: two of them cannot be told apart: runs would go on with either.
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
