"""Values that a draft gives out as they are: of a type that the library takes as one value.

Most cannot change. One of the user's own, or a list under such a type, can, where no draft sees it:
that is found as the block ends, and refused by its place, so that no change is lost without a word.
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
    """Whether its owner may change it in place."""
    kind = type(value)
    return kind in _CHANGE or not (kind.__module__ in _FIXED or isinstance(value, Enum))


class HandedOut(Struct):
    """One value that a draft gave out, and where it stands. `holder`: the plain container there."""

    value: Any
    node: Node
    holder: Any
    key: Any
    plain: Plain
    path: Path

    def check(self, root: str) -> None:
        """Raises Drifted: it was changed, and stands there still."""
        try:
            there = self.holder[self.key]
        except (LookupError, TypeError):
            return  # it is gone
        if there is not self.plain:
            return  # another one was assigned
        if not same(self.node.plain(self.value, self.path, Walker(root=root)), self.plain):
            raise Drifted(
                "it was changed in place, which a draft does not see: its type is taken as a whole",
                target=format_path(self.path, root),
                hint="assign a new value",
            )
