"""Versions of channels: they only have to grow."""

from __future__ import annotations

from typing import Any


def next_version(current: Any) -> Any:
    """The version after `current`, and of its type, as LangGraph compares them with each other.

    New threads count 1, 2, 3. The texts that other savers make ("…0007.0.3141") go on as texts:
    their number counts, what is behind the dot only told apart values that were stored by version.
    """
    if current is None:
        return 1
    if isinstance(current, str):
        return f"{int(current.split('.')[0] or 0) + 1:032}"
    if isinstance(current, float):
        return float(int(current) + 1)
    return int(current) + 1
