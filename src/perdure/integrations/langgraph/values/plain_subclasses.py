"""Subclasses of plain types, kept as the plain value, as LangGraph keeps them.

The text of a LangChain message is a subclass of str, a graph's answer may be one of dict, and a
`defaultdict` is one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any

from perdure.core.values.base_values import BASE_VALUES

_PLAIN: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    *BASE_VALUES,
    (bytearray, lambda value: bytearray(memoryview(value))),
    (deque, lambda value: deque(deque.__iter__(value), value.maxlen)),
)
"""The base classes of plain subclasses, each with a function that returns the plain value."""

NOT_PLAIN = object()


def plain_of(value: Any) -> Any:
    """The plain value that an instance of a subclass of its type stands for, as LangGraph keeps it:
    of that type exactly. `NOT_PLAIN` if it is of no such class, or an enum's, or a named tuple."""
    if isinstance(value, Enum) or (isinstance(value, tuple) and hasattr(value, "_fields")):
        return NOT_PLAIN
    for base, take in _PLAIN:
        if isinstance(value, base):
            made = take(value)
            return made if type(made) is base else NOT_PLAIN
    return NOT_PLAIN


def plain_key(key: Any) -> Any:
    """A dict's key: a subclass of str as the text that it is."""
    return str.__str__(key) if isinstance(key, str) and not isinstance(key, Enum) else key
