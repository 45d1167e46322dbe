"""The options for runs that a store is asked for: key, queue, deadline, first state."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from msgspec.structs import replace

from perdure.core.arguments.checks import Seconds
from perdure.core.arguments.names import check_name, check_words
from perdure.engine.control.run_handle import RunHandle
from perdure.engine.dispatch.command import Command
from perdure.engine.dispatch.runner import Runner
from perdure.engine.functions.agent_functions import check_kind, spec_of
from perdure.engine.functions.orders import Order, check_branch, deadline_us, key_on
from perdure.engine.functions.run import Run
from perdure.engine.journal.values import fitting
from perdure.missing import MISSING
from perdure.model import MAIN
from perdure.state.initial_state import Brought

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


class Options:
    """Options for runs; made by `Store.options`."""

    def __init__(
        self,
        runner: Runner,
        key: str,
        queue: str,
        deadline: Seconds | None,
        trace: str | None = None,
        initial: Any = MISSING,
        time_limit: Seconds | None = None,
        branch: str = MAIN,
    ) -> None:
        self._runner = runner
        self._branch = check_branch(branch)
        self._key = key_on(check_name(key, "a run's key"), self._branch)
        self._queue = check_name(queue, "a queue")
        deadline_us(deadline)
        deadline_us(time_limit, "time_limit=")
        self._deadline, self._time_limit = deadline, time_limit
        self._trace = None if trace is None else check_words(trace, "trace=")
        self._initial = initial

    @property
    def runner(self) -> Runner:
        """The store's runner; see `Store.runner`."""
        return self._runner

    def run(
        self,
        function: Callable[Concatenate[Run[T], P], R],
        agent: str,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """Runs an agent function with these options; see `Store.run`."""
        check_kind(function, is_async=False)
        order = self.order(function, agent, args, kwargs, storable=False)
        return self._runner.run(Command(function, order, args, kwargs))  # type: ignore[no-any-return]

    @overload
    def start(
        self,
        function: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
        agent: str,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> RunHandle[R]: ...

    @overload
    def start(
        self,
        function: Callable[Concatenate[Any, P], R],
        agent: str,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> RunHandle[R]: ...

    def start(
        self, function: Callable[..., Any], agent: str, /, *args: Any, **kwargs: Any
    ) -> RunHandle[Any]:
        """Starts a run with these options; see `Store.start`."""
        order = self.order(function, agent, args, kwargs, storable=True)
        # Found out now: a worker could only fail to create the agent, again and again.
        _ = spec_of(function).schema.is_declared
        first = order.first
        run = self._runner.start(order, lambda: first or self._first(function, order.agent))
        handle: RunHandle[Any] = RunHandle(self._runner.context, self._runner.wakeups, run)
        return handle.typed(function)

    def order(
        self,
        function: Callable[..., Any],
        agent: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        storable: bool,
    ) -> Order:
        """For the faces: what these options and a call amount to."""
        try:
            order = Order.of(
                function,
                agent,
                self._key,
                args,
                kwargs,
                queue=self._queue,
                deadline=self._deadline,
                time_limit=self._time_limit,
                trace=self._trace,
                storable=storable,
                branch=self._branch,
            )
        except TypeError as error:
            if "keyword argument 'initial'" not in str(error):
                raise
            way = "store.options(initial=…).start(…) gives a new agent its first state"
            raise TypeError(f"{spec_of(function).name}: {error}; {way}") from None
        if self._initial is MISSING:
            return order
        return replace(order, first=self._first(function, order.agent))

    def _first(self, function: Callable[..., Any], agent: str) -> Brought:
        """Returns the state to create the agent with, which an order must have room for."""
        way = "store.options(initial={}).start(…)"
        first = Brought.of(spec_of(function).schema, self._initial, agent, way)
        fitting(first.state, "initial")
        return first
