"""The type of a place that takes some members of an Enum, and no others."""

from __future__ import annotations

from enum import Enum
from typing import Any

from perdure.core.types.nodes import LeafNode, Walker
from perdure.core.types.validation import Engine
from perdure.core.values.plain_values import Path, Plain, format_path, same
from perdure.errors import SchemaError


class MemberNode(LeafNode):
    """A Literal of an Enum's members, and other values maybe. A member is stored by its value."""

    def __init__(self, annotation: Any, engine: Engine, config: Any, allowed: Any) -> None:
        super().__init__(annotation, engine, config, None)
        self._allowed = allowed
        self.literals = [*allowed, *(one.value for one in allowed if isinstance(one, Enum))]

    def plain(self, value: Any, at: Path, walker: Walker) -> Plain:
        if isinstance(value, Enum) and value in self._allowed:
            return walker.take(value.value, at)
        return super().plain(value, at, walker)

    def prepare(self, plain: Plain) -> Any:
        members = (one for one in self._allowed if isinstance(one, Enum))
        return next((one for one in members if same(one.value, plain)), plain)

    def assemble(self, plain: Plain, at: Path, root: str) -> Any:
        for one in (self.prepare(plain), plain):
            if any(type(one) is type(other) and one == other for other in self._allowed):
                return one
        raise SchemaError(f"{plain!r:.100} is not one of its values", target=format_path(at, root))

    def takes(self, kind: type) -> bool:
        return any(type(one) is kind for one in self.literals or ())
