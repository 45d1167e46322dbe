"""What the function of a run hears where a task of it is cancelled, kept with the word that it was.

A scope of anyio's catches what says that this scope caused it, and code of one's own may go by
``task.cancel("the user left")``. A task that is cancelled once more while the first time is being
recorded hears the later one, and which that is depends on how long a commit took. So what was heard
is recorded, and heard again on replay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from perdure.core.format.records import Outcome

if TYPE_CHECKING:
    import asyncio

    from perdure.state.event_loop.delayed_cancel import Told

E = TypeVar("E", bound=BaseException)

TOLD_MAX = 1000
"""Bytes of a cancellation's text. A longer one is not kept: who cancels again on replay says it."""


class Heard(Struct, frozen=True):
    """What the function is about to hear of a call whose task was cancelled.

    Attributes:
        kind: of the call.
        record: that says so, as `told_of`.
    """

    kind: str
    record: Mapping[str, Any]

    def is_as(self, cancelled: BaseException) -> bool:
        """Whether it hears this."""
        return told_of(cancelled).get("told") == self.record.get("told")


def told_of(cancelled: BaseException, *, several: bool = False) -> dict[str, Any]:
    """What a record has of what a cancellation says: ``told``, which is empty or one text; nothing,
    where it says something else.

    Args:
        several: there were more of them, and this is the one that is heard: which that is goes by
            how many rounds of the loop something took, where one of anyio's comes in each.
    """
    said = cancelled.args
    if len(said) > 1 or (said and type(said[0]) is not str):
        return {}
    try:
        if said and len(said[0].encode()) > TOLD_MAX:
            return {}
    except UnicodeEncodeError:
        return {}
    return {"told": [*said], "several": True} if several else {"told": [*said]}


def as_told(record: Outcome | None, told: Told) -> asyncio.CancelledError:
    """What is heard of cancellations that came again, by the record that they are to be heard. If
    there are more now than that one knew of, then it was killed before it could tell of them."""
    said = record.told if record is not None else None
    if record is None or said is None or (told.several and not record.several):
        return told.error
    return told.error if tuple(said) == told.error.args else type(told.error)(*said)


def alone(cancelled: E) -> E:
    """Without those that came before it. Scopes of anyio's go by them, too, and on replay they are
    others."""
    cancelled.__context__ = None
    return cancelled
