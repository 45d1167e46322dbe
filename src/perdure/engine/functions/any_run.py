"""Methods and properties of a run that are alike for synchronous and asynchronous functions."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload
from uuid import UUID, uuid4

from perdure.core.arguments.names import check_name
from perdure.engine.execution.execution import Execution
from perdure.engine.functions.turn_end import Again, note
from perdure.model import from_micros
from perdure.system.late_imports import loading

if TYPE_CHECKING:
    from perdure.engine.functions.resources import AsyncResource, Resource

T = TypeVar("T")
R = TypeVar("R")


class AnyRun(Generic[T]):
    """The common part of `Run` and `AsyncRun`."""

    def __init__(self, execution: Execution[T]) -> None:
        self._execution = execution
        execution.leaving.begins()

    @property
    def id(self) -> str:
        """Names the run in its store: agent, function and key, e.g. ``ticket-42/support/main``."""
        return self._execution.id

    @property
    def agent(self) -> str:
        """Name of the agent that this runs on."""
        return self._execution.agent

    @property
    def epoch(self) -> int:
        """The fencing token of the lease that this executes under."""
        return self._execution.epoch

    @property
    def trace(self) -> str | None:
        """The trace id of the run, and of its commits; see `Store.options`."""
        return self._execution.working.trace

    @property
    def replaying(self) -> bool:
        """True while the function is still being replayed."""
        return self._execution.journal.replaying

    @property
    def state(self) -> T:
        """The agent's state as of the last recorded call that the function has come to. Change it
        inside `edit`: a change outside is not stored, and raises `Drifted` at the next tool call,
        wait or edit, or at the end."""
        return self._execution.state

    @property
    def doubt(self) -> BaseException | None:
        """The first error that this run's code got of a call which took effect, or may have:
        `InDoubt`, or a `CallFailed` that says ``took_effect``. None: there is none so far.

        A framework may have caught it, and told its model that the tool failed: the model would
        call it again. Raise this before you ask the model on.
        """
        return self._execution.leaving.doubt

    # -- resources ---------------------------------------------------------------------------

    @overload
    def resource(self, opener: Resource[R], /) -> Resource[R]: ...
    @overload
    def resource(self, opener: AsyncResource[R], /) -> AsyncResource[R]: ...
    @overload
    def resource(  # type: ignore[overload-overlap]
        self,
        opener: Callable[..., AsyncIterator[R]],
        /,
        *,
        check: Callable[[Any], Any] | None = None,
        name: str | None = None,
    ) -> AsyncResource[R]: ...
    @overload
    def resource(  # type: ignore[overload-overlap]
        self,
        opener: Callable[..., Awaitable[R]],
        /,
        *,
        check: Callable[[Any], Any] | None = None,
        name: str | None = None,
    ) -> AsyncResource[R]: ...
    @overload
    def resource(
        self,
        opener: Callable[..., Iterator[R]],
        /,
        *,
        check: Callable[[Any], Any] | None = None,
        name: str | None = None,
    ) -> Resource[R]: ...
    @overload
    def resource(
        self,
        opener: Callable[..., AbstractContextManager[R]],
        /,
        *,
        check: Callable[[Any], Any] | None = None,
        name: str | None = None,
    ) -> Resource[R]: ...
    @overload
    def resource(
        self,
        opener: Callable[..., R],
        /,
        *,
        check: Callable[[Any], Any] | None = None,
        name: str | None = None,
    ) -> Resource[R]: ...
    def resource(
        self,
        opener: Any,
        /,
        *,
        check: Callable[[Any], Any] | None = None,
        name: str | None = None,
    ) -> Any:
        """Returns a resource of this run, which is not opened yet: for openers that need the
        function's arguments, and to be passed to steps and tools. They get it by its ``get()``.

        Args:
            opener, check, name: as for `perdure.resource`; or a resource.
        """
        with self._execution.asking, loading:
            from perdure.engine.functions.resources import of_run  # for few

        return of_run(self._execution, opener, check, name)

    # -- varying values ------------------------------------------------------------------------

    def now(self) -> datetime:
        """The time, aware, in UTC; the same again on replay."""
        execution = self._execution
        return execution.value("now", lambda: from_micros(execution.now()))  # type: ignore[no-any-return]

    def random(self) -> float:
        """A random number from [0, 1); the same again on replay."""
        return self._execution.value("random", random.random)  # type: ignore[no-any-return]

    def uuid(self) -> UUID:
        """A random UUID; the same again on replay."""
        return self._execution.value("uuid", uuid4)  # type: ignore[no-any-return]

    # -- turns, code and people --------------------------------------------------------------

    def again(self, /, *args: Any, **kwargs: Any) -> Any:
        """Ends this turn: ``return run.again(…)``. The function is called again with these
        arguments on the current state; earlier turns are never replayed again."""
        return Again(args, kwargs)

    def patched(self, name: str) -> bool:
        """Returns True for the new way, and False in runs that were past this point before the code
        had it. ``if run.patched("fee"): … else: …`` keeps those on the old way."""
        return self._execution.patched(check_name(name, "a patch"))

    def progress(self, text: str, fraction: float | None = None) -> None:
        """Reports progress to people, e.g. in ``perdure run show``. It is not part of the
        replay."""
        note(self._execution, text, fraction)
