"""The life of a worker, and its value for the runs that it executes: `Worker(lifespan=…)`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any

from perdure.engine.execution.inside_calls import set_lifespan
from perdure.system.flag import Flag
from perdure.system.late_imports import loading

if TYPE_CHECKING:
    import asyncio

    from perdure.engine.dispatch.loop_thread import OwnLoop

Lifetime = AbstractContextManager[Any] | AbstractAsyncContextManager[Any]


class Lifespan:
    """The context manager around a worker's life, and its value for the runs that it executes.

    Args:
        made: makes it; None: there is none.

    Raises:
        TypeError: it is one itself.
    """

    def __init__(
        self,
        made: Callable[[], Lifetime] | None,
    ) -> None:
        if isinstance(made, AbstractContextManager | AbstractAsyncContextManager):
            raise TypeError(
                "lifespan= makes a context manager each time that the worker runs, and is none: "
                "pass the function that you called"
            )
        self._made = made
        self._value: Any = None
        self._end: Callable[[], None] | None = None

    def begin(self, loop: Callable[[], OwnLoop]) -> None:
        """Enters it, in the loop if it is asynchronous.

        Raises:
            TypeError: it is no context manager. Exception: its own.
        """
        if self._made is None:
            return
        made = self._made()
        if isinstance(made, AbstractContextManager):
            self._value = made.__enter__()
            self._end = lambda: _exit(made)
        elif isinstance(made, AbstractAsyncContextManager):
            life = _AsyncLife(made)
            loop().start(life.live())
            life.began.wait()
            if life.error is not None:
                raise life.error
            self._value, self._end = life.value, life.end
        else:
            raise TypeError(
                f"lifespan= returned a {type(made).__qualname__}, which is no context manager: "
                "decorate it with contextlib.contextmanager or asynccontextmanager"
            )

    def end(self) -> None:
        """Leaves it, if it was entered. Raises its own exception."""
        end, self._end = self._end, None
        self._value = None
        if end is not None:
            end()

    def enter(self) -> None:
        """Lets the calling code reach its value."""
        if self._end is not None:
            set_lifespan(self._value)


def _exit(made: AbstractContextManager[Any]) -> None:
    made.__exit__(None, None, None)


class _AsyncLife:
    """An asynchronous one, entered and left by one task."""

    def __init__(self, made: AbstractAsyncContextManager[Any]) -> None:
        self._made = made
        self._loop: asyncio.AbstractEventLoop
        self._ending: asyncio.Event
        self.began, self._over = Flag(), Flag()
        self.value: Any = None
        self.error: BaseException | None = None

    async def live(self) -> None:
        with loading:
            import asyncio  # there is a loop already

        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with self._made as self.value:
                self.began.set()
                await self._ending.wait()
        except BaseException as error:
            self.error = error
        finally:
            self.began.set()
            self._over.set()

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._ending.set)
        self._over.wait()
        if self.error is not None:
            raise self.error
