"""Parts of records: an error, and a run that was started. See `records`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

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
