"""The limits within which commits that need not wait for the disk reach it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr

from perdure.core.arguments.checks import count, seconds
from perdure.core.arguments.names import shown


class GroupPolicy(Struct, frozen=True):
    """When commits at durability ``"group"`` reach the disk: those of a store that was opened so,
    or of steps that say so. What comes first counts; a commit that waits for the disk takes all
    earlier ones along.

    Attributes:
        every_commits: each n-th of them waits for the disk.
        every_seconds: so long after the first that did not wait, in seconds or as a timedelta: what
            a power loss may take is at most that old, and the time that one sync takes.

    Raises:
        TypeError, ValueError: an attribute is invalid; raised when the policy is made.
    """

    every_commits: int = 64
    every_seconds: Any = 0.02

    def __post_init__(self) -> None:
        every = count(self.every_commits, "GroupPolicy: every_commits", least=1)
        force_setattr(self, "every_commits", every)
        after = seconds(self.every_seconds, "GroupPolicy: every_seconds")
        if after <= 0:
            named = shown(self.every_seconds)
            raise ValueError(f"GroupPolicy: every_seconds must be more than zero, not {named}")
        force_setattr(self, "every_seconds", after)


GROUPED = GroupPolicy()
