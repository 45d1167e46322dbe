"""The results of a drive, and the reasons that keep one from beginning."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from perdure.errors import Conflict
from perdure.model import RunInfo


class FinishedMeanwhileError(Exception):
    """Another executor finished the run, or did its work, before this one had the lease."""


class RunResult(Struct, frozen=True):
    """The run is done, with this result."""

    result: Any


class Unloaded(Struct, frozen=True):
    """The run waits, without a process."""


class NextTurn(Struct, frozen=True):
    """The function ended its turn, and must be called again."""


End = RunResult | Unloaded | NextTurn


class BranchTaken(Conflict):
    """Another run of the agent is not finished: `run`."""

    def __init__(self, problem: str, *, target: str, hint: str, run: RunInfo) -> None:
        super().__init__(problem, target=target, hint=hint)
        self.run = run
