"""One tree of errors: each says which operation failed, on what, what to do, and whether to retry.

Callers catch `PerdureError` to catch all of it, or the named ones that they act on. An error that
comes from storage never looks like an absent value (I12). Its text can be printed: what names and
messages of others hold is made visible.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from perdure.visible import visible, visible_lines

Outcome = Literal["not_done", "done", "unknown"]


class Hint(StrEnum):
    """Hints that speak to programs: a face that speaks to people has words of its own for each."""

    HEAD_MOVED = "call agent.refresh() and decide again, or use agent.update(fn), which retries"
    """To whoever wrote on a head that has moved. The command line retries."""
    BRANCH_HELD = "wait until the run ends or waits, send it a signal, or fork"
    """A living executor has the branch."""
    RUN_EXECUTED = "wait until the run ends or waits; or end it with its agent: cancel_runs=True"
    """A living executor has a run of an agent that is to be deleted."""
    RUN_UNFINISHED = "let it finish, or say cancel_run=True"
    """A run would lose the history that it stands on."""


class PerdureError(Exception):
    """The root of the tree.

    Attributes:
        problem: what failed, in words.
        target: what the operation was about, e.g. ``agent 'ticket-42', branch 'main'``.
        hint: what the reader can do about it; empty where there is nothing.
        retry: whether the same call may succeed when it is simply made again.
    """

    retry = False

    def __init__(self, problem: str, *, target: str = "", hint: str = "") -> None:
        self.problem = problem
        self.target = target
        self.hint = str(hint)  # a plain one: it is recorded with the error
        super().__init__(problem)

    def __str__(self) -> str:
        text = f"{visible(self.target)}: {self.problem}" if self.target else self.problem
        return visible_lines(f"{text}\n  → {self.hint}" if self.hint else text)


class Conflict(PerdureError):
    """Somebody else got there first, or a name or key is already used for something else.

    Nothing was written. Read again and decide again (`agent.update` does so by itself).
    """

    retry = True


class Fenced(PerdureError):
    """The lease under which this write was made belongs to another executor now (I4).

    Nothing was written, and nothing that this owner writes will be. Stop; the new owner goes on.
    """


class InDoubt(PerdureError):
    """A tool call has an intent and no outcome: nobody knows whether it took effect (I5).

    Raised in the agent function with ``on_crash="fail"``. Find out in the world what became of it.
    """


class NeedsAttention(PerdureError):
    """A run stopped for a reason that a person must settle; the hint names the way out (I8).

    Nothing is lost: the run goes on from there by `RunHandle.settle` or `RunHandle.resume`.
    """


class RunFailed(PerdureError):
    """A run was cancelled, or ended with what is no `Exception`; start another under a new key.

    Where its function raised an exception, that is raised for whoever asks, not this.
    """


class CallFailed(PerdureError):
    """Stands for an error that cannot be raised again as it was, or whose type is not loaded.

    Attributes:
        took_effect: True if the call succeeded, and only its result could not be stored. Do not
            make it again.
    """

    took_effect = False


class Corrupt(PerdureError):
    """Stored bytes are not what was written (I11), or the files were changed under the store.

    What was committed before that can be had: the hint has the commands.

    Attributes:
        seq: the commit that cannot be read, or does not fit; 0: it is not about one commit.
        before: the last commit before it whose state can be read: `rollback` goes back to it,
            `fork` works from it. 0: there is none, or it is not about one commit.
        damages: of `verify`, all that does not hold, one by one.
        beside: those of them that are about names, keys and runs, which stand beside the log, and
            which the log says otherwise.
    """

    def __init__(
        self, problem: str, *, target: str = "", hint: str = "", seq: int = 0, before: int = 0
    ) -> None:
        super().__init__(problem, target=target, hint=hint)
        self.seq = seq
        self.before = before
        self.damages: tuple[str, ...] = ()
        self.beside: tuple[str, ...] = ()


class NotAStore(PerdureError):
    """The file or URL exists and is something other than a Perdure store. It was not touched."""


class UnsupportedFormat(PerdureError):
    """The store, or one of its records, was written by a newer Perdure than this one.

    Attributes:
        seq, before: as those of `Corrupt`, of a commit that only a newer version can read.
    """

    def __init__(
        self, problem: str, *, target: str = "", hint: str = "", seq: int = 0, before: int = 0
    ) -> None:
        super().__init__(problem, target=target, hint=hint)
        self.seq = seq
        self.before = before


class SchemaError(PerdureError):
    """A value does not fit the state schema, or breaks an invariant; names its path.

    Nothing was written.
    """


class Unstorable(SchemaError, TypeError):
    """A value of a kind that would not come back as it was (I12); names its path.

    Nothing was written. Store plain data, declare a type for it, or mark it `Ephemeral`.
    """


class SharedValue(SchemaError):
    """One mutable value would stand at two places of the state, or inside itself.

    Nothing was written. Store a copy, or an id.
    """


class Drifted(SchemaError):
    """`agent.state` was changed outside `edit` at a path that this edit touches; or the function of
    a run changed `run.state` outside its edits.

    Nothing was written. `Agent.refresh` drops that change of a handle's state.
    """


class UnknownZone(PerdureError):
    """An operation on a datetime needs the rules of its zone, which this machine does not have.

    The value is kept as it was written; see `perdure.core.values.zones.MissingZone` for the
    operations that work all the same.

    Attributes:
        zone: its key.
    """

    def __init__(self, zone: str, *, target: str = "") -> None:
        super().__init__(
            f"the time zone {zone!r} is not in the tz database of this machine",
            target=target,
            hint="install one that has it: `pip install tzdata`, or the system's package tzdata. "
            "The value is kept as it was written",
        )
        self.zone = zone


class GuardMismatch(PerdureError):
    """The surroundings recorded with a checkpoint differ from the current ones.

    Raised with ``strict=True`` only; without, see `AgentAt.mismatches`.
    """


class NotFound(PerdureError, LookupError):
    """No agent, branch, checkpoint, commit or run of that name. Storage did answer."""


class StoreUnavailable(PerdureError):
    """Storage could not do it: full, read-only, locked for too long, or failing.

    Attributes:
        outcome: ``"not_done"``; ``"unknown"`` where a commit may or may not have happened (I1); or
            ``"done"``: what was asked for is, and something behind it failed. Do not repeat it.
        no_room: True if the disk is full, or the files may not become larger. Smaller commits may
            still get in.
    """

    retry = True

    def __init__(
        self,
        problem: str,
        *,
        target: str = "",
        hint: str = "",
        outcome: Outcome = "not_done",
        no_room: bool = False,
    ) -> None:
        super().__init__(problem, target=target, hint=hint)
        self.outcome: Outcome = outcome
        self.no_room = no_room


class TimedOut(PerdureError):
    """The awaited event did not come in time. It may still come."""

    retry = True


class OutsideRun(PerdureError):
    """A tool was called where no run can be seen, in a process that is driving runs.

    It was not called. `Run.map` and `Run.executor` take the run along to other threads;
    `unrecorded` says that one means it.
    """


class RunInterrupted(BaseException):
    """Leaves an agent function without ending its run; its cause says why.

    Not an `Exception`, so that frameworks which catch everything let it through. Once raised,
    every later call of that run raises it again.
    """

    def __init__(self, reason: PerdureError, detail: Any = None) -> None:
        super().__init__(str(reason))
        self.reason = reason
        self.detail = detail
        self.__cause__ = reason

    def again(self) -> RunInterrupted:
        """The same, to be raised once more: one that is raised while it is handled would be its own
        context, and who follows those, as `contextlib.ExitStack` does, would come to no end."""
        return RunInterrupted(self.reason, self.detail)
