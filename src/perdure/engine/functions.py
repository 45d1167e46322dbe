"""`@step`, `@tool` and `@agent`: plain functions that, inside a run, are recorded."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from perdure.core.schema import Schema
from perdure.engine.current import Frame, current, driving, inside
from perdure.engine.replay import CrashPolicy
from perdure.engine.run import Run
from perdure.engine.values import Results, label, refuse_async
from perdure.errors import OutsideRun, PerdureError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

MARK = "__perdure__"
POLICIES = ("retry", "probe", "ask", "fail")


@dataclass(frozen=True, slots=True)
class AgentSpec(Generic[T]):
    """What `@agent` knows of a function."""

    name: str
    schema: Schema[T]


@overload
def step(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def step(
    *, name: str | None = None, returns: Any = None
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def step(function: Any = None, /, *, name: str | None = None, returns: Any = None) -> Any:
    """A function without outside effects: inside a run its result is recorded, and not computed
    again when the run resumes. After a crash in the middle it is simply called again.

    Outside a run it is just the function.

    Args:
        name: its name in journals; default: the function's own. It must stay the same.
        returns: the type of its result, where the annotation does not say it.
    """

    def decorate(target: Callable[P, R]) -> Callable[P, R]:
        refuse_async(target)
        title = name or label(target)
        results = _LazyResults(target, returns)

        @functools.wraps(target)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            frame = current()
            if frame is None or frame.run is None or frame.inside in ("step", "tool"):
                return target(*args, **kwargs)
            return frame.run.call_step(  # type: ignore[no-any-return]
                call, target, title, results.get(), args, kwargs
            )

        setattr(call, MARK, "step")
        return call

    return decorate if function is None else decorate(function)


@overload
def tool(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def tool(
    *, on_crash: CrashPolicy = "ask", probe: Callable[..., Any] | None = None,
    name: str | None = None, returns: Any = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...  # fmt: skip
def tool(
    function: Any = None, /, *, on_crash: CrashPolicy = "ask",
    probe: Callable[..., Any] | None = None, name: str | None = None, returns: Any = None,
) -> Any:  # fmt: skip
    """A function with outside effects: its intent is durable before it is called, its outcome
    before its caller sees it. After a crash in between, `on_crash` decides, never chance:

    - ``"ask"`` (default): the run needs attention until somebody settles the call;
    - ``"retry"``: call it again, with the same `idempotency_key`;
    - ``"probe"``: ask the outside world: `probe`, called with the same arguments, returns the
      result if the call took effect, or `NOT_DONE`;
    - ``"fail"``: the call raises `InDoubt` in the agent function.

    Exactly once needs the receiver's help: pass `idempotency_key()` on, or have a probe.

    Raises (when called):
        OutsideRun: no run can be seen, in a process that is driving runs.
        PerdureError: inside a step, another tool or an open edit.
    """
    if on_crash not in POLICIES:
        raise ValueError(f"on_crash={on_crash!r}: must be one of {', '.join(POLICIES)}")
    if (on_crash == "probe") != (probe is not None):
        raise ValueError('on_crash="probe" needs probe=, a function that looks whether it was done')

    def decorate(target: Callable[P, R]) -> Callable[P, R]:
        refuse_async(target)
        title = name or label(target)
        results = _LazyResults(target, returns)

        @functools.wraps(target)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            frame = current()
            if frame is None:
                _refuse_unrecorded(title)
                return target(*args, **kwargs)
            if frame.run is None:
                return target(*args, **kwargs)
            if frame.inside != "function":
                raise PerdureError(
                    f"a tool call inside a{'n' if frame.inside == 'edit' else ''} {frame.inside}",
                    target=f"tool {title}",
                    hint="call it from the agent function itself, or wrap it in "
                    "perdure.unrecorded(…) if it must not be recorded",
                )
            return frame.run.call_tool(  # type: ignore[no-any-return]
                call, target, title, results.get(), args, kwargs, on_crash, probe
            )

        setattr(call, MARK, "tool")
        return call

    return decorate if function is None else decorate(function)


def agent(
    schema: type[T] | Schema[T], *, name: str | None = None
) -> Callable[[Callable[Concatenate[Run[T], P], R]], Callable[Concatenate[Run[T], P], R]]:
    """A function that a store can run durably on an agent whose state has this schema.

    It is called as ``function(run, …)``, from its beginning each time the run resumes; recorded
    calls give what they gave. What it does between them must follow from its arguments, its state
    and what they gave.

    Args:
        name: names its runs; default: the function's own name. It must stay the same.
    """

    def decorate(
        function: Callable[Concatenate[Run[T], P], R],
    ) -> Callable[Concatenate[Run[T], P], R]:
        refuse_async(function)
        setattr(function, MARK, AgentSpec(name or label(function), Schema.of(schema)))
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


def unrecorded(function: Callable[P, R]) -> Callable[P, R]:
    """The function, called without recording steps and tools inside it: one means it."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with inside(Frame(None, "function")):
            return function(*args, **kwargs)

    return call


def idempotency_key() -> str:
    """The stable name of the tool call that is being made; the same after a crash. Pass it to
    receivers that ignore a second request with the same key.

    Raises:
        OutsideRun: no tool call is being made.
    """
    frame = current()
    if frame is None or frame.key is None:
        raise OutsideRun("idempotency_key() has a value only inside a tool call of a run")
    return frame.key


def fencing_token() -> int:
    """The epoch of the run's lease, growing by one per owner: for receivers that refuse writers
    with an older token. The log refuses them by itself; the outside world cannot.

    Raises:
        OutsideRun: not inside a run.
    """
    frame = current()
    if frame is None or frame.run is None:
        raise OutsideRun("fencing_token() has a value only inside a run")
    return frame.run.epoch


class _LazyResults:
    """Annotations are looked at when the function is first called: they may name later classes."""

    def __init__(self, function: Callable[..., Any], returns: Any) -> None:
        self._function = function
        self._returns = returns
        self._results: Results | None = None

    def get(self) -> Results:
        if self._results is None:
            self._results = Results(self._function, self._returns)
        return self._results


def _refuse_unrecorded(title: str) -> None:
    if driving():
        raise OutsideRun(
            "called where no run can be seen, while this process is driving runs",
            target=f"tool {title}",
            hint="a bare thread loses the run's context: call tools from the agent function, or "
            "say perdure.unrecorded(tool)(…) if it must not be recorded",
        )
