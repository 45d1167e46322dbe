"""Parts of records: errors, started runs and messages to them, what is kept of calls, events that a
wait waits for, what a run is executed with. See `records`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct

from perdure.model import MICROS_MAX

Moment = Annotated[int, Meta(ge=0, le=MICROS_MAX)]
"""Microseconds since 1970; also a number of microseconds."""


class Error(Struct, frozen=True, kw_only=True):
    """The checked fields of an error. The records hold the whole map, from which it is rebuilt."""

    type: str
    text: str
    args: list[Any] = []


if TYPE_CHECKING:
    ErrorMap = Mapping[str, Any]
else:
    ErrorMap = Error
"""An error in a record: checked as one, and kept as the map that it is."""


class StartedChild(Struct, frozen=True, kw_only=True, gc=False):
    run: str
    agent: str = ""
    let_live: Any = False


class SentMessage(Struct, frozen=True, kw_only=True, gc=False):
    """A message that a run sent to one that it had started, along with this record. A signal's
    value is the record's."""

    run: str
    kind: Literal["signal", "cancel"]
    name: str = ""
    key: str = ""


class KeptForUndo(Struct, frozen=True, kw_only=True, gc=False):
    """The name of a tool, and those arguments of a call of it that its compensation needs."""

    tool: str
    args: dict[str, Any]


class WaitBranch(Struct, frozen=True, gc=False):
    """One of the events that a wait waits for.

    Attributes:
        kind, name: a ``signal``, its name; ``ask``, its question; ``child``, its run; ``timer``.
        until: of a timer: when it is due, in microseconds since 1970 by the store's clock; of a
            question: when answers come too late, 0: never."""

    label: str
    kind: Literal["signal", "ask", "child", "timer"]
    name: str = ""
    until: Moment = 0


class Surroundings(Struct, frozen=True, kw_only=True, gc=False):
    """The surroundings that a run is executed in. Of what is not there the value is empty.

    Attributes:
        config: the hash of the whole configuration; empty: none was given.
        parts: digests of its parts, by their names.
        dependencies: versions of distributions, by their names.
        environment: digests of environment variables, by their names.
    """

    config: str = ""
    parts: dict[str, str] = {}
    dependencies: dict[str, str] = {}
    environment: dict[str, str] = {}


Change = tuple[str, str, str]
"""One difference of surroundings: what, as recorded, and as found."""
