"""The lock of a handle: one call at a time, and none within another one."""

from __future__ import annotations

from perdure.system.locks import (
    Holder,
    ReentrantLock,
    Span,
    WithinItselfError,
    first_frame,
    name_of,
)


class HandleLock(ReentrantLock):
    """The lock of a working copy. A call holds it by its own frame; the block of an edit by its
    span, or by its thread's first frame.

    While a block is open its code may take the lock again. While a call is under way nobody may on
    its thread: an invariant, a validator or a signal's handler comes from between two things that
    belong together, and would move what the call stands on.
    """

    __slots__ = ("_agent",)

    def __init__(self, agent: str) -> None:
        super().__init__()
        self._agent = agent

    def _meet_own(self, holder: Holder) -> None:
        if isinstance(holder, Span) or holder is first_frame():
            return
        raise WithinItselfError(
            f"called from within another call of this handle, in {name_of(holder)}",
            target=f"agent {self._agent!r}",
            hint="what a call runs (an invariant, a validator) may only look at `state`; a signal "
            "handler can set a flag, or raise",
        )
