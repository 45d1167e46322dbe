"""The ops of a delta, as data. `core.values.ops` applies and inverts them."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from perdure.public_data import PublicData

Plain = Any
"""A plain value. Not spelt out as a recursive type: checkers choke on it, `take` does the check."""

Path = tuple[Any, ...]
"""Dict keys and list indexes from the root of a state to a value in it."""


class _OpData(PublicData):
    __slots__ = ()
    kind_field = "op"


class Set(_OpData, Struct):
    """Puts a value at a path: a dict key (new or not), a list index that exists, or the root."""

    path: Path
    value: Plain


class Delete(_OpData, Struct):
    """Deletes a dict key."""

    path: Path


class Append(_OpData, Struct):
    """Adds values at the end of the list at a path."""

    path: Path
    values: list[Plain]


class Splice(_OpData, Struct):
    """In the list at a path, replaces `removed` items from `index` on with `values`."""

    path: Path
    index: int
    removed: int
    values: list[Plain]


class TextSplice(_OpData, Struct):
    """In the str at a path, replaces `removed` code points from `index` on with `text`."""

    path: Path
    index: int
    removed: int
    text: str


class Increment(_OpData, Struct):
    """Adds to the number at a path."""

    path: Path
    by: Plain


class SetAdd(_OpData, Struct):
    """Adds members to the set at a path."""

    path: Path
    members: list[Plain]


class SetRemove(_OpData, Struct):
    """Removes members from the set at a path."""

    path: Path
    members: list[Plain]


class Move(_OpData, Struct):
    """In the list at a path, takes the item at `source` out and inserts it at `target`."""

    path: Path
    source: int
    target: int


Op = Set | Delete | Append | Splice | TextSplice | Increment | SetAdd | SetRemove | Move
