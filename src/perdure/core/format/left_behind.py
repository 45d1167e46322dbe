"""The histories that a run left, as its records tell of them: it was set back, or was forked; and
what it had done in them by the begin of a later turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct

Number = Annotated[int, Meta(ge=0, le=2**62)]
Digests = Mapping[str, str]


class WentBack(Struct, frozen=True, kw_only=True, gc=False):
    runs: list[str]
    untils: list[Number]
    at: Number = 0
    until: Number = 0
    step: str = ""
    effects: Literal["ask", "reuse", "live"]


class LeftCall(Struct, frozen=True, kw_only=True, gc=False):
    """A tool call, or the start of a run, that was made there, and that no call stands for since.

    Attributes:
        run: the run whose record it is: this one, or one that it was forked from.
        key: its idempotency key, or the id of the run that was started.
        seq: seq of the commit with its first record; `outcome`: of the last one with its outcome, 0
            if there is none.
        made: the key of the call that it replaced.
        of: the module of the called function.
    """

    place: str
    run: str
    key: str
    seq: Number
    args: Digests
    preview: str = ""
    outcome: Number = 0
    made: str = ""
    of: str = ""


class LeftEnd(Struct, frozen=True, kw_only=True, gc=False):
    """The end of another run that was taken there: the name of its message, and the place and
    commit that have its value."""

    name: str
    place: str
    seq: Number


class LeftBehind(Struct, frozen=True, kw_only=True, gc=False):
    """See the module.

    Attributes:
        effects: the choice that was made when the run was set back last, or forked.
        unread: seq of an unreadable commit of such a history, which may record any call; 0 if there
            is none.
    """

    effects: Literal["ask", "reuse", "live"]
    calls: Sequence[LeftCall] = ()
    ends: Sequence[LeftEnd] = ()
    unread: Number = 0

    @property
    def outcomes(self) -> set[int]:
        """The seqs of the commits that have the outcomes of these calls, and these ends."""
        return {one.outcome for one in self.calls if one.outcome} | {one.seq for one in self.ends}
