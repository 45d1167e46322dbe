"""The rules for naming commits of runs as checkpoints, without being asked each time."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr

from perdure.core.arguments.checks import count, flag, seconds
from perdure.core.arguments.names import shown


class CheckpointPolicy(Struct, frozen=True):
    """The commits of runs that the process which executes them names as checkpoints, ``auto 120``.

    Attributes:
        every_commits: each n-th, counted from where the run began or resumed in this process; None:
            not by count.
        every_seconds: the last one after so much time, in seconds or as a timedelta, also if it is
            named already: then ``auto 120#2``; None: not by time.
        at_exit: the last one where the run is left because the process ends gracefully, as a worker
            does on SIGTERM.

    Raises:
        TypeError, ValueError: an attribute is invalid; raised when the policy is made.
    """

    every_commits: int | None = None
    every_seconds: Any = None
    at_exit: bool = False

    def __post_init__(self) -> None:
        if self.every_commits is not None:
            every = count(self.every_commits, "CheckpointPolicy: every_commits", least=1)
            force_setattr(self, "every_commits", every)
        if self.every_seconds is not None:
            after = seconds(self.every_seconds, "CheckpointPolicy: every_seconds")
            if after <= 0:
                raise ValueError(
                    "CheckpointPolicy: every_seconds must be more than zero, not "
                    f"{shown(self.every_seconds)}"
                )
            force_setattr(self, "every_seconds", after)
        force_setattr(self, "at_exit", flag(self.at_exit, "CheckpointPolicy: at_exit"))

    @property
    def watches(self) -> bool:
        """True if a run must be watched while it executes."""
        return self.every_commits is not None or self.every_seconds is not None
