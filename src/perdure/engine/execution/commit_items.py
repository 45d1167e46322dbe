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
from perdure.storage.log.refusals import BegunError, OvertakenError

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
        alone: it is the last of its commit, which may be refused for it.
    """

    cause: Cause
    riders: Riders = NOTHING
    recording: Recording | None = None
    change: Callable[[Riders], Flow[Committed]] | None = None
    settled: bool = False
    error: BaseException | None = None
    landing: Callable[[], None] | None = None
    wake: Callable[[], None] | None = None
    alone: bool = False

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

    def overtaken(self, error: OvertakenError) -> tuple[list[Item], list[Item]]:
        """Returns the item for which the commit was refused, if that is known, and those that go
        once more. Of several that it may be, each is the last of a commit of its own then."""
        begun = isinstance(error, BegunError)
        mine = [one for one in self.items if (one.riders.fresh if begun else one.riders.going)]
        if len(mine) == 1:
            return mine, [one for one in self.items if one is not mine[0]]
        for one in mine:
            one.alone = True
        return [], self.items


def next_items(queue: list[Item]) -> list[Item]:
    """Takes those of the next commit out of a queue: up to the first change of the state, or to one
    for which it may be refused. One that tells a run something is seldom refused: others join it,
    but no change of the state, as all of the commit may have to go once more."""
    items: list[Item] = []
    sends = False
    while queue:
        last = queue[0]  # below, `Item.changes` without a call
        if last.recording is not None or last.change is not None or last.riders.release:
            if not sends:
                items.append(queue.pop(0))
            break
        items.append(queue.pop(0))
        if last.riders.fresh or last.alone:
            break
        sends = sends or bool(last.riders.going)
    return items


def is_this_threads(error: BaseException) -> bool:
    """Returns True if an error must be raised where it came, whoever waits for the commit: as
    Ctrl-C, which would otherwise be lost if no caller waits."""
    return not isinstance(error, Exception | RunInterrupted)
