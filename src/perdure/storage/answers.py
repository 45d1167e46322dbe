"""What a backend tells of itself: who runs on it, who may write, and what takes how much room."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from perdure.model import Message


class ExecutorRow(Struct, frozen=True):
    """A process that runs agents.

    Attributes:
        expires: when its last heartbeat ends, in microseconds since 1970 by the store's clock.
        serves: names of the agent functions that it runs for others.
        alive: whether it may still be running, as `Backend.alive` says.
    """

    id: str
    expires: int
    serves: tuple[str, ...] = ()
    alive: bool = False


class Sizes(Struct):
    """Bytes kept for one agent, or for all."""

    commits: int = 0
    header_bytes: int = 0
    payload_bytes: int = 0
    snapshots: int = 0
    snapshot_bytes: int = 0
    leaves: int = 0
    leaf_bytes: int = 0
    file_bytes: int = 0
    extra: dict[str, Any] = field(default_factory=dict)


class Mail(Struct, frozen=True):
    """A part of what was put into inboxes; `cursor` as in `Feed`.

    Attributes:
        last: no message has a greater number, be it taken out or not there any more; where there
            are more parts, it may be left at 0.
    """

    messages: list[Message]
    cursor: str
    last: int = 0


class Standing(Struct, frozen=True):
    """Whether others than `Backend.ship` may write to a store, or to one agent in it.

    Attributes:
        why: text that the backend keeps and gives back; `perdure.storage.standing` reads it.
    """

    closed: bool
    why: str
