"""The cancellations that a run's function hears, recorded with their message.

A scope of anyio's catches a cancellation whose message names the scope, and user code may depend on
``task.cancel("the user left")``. A task that is cancelled again while the first cancellation is
being recorded hears the later one, and which one that is depends on the duration of a commit. So
the cancellation that was heard is recorded, and heard again on replay.
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
    """The cancellation that the function is about to hear of a call.

    Attributes:
        kind: the kind of the call.
        record: the record of the message; see `told_of`.
    """

    kind: str
    record: Mapping[str, Any]

    def is_as(self, cancelled: BaseException) -> bool:
        """Returns True if it is the cancellation that the function hears."""
        return told_of(cancelled).get("told") == self.record.get("told")


def told_of(cancelled: BaseException, *, several: bool = False) -> dict[str, Any]:
    """Returns the record of a cancellation's message: ``told``, which is empty or one text; nothing
    for other messages.

    Args:
        several: there were several, and this one is heard: which one that is depends on the number
            of rounds of the loop, as anyio's come in each round.
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
    """Returns the cancellation that is heard of repeated ones, according to the record. If there
    are more now than that knew of, the process was killed before it could record them."""
    said = record.told if record is not None else None
    if record is None or said is None or (told.several and not record.several):
        return told.error
    return told.error if tuple(said) == told.error.args else type(told.error)(*said)


def alone(cancelled: E) -> E:
    """Returns a cancellation without those before it. Scopes of anyio's look at them, too, and they
    differ on replay."""
    cancelled.__context__ = None
    return cancelled
