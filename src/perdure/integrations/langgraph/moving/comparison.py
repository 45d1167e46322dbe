"""Comparison of a checkpoint in the source and in the store: values and types, down to the last
field."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple
from pydantic import BaseModel

from perdure.core.values.plain_values import Path, format_path

SAME_MAX = 500_000
SHOWN = 60


class Comparison:
    """Compares what two savers give. Two objects that were found alike once are not looked at
    again: nobody may change them while this is in use."""

    def __init__(self) -> None:
        self._same: dict[tuple[int, int], tuple[Any, Any]] = {}

    def forget(self) -> None:
        self._same.clear()

    def of(self, source: CheckpointTuple, store: CheckpointTuple) -> str | None:
        """Returns the place and kind of the first difference, e.g. ``state.messages[3].content: 'a'
        in the source, 'b' in the store``; None if there is none. Ignores pending writes (see
        `writes`)."""
        theirs, ours = dict(source.checkpoint), dict(store.checkpoint)
        parts = (
            ("state", theirs.pop("channel_values", None), ours.pop("channel_values")),
            ("checkpoint", theirs, ours),
            ("metadata", source.metadata, store.metadata),
            ("parent", _parent(source), _parent(store)),
        )
        for root, one, other in parts:
            found = next(self._differences(one, other, ()), None)
            if found is not None:
                return _words(root, *found)
        return None

    def writes(self, source: Sequence[Any], store: Sequence[Any]) -> str | None:
        """The first difference of pending writes."""
        for one, other in zip(source, store, strict=False):
            if one[:2] != other[:2]:
                return f"pending writes: {one[:2]} in the source, {other[:2]} in the store"
            found = next(self._differences(one[2], other[2], ()), None)
            if found is not None:
                return _words(f"writes of task {one[0]}, {one[1]}", *found)
        if len(source) != len(store):
            return f"pending writes: {len(source)} in the source, {len(store)} in the store"
        return None

    def _differences(self, one: Any, other: Any, at: Path) -> Iterator[tuple[Path, Any, Any]]:
        if one is other or (id(one), id(other)) in self._same:
            return
        if type(one) is not type(other):
            yield at, one, other
            return
        if type(one) is list or type(one) is tuple or type(one) is deque:
            yield from self._in_lists(one, other, at)
        elif isinstance(one, dict):
            yield from self._in_dicts(one, other, at)
        elif (fields := _fields(one)) is not None:
            found = next(self._in_dicts(fields, _fields(other) or {}, at), None)
            if found is not None:
                yield found
            else:
                self._note(one, other)
        elif not _equal(one, other):
            yield at, one, other

    def _note(self, one: Any, other: Any) -> None:
        if len(self._same) >= SAME_MAX:
            self._same.clear()
        self._same[id(one), id(other)] = one, other  # with both, so that their ids stay theirs

    def _in_lists(self, one: Any, other: Any, at: Path) -> Iterator[tuple[Path, Any, Any]]:
        same = self._same
        for index, (a, b) in enumerate(zip(one, other, strict=False)):
            if (id(a), id(b)) not in same:
                yield from self._differences(a, b, (*at, index))
        if len(one) != len(other) or (type(one) is deque and one.maxlen != other.maxlen):
            yield at, one, other

    def _in_dicts(self, one: Any, other: Any, at: Path) -> Iterator[tuple[Path, Any, Any]]:
        keys = {(type(key), key) for key in other}
        for key, item in one.items():
            if (type(key), key) not in keys:
                yield (*at, key), item, _ABSENT
            else:
                yield from self._differences(item, other[key], (*at, key))
        for key in other.keys() - one.keys():
            yield (*at, key), _ABSENT, other[key]


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


_ABSENT = _Absent()


def _parent(found: CheckpointTuple) -> Any:
    if found.parent_config is None:
        return None
    return found.parent_config["configurable"]["checkpoint_id"]


def _fields(value: Any) -> dict[str, Any] | None:
    """Returns the contents of an instance, for classes that are compared by their contents."""
    if isinstance(value, BaseModel):
        # Sources hold no excluded fields and no private attributes: the class made them, twice.
        passed = {name for name, field in type(value).model_fields.items() if field.exclude}
        kept = {name: item for name, item in value.__dict__.items() if name not in passed}
        return {**kept, "@extra": value.__pydantic_extra__ or {}}
    if dataclasses.is_dataclass(value):
        own = dataclasses.fields(value)
        return {one.name: getattr(value, one.name, _ABSENT) for one in own}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return dict(value._asdict())
    slots = getattr(type(value), "__slots__", None)
    if isinstance(slots, tuple) and type(value).__module__.startswith("langgraph."):
        return {name: getattr(value, name, _ABSENT) for name in slots}
    return None


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, float):
        return repr(one) == repr(other)  # so that nan is itself, and -0.0 is not 0.0
    if isinstance(one, dt.datetime | dt.time):  # equal is not the same where zones differ
        return repr(one) == repr(other)
    if isinstance(one, set | frozenset):
        return {(type(item), item) for item in one} == {(type(item), item) for item in other}
    return bool(one == other)


def _words(root: str, path: Path, one: Any, other: Any) -> str:
    left, right = repr(one)[:SHOWN], repr(other)[:SHOWN]
    if type(one) is not type(other) and not isinstance(one, _Absent):
        left = f"{left} ({type(one).__name__})"
    if type(one) is not type(other) and not isinstance(other, _Absent):
        right = f"{right} ({type(other).__name__})"
    if left == right and isinstance(one, list | tuple | deque):
        left, right = f"{len(one)} items", f"{len(other)} items"
    return f"{format_path(path, root)}: {left} in the source, {right} in the store"
