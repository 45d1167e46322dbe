"""Versions of channels: they only have to grow."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple

_READ: ContextVar[type] = ContextVar(
    "type of the versions of the thread that was read", default=int
)


def noted(found: CheckpointTuple | None) -> CheckpointTuple | None:
    """`found`; its type of versions is kept in mind: LangGraph goes on from it in this context."""
    versions = found.checkpoint["channel_versions"].values() if found is not None else ()
    _READ.set(next(map(type, versions), int))
    return found


def next_version(current: Any) -> Any:
    """Returns the version after `current`, of the same type, as LangGraph compares them with each
    other.

    The first version of a channel has the type of those that were `noted` in this context:
    LangGraph does not say for which thread it asks. New threads count 1, 2, 3. The texts that other
    savers make ("…0007.0.3141") continue as texts: their number counts; the part behind the dot
    only distinguished values that were stored by version.
    """
    if current is None:
        return f"{1:032}" if _READ.get() is str else 1
    if isinstance(current, str):
        return f"{int(current.split('.')[0] or 0) + 1:032}"
    if isinstance(current, float):
        return float(int(current) + 1)
    return int(current) + 1
