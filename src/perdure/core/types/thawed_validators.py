"""Pydantic's validators of frozen classes, made to let an edit assign a field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.system.late_imports import loading


def thawed(cls: Any, config: Mapping[str, Any]) -> Any:
    """Returns the class's validator, changed to let frozen fields be assigned."""
    frozen = config.get("frozen") or any(info.frozen for info in cls.__pydantic_fields__.values())
    if not frozen:
        return cls.__pydantic_validator__
    with loading:
        from pydantic_core import SchemaValidator

    schema = _without_frozen(cls.__pydantic_core_schema__)
    try:  # else pydantic would reuse the class's own validator, the frozen one
        return SchemaValidator(schema, None, _use_prebuilt=False)
    except TypeError:
        return SchemaValidator(schema)


def _without_frozen(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {
            key: False
            if key == "frozen" and item is True
            else item
            if key == "default"
            else _without_frozen(item)
            for key, item in schema.items()
            if key != "metadata"  # pydantic's own notes
        }
    if isinstance(schema, list | tuple):
        return type(schema)(map(_without_frozen, schema))
    return schema
