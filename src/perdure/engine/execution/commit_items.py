"""One caller's part of a commit, and a commit under way that has several of these."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

from msgspec import Struct, field

from perdure.core.draft.draft import Recording
from perdure.engine.journal.deferred_records import PutOff
from perdure.errors import RunInterrupted
from perdure.model import Cause
from perdure.storage.appending import NOTHING, Riders
from perdure.storage.log.proposals import Proposal

if TYPE_CHECKING:
    from perdure.state.working_copy import Flow
    from perdure.storage.log.proposals import Committed


class Item(Struct, eq=False):
    """Something that one caller wants to have committed.

    Attributes:
        riders: the commit's additions. An item that gives up the lease is its commit's last.
        recording: the recording of an edit.
        change: makes the commit's flow, of what comes along with it: a move of the branch.
        error: the reason why it is not committed, once `settled`.
        landing: called, on any thread, when it is in the log; within one commit, in the log's
            order.
        wake: called, on any thread, when it is settled, or when its commit needs its thread.
    """

    cause: Cause
    riders: Riders = NOTHING
    recording: Recording | None = None
    change: Callable[[Riders], Flow[Committed]] | None = None
    settled: bool = False
    error: BaseException | None = None
    landing: Callable[[], None] | None = None
    wake: Callable[[], None] | None = None

    @property
    def changes(self) -> bool:
        """True if it changes the state, or names it; it is the last item of its commit."""
        return self.recording is not None or self.change is not None


class Flight(Struct, eq=False):
    """A commit under way.

    Attributes:
        call: which brings it to the committer, or also home; an exception may end it anywhere.
        waited: what waited for it.
        handed_over: to the committer, who tells when it has landed.
    """

    items: list[Item]
    flow: Flow[Committed]
    proposal: Proposal
    waited: PutOff | None
    call: FrameType | None = None
    handed_over: bool = False
    landed: bool = False
    waiters: list[Callable[[], None]] = field(default_factory=list)


def is_this_threads(error: BaseException) -> bool:
    """Returns True if an error must be raised where it came, whoever waits for the commit: as
    Ctrl-C, which would otherwise be lost if no caller waits."""
    return not isinstance(error, Exception | RunInterrupted)
