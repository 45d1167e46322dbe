"""Values that a draft gives out as they are, because the library treats their type as one value.

Most cannot change. One of a user's class, or a list under such a type, can change unseen by the
draft: the end of the block finds that and refuses it by its place, so that no change is lost
silently.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from msgspec import Struct

from perdure.core.types.nodes import Node, Walker
from perdure.core.values.plain_values import Path, Plain, format_path, same
from perdure.errors import Drifted

_FIXED = frozenset(
    {
        "builtins",
        "datetime",
        "decimal",
        "enum",
        "fractions",
        "ipaddress",
        "pathlib",
        "re",
        "uuid",
        "zoneinfo",
    }
)
"""Modules of whose classes no instance changes, but for the containers among Python's own."""
_CHANGE = frozenset({list, dict, set, bytearray})


def can_change(value: Any) -> bool:
    """True if its owner may change the value in place."""
    kind = type(value)
    return kind in _CHANGE or not (kind.__module__ in _FIXED or isinstance(value, Enum))


class HandedOut(Struct):
    """One value that a draft gave out, and its place. `holder`: the plain container there."""

    value: Any
    node: Node
    holder: Any
    key: Any
    plain: Plain
    path: Path

    def check(self, root: str) -> None:
        """Raises Drifted if the value was changed and still stands at its place."""
        try:
            there = self.holder[self.key]
        except (LookupError, TypeError):
            return  # it is gone
        if there is not self.plain:
            return  # another one was assigned
        if not same(self.node.plain(self.value, self.path, Walker(root=root)), self.plain):
            raise Drifted(
                "it was changed in place, unseen by the draft: its type is treated as one value",
                target=format_path(self.path, root),
                hint="assign a new value",
            )
