"""`with agent.edit(…) as draft`: one block, one commit."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from perdure.core.draft import Recording
from perdure.errors import Conflict
from perdure.model import Cause, Commit
from perdure.state.extras import Extras, asked
from perdure.state.working import WorkingCopy

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Edit(Generic[T]):
    """The context manager that `edit` returns. `commit` is what it made, once the block ended."""

    def __init__(
        self, working: WorkingCopy[T], cause: Cause, declared: tuple[object, ...] = ()
    ) -> None:
        self._working = working
        self._cause = cause
        self._declared = declared
        self._recording: Recording | None = None
        self._made: Callable[[], Commit] | None = None
        self._throwaway = False

    def __enter__(self) -> T:
        working = self._working
        if not working.lock.acquire(timeout=60):
            raise Conflict(
                "another thread has an edit of this handle open", target=f"agent {working.name!r}",
                hint="open a handle per thread: store.agent(…)",
            )  # fmt: skip
        try:
            working.refresh()
            used = used_key(working, self._cause, self._declared)
            if used is not None:
                self._made = lambda: used
                self._throwaway = True
            self._recording = working.throwaway() if self._throwaway else working.record()
            working.editing = True
        except BaseException:
            working.lock.release()
            raise
        return self._recording.draft  # type: ignore[no-any-return]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        recording, working = self._recording, self._working
        assert recording is not None
        working.editing = False
        try:
            recording.close()
            if self._throwaway:
                return
            if kind is not None:
                working.restore(recording)
                return
            extras = key_extras(self._cause, self._declared)
            if not recording.ops and working.seq and extras.key is None:
                recording.apply_ephemeral(working.typed)
                return
            committed = working.commit_recording(recording, self._cause, extras)
            reader = working.reader
            self._made = lambda: reader.commit(committed.seq)
        finally:
            working.lock.release()

    @property
    def commit(self) -> Commit | None:
        """The commit that the block made; the recorded one if its key was used before; None if
        nothing changed."""
        return self._made() if self._made else None


def key_extras(cause: Cause, declared: tuple[object, ...]) -> Extras:
    if cause.key is None:
        return Extras()
    return Extras(key=(cause.key, asked(cause.what, *declared)))


def used_key(
    working: WorkingCopy[Any], cause: Cause, declared: tuple[object, ...] = ()
) -> Commit | None:
    """The commit that an idempotency key made before, if it did.

    Raises:
        Conflict: it was used for something else.
    """
    reader = working.reader_if_created()
    if cause.key is None or reader is None:
        return None
    found = working.context.backend.key(reader.no, cause.key)
    if found is None:
        return None
    seq, before = found
    if before != asked(cause.what, *declared):
        raise Conflict(
            f"the idempotency key {cause.key!r} was used for something else, at commit {seq}",
            target=f"agent {working.name!r}",
            hint="a key names one command: repeat it with the same words, or use another key",
        )
    return reader.commit(seq)
