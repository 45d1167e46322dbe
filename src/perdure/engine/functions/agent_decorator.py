"""`@agent`: the decorator, and what type checkers know of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from perdure.core.arguments.bounds import NAME_MAX
from perdure.core.arguments.checks import flag
from perdure.core.arguments.checks import function as check_function
from perdure.core.arguments.names import check_name, check_words, words_of
from perdure.core.schema.schema import Schema
from perdure.engine.functions.agent_functions import AgentSpec, another, note_spec
from perdure.engine.functions.decorators import MARK
from perdure.engine.journal.values import is_async, label, refuse_generator
from perdure.state.guards import Guards, check_guards

if TYPE_CHECKING:
    from perdure.engine.functions.async_run import AsyncRun
    from perdure.engine.functions.run import Run

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class AgentDecorator(Protocol[T]):
    """The result of `agent`: a decorator of functions of either kind."""

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
    schema: type[T] | Schema[T],
    *,
    name: str | None = None,
    version: str = "",
    replays: Iterable[str] = (),
    compensate: bool = False,
    guards: Guards | None = None,
) -> AgentDecorator[T]: ...
@overload
def agent(
    *,
    name: str | None = None,
    version: str = "",
    replays: Iterable[str] = (),
    compensate: bool = False,
    guards: Guards | None = None,
) -> AgentDecorator[dict[str, Any]]: ...
@overload
def agent(
    function: Callable[Concatenate[Run[dict[str, Any]], P], R], /
) -> Callable[Concatenate[Run[dict[str, Any]], P], R]: ...
@overload
def agent(
    function: Callable[Concatenate[AsyncRun[dict[str, Any]], P], R], /
) -> Callable[Concatenate[AsyncRun[dict[str, Any]], P], R]: ...
def agent(
    schema: Any = dict,
    *,
    name: str | None = None,
    version: str = "",
    replays: Iterable[str] = (),
    compensate: bool = False,
    guards: Guards | None = None,
) -> Any:
    """Makes a function one that a store can run durably on an agent whose state has this schema.

    It is called as ``function(run, …)``, from its beginning each time the run resumes; recorded
    calls return their recorded results. Its code between them must depend only on its arguments,
    its state and these results. An ``async def`` function gets an `AsyncRun`.

    Args:
        schema: the type of the agent's state; default: dict, as with ``@perdure.agent`` alone.
        name: the name in its runs; default: the function's own name. It must stay the same.
        version: of the function's code. A run goes only to programs that have the function in the
            version that it was begun with, or in one that `replays` it. None is a version, too: the
            empty one.
        replays: other versions whose runs this one can continue, because it makes the calls that
            they recorded: ``["1"]``; ``""`` stands for runs begun without a version. From the first
            thing on that it records in a run, the run is of this version.
        compensate: True undoes what a run's tool calls did before it fails; see `Run.compensate`.
        guards: what of the program's surroundings its runs are compared by when they resume, and
            what is done if it changed; added to those of the store.
    """
    if inspect.isfunction(schema):
        return agent(dict)(schema)
    of_schema = Schema.of(schema)
    name = None if name is None else check_name(name, "an agent function")
    version = _checked(check_words(version, "version="), "version=")
    flag(compensate, "compensate=")
    guards = check_guards(guards)
    others = frozenset(_checked(one, "each of replays=") for one in words_of(replays, "replays="))

    def decorate(function: Any) -> Any:
        check_function(function, "an agent function")
        refuse_generator(function)
        named = check_name(label(function) if name is None else name, "an agent function")
        spec = AgentSpec(named, of_schema, version, is_async(function), others, compensate, guards)
        if isinstance(getattr(function, MARK, None), AgentSpec):
            function = another(function)
        note_spec(function, spec)
        return function

    return decorate


def _checked(version: str, of: str) -> str:
    if len(version) > NAME_MAX:
        raise ValueError(f"{of} has {NAME_MAX} characters at most, not {len(version):,}")
    return version
