"""Pydantic's results, looked at again where they may not be what the log needs."""

from __future__ import annotations

from typing import Any

from perdure.core.types.key_order import restore
from perdure.core.types.nodes import Node
from perdure.core.types.unions import check_members
from perdure.core.types.validation import PydanticEngine, ValidationSubject
from perdure.core.values.plain_values import Path


class Revisiting(PydanticEngine):
    """Pydantic's engine, for types with a TypedDict, or a union of classes, in them."""

    def __init__(self, dicts: bool, unions: bool) -> None:
        super().__init__()
        self._dicts = dicts
        self._unions = unions

    def validate(self, place: ValidationSubject, value: Any, at: Path, root: str) -> Any:
        typed = super().validate(place, value, at, root)
        if isinstance(place, Node):
            if self._dicts:
                restore(place, typed, value)
            if self._unions and not self.piecewise:  # else the nodes themselves choose
                check_members(place, typed, value, at, root)
        return typed
