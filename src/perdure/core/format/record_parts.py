"""Parts of records: errors, runs that were started, what they were sent, what is kept of calls.
See `records`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct


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
