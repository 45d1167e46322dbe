"""Answers of a backend about itself: executors, permission to write, and sizes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, field

from perdure.errors import Corrupt
from perdure.model import Message
from perdure.public_data import PublicData
from perdure.system.stack_room import pass_on


class Served(Struct, frozen=True, omit_defaults=True):
    """An agent function that an executor runs for others, in one queue.

    Attributes:
        replays: the versions whose runs it takes besides those of its own.
    """

    function: str
    queue: str = "default"
    version: str = ""
    replays: tuple[str, ...] = ()


class ExecutorRow(Struct, frozen=True):
    """A process that runs agents.

    Attributes:
        expires: the end of its last heartbeat, in microseconds since 1970 by the store's clock.
        serves: names of the agent functions that it runs for others.
        alive: True if it may still be running; see `Backend.alive`.
        served: these functions with their queues and versions.
    """

    id: str
    expires: int
    serves: tuple[str, ...] = ()
    alive: bool = False
    served: tuple[Served, ...] = ()

    @classmethod
    def of(cls, executor: str, expires: int, served: str, *, alive: bool) -> ExecutorRow:
        """Returns the row of an executor, with what it serves read from `serves_text`.

        Raises:
            Corrupt: the text of a living one cannot be read; what a dead one served does not
                matter.
        """
        try:
            found = _served(served)
        except (msgspec.MsgspecError, RecursionError) as error:
            pass_on(error)
            if not alive:
                return cls(executor, expires)
            raise Corrupt(
                f"what it serves cannot be read ({error})",
                target=f"executor {executor!r}",
                hint="its next heartbeat writes it again; if it does not, end its process",
            ) from error
        each = _each(found)
        names = dict.fromkeys(one.function for one in each)
        return cls(executor, expires, tuple(names), alive, tuple(each))

    def runs(self, function: str, queue: str, version: str = "") -> bool:
        """True if it lives, and would execute a run of this version of a function in this queue."""
        return self.alive and (function, queue, version) in routed((self,))


Routed = tuple[str, str, str]
"""A function, a queue, and a version."""


def routed(executors: Iterable[ExecutorRow], *, exactly: bool = False) -> frozenset[Routed]:
    """Returns what runs of which functions, queues and versions go to these executors.

    Args:
        exactly: without those that they only replay.
    """
    found: set[Routed] = set()
    for row in executors:
        for one in row.served:
            versions = (one.version,) if exactly else (one.version, *one.replays)
            found.update((one.function, one.queue, version) for version in versions)
    return frozenset(found)


_served = msgspec.json.Decoder(list[str | Served] | dict[str, list[str]]).decode

Serves = Mapping[str, Sequence[str]] | Sequence[str | Served]
"""Names of functions, and of which queues each is run; without: of the default one. Or functions
with all that."""


def _each(serves: Serves) -> list[Served]:
    if isinstance(serves, Mapping):
        return [Served(name, queue) for name, queues in serves.items() for queue in queues]
    return [Served(one) if isinstance(one, str) else one for one in serves]


def serves_text(serves: Serves) -> str:
    """Returns the stored form: JSON; only the names if all queues are the default one, and names
    with their queues if no function has a version."""
    served = _each(serves)
    if any(one.version or one.replays for one in served):
        return msgspec.json.encode(served).decode()
    queues: dict[str, list[str]] = {}
    for one in served:
        queues.setdefault(one.function, []).append(one.queue)
    if any(of != ["default"] for of in queues.values()):
        return json.dumps(queues)
    return json.dumps([*queues])


class Sizes(PublicData, Struct):
    """Bytes kept for one agent, or for all.

    Attributes:
        leaves: parts of long lists, which snapshots share.
        file_bytes: of all files of the store, also where one agent was asked for.
        extra: what else the backend says, by its own names.
    """

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
    """A page of the messages that were put into inboxes; `cursor` as in `Feed`.

    Attributes:
        last: no message has a greater number, taken or removed ones included; may be 0 if there are
            more pages.
    """

    messages: list[Message]
    cursor: str
    last: int = 0


class Standing(Struct, frozen=True):
    """Permission to write to a store, or to one agent in it, other than by `Backend.ship`.

    Attributes:
        why: a text that the backend keeps; `perdure.storage.standing` reads it.
    """

    closed: bool
    why: str
