"""The record at one place of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from perdure.core.format.records import Came, Cancelled, Intent, Outcome, Placed, WaitBegan

State = Literal[Came, "to be tried again", "not undone", "open"]

UNORDERED = ("value", "patch")
"""Kinds whose outcome is the same whenever the function comes to it: nothing waits for them."""

CHANGES = ("edit", "move")
"""Kinds whose commit changes the state, or names it."""

TIMER = "timer"
"""The kind of an entry that no call belongs to; see `execution.run_timers`."""

UNBOUND = "patch"
"""The kind that code need not reach: a patch leaves the code when no old run is left."""


class Entry(Struct):
    """The record at one place of a run.

    Attributes:
        kind: ``step``, ``tool``, ``edit``, ``move`` (a checkpoint, undo, redo or rollback),
            ``value``, ``patch`` or ``wait``; ``timer`` for one that went off.
        first: seq of the commit with its first record.
        seq: seq of the commit that settled it; while it is open, of the one that began it.
        outcome: the record with its value or error; None while it is open: a tool call in doubt,
            a wait that continues, a failed step that will be tried again.
        attempts: the number of intents of a tool call, or of failed attempts of a step.
        in_doubt: the last attempt of a tool call has an intent, and no outcome.
        failures: the records of failed attempts.
        progress: the progress saved by the last attempt; None if none.
        refused: the number of answers to a question that were refused because they did not fit.
        order: its index among the run's settled entries, by the log; -1 while it is open.
        cancelled_after_s: the seconds after which its task was cancelled there, so that the
            function never saw its outcome; None if it was not.
        told: the record of what the function heard then, if there is one.
        cut: it was open, or settled as not done, where the run was set back or forked: its
            later outcome is in the history that was left.
        completed_at: seq of the commit that completed the value of its outcome; 0 if none did.
    """

    place: str
    kind: str
    seq: int
    call: Placed
    outcome: Outcome | None = None
    attempts: int = 0
    in_doubt: bool = False
    failures: Sequence[Placed] = ()
    progress: Placed | None = None
    refused: int = 0
    order: int = -1
    scope: str = ""
    consumed: bool = False
    cancelled_after_s: float | None = None
    told: Outcome | None = None
    cut: bool = False
    first: int = 0
    completed_at: int = 0

    @property
    def state(self) -> State:
        """Its outcome, as far as that is recorded."""
        if self.cancelled:
            return "cancelled"
        if self.outcome is not None:
            return self.outcome.came
        if not self.failures or self.in_doubt:
            return "open"
        undoes = isinstance(self.call, Intent) and self.call.compensates
        for_good = undoes and not self.failures[-1].again_at
        return "not undone" if for_good else "to be tried again"

    @property
    def asks(self) -> bool:
        """True if it is a question."""
        return isinstance(self.call, WaitBegan) and self.call.question is not None

    @property
    def name(self) -> str:
        """Its place without the occurrence."""
        return self.place.rpartition("#")[0]

    @property
    def asked(self) -> bool:
        """True if it was made in a history that the run left, and not since: a person decides if it
        is made again."""
        return self.call.made_at > 0 and not self.attempts

    @property
    def shows(self) -> int:
        """Seq of the commit whose state the function sees behind it: of the one before its own, but
        behind an edit or a move of this one. What such a commit has besides that, as the end of a
        wait, was met before it."""
        changes = self.kind in CHANGES and self.call.error is None
        return self.seq if changes else self.seq - 1

    @property
    def shows_in_turn(self) -> int:
        """As `shows`, of the moment when its turn has come: what an edit changed is seen at the end
        of its block."""
        return self.shows if self.kind == "move" else self.seq - 1

    @property
    def hands(self) -> str:
        """Its place, if the function hears of an outcome there, or of being cancelled. An entry
        that is not done is made again, and its new outcome comes behind later events."""
        again = self.outcome is None or (self.outcome.not_done and not self.cancelled)
        return "" if again else self.place

    @property
    def left(self) -> bool:
        """True if the function has not reached it yet."""
        return not self.consumed and self.kind != UNBOUND

    @property
    def cancelled(self) -> bool:
        """True if its task was cancelled there, so that the function never saw the outcome."""
        return self.cancelled_after_s is not None

    @property
    def kept_on(self) -> bool:
        """True if its task was cancelled there, and the call caught that: the function went on."""
        outcome = self.outcome
        return outcome is not None and not self.cancelled and bool(outcome.kept_on)

    @property
    def unbegun(self) -> bool:
        """True if it was cancelled before there was anything that could have an outcome."""
        return isinstance(self.outcome, Cancelled)
