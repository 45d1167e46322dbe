"""Futures of calls on a run's own threads: a run whose threads wait for each other is unloaded."""

from __future__ import annotations

from concurrent.futures import Future
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from perdure.engine.execution import Execution
    from perdure.engine.scopes import Scope

R = TypeVar("R")


class RunFuture(Future[R]):
    """As any. A thread of its run that waits for it without a limit goes on only when the call has
    ended, and the run knows that."""

    _execution: Execution[Any]
    _scope: Scope

    @classmethod
    def of(cls, future: Future[R], execution: Execution[Any], scope: Scope) -> RunFuture[R]:
        """The same future. Pools make theirs themselves."""
        future.__class__ = cls
        assert isinstance(future, cls)
        future._execution, future._scope = execution, scope
        return future

    def result(self, timeout: float | None = None) -> R:
        if timeout is not None or self._is_elsewhere():
            return super().result(timeout)
        with self._execution.going.joining(self._lasts):
            return super().result()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if timeout is not None or self._is_elsewhere():
            return super().exception(timeout)
        with self._execution.going.joining(self._lasts):
            return super().exception()

    def _lasts(self) -> bool:
        return not self._scope.over

    def _is_elsewhere(self) -> bool:
        """Whether nothing is known of the thread that asks; a done one need not be waited for."""
        return self.done() or get_ident() != self._execution.scope().home
