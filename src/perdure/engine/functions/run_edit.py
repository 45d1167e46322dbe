"""The block of `Run.edit`."""

from __future__ import annotations

from typing import Generic, TypeVar

from perdure.engine.execution.current_run import RunFrame, inside
from perdure.engine.execution.execution import Execution
from perdure.engine.execution.run_edits import OpenEdit
from perdure.errors import SchemaError
from perdure.model import Cause
from perdure.system.locks import End, Span, ends_block, first_frame, span_of
from perdure.system.user_errors import of_code

T = TypeVar("T")


class RunEdit(Generic[T]):
    """The context manager of `Run.edit`."""

    def __init__(self, execution: Execution[T], cause: Cause) -> None:
        self._execution = execution
        self._cause = cause
        self._open: OpenEdit
        self._end: End | None = None

    def __enter__(self) -> T:
        span = span_of(self, first_frame())
        with self._execution.stopping:
            return self._enter(span)

    def _enter(self, span: Span | None) -> T:
        execution = self._execution
        scope, name = execution.scope(), f"edit:{self._cause.what}"
        entry = execution.find_edit(name, scope)
        execution.performer.wait_for_turn(entry, scope, name)
        execution.edits.acquire()
        try:
            self._open = execution.edits.open(name, scope, entry, self._cause)
        except BaseException:
            execution.edits.release()
            raise
        self._inside = inside(RunFrame(execution, "edit", scope))
        self._inside.__enter__()
        execution.edit_span = span
        return self._open.recording.draft  # type: ignore[no-any-return]

    @ends_block
    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with self._execution.stopping:
            self._exit(error)

    def _exit(self, error: BaseException | None) -> None:
        self._inside.__exit__(None, None, None)
        execution = self._execution
        try:
            item = execution.edits.close(self._open, self._cause, error, own=of_code())
            if item is None:
                return
            try:
                execution.check()
                execution.writer.write(item)
            except SchemaError as refused:
                failed, again = execution.edits.refused(self._open, refused)
                if failed is not None:
                    execution.writer.write(failed)
                if again is not refused:
                    raise again from refused
                raise
        finally:
            execution.edits.release()
