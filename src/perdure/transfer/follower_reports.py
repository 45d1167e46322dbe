"""Reports of a follower: the result of one step, and its lag."""

from __future__ import annotations

from msgspec import Struct

from perdure.public_data import PublicData
from perdure.storage.standing import Aside


class Lag(PublicData, Struct, frozen=True):
    """The lag of a follower.

    Attributes:
        commits: the number of commits of living agents that it does not have yet.
        seconds: the age of the first commit that it lacked at the last look; 0.0 if it had all.
    """

    commits: int
    seconds: float


class Step(PublicData, Struct, frozen=True):
    """The result of one look at the source.

    Attributes:
        more: True if it brought as much as is taken at a time, so that there is likely more.
        aside: the agents that are set aside after it.
    """

    commits: int
    messages: int
    more: bool
    aside: tuple[Aside, ...] = ()
