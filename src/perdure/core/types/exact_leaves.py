"""The plain values that a type without parts accepts unchanged, so that they need not be built."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

_EXACT: frozenset[Any] = frozenset({str, int, float, bool, bytes, type(None)})
_STR_CHANGES = ("strip_whitespace", "to_lower", "to_upper", "min_length", "max_length")
_CHANGES_VALUES = (*(f"str_{name}" for name in _STR_CHANGES), "use_enum_values")


def exact_kinds(annotation: Any, config: Mapping[str, Any] | None) -> frozenset[Any]:
    """Returns the plain kinds that a bare type accepts unchanged: one without any constraint."""
    if config and (not config.get("allow_inf_nan", True) or _changes(config)):
        return frozenset()
    is_exact = isinstance(annotation, type) and annotation in _EXACT
    return frozenset({annotation} if is_exact else ())


def exact_texts(annotation: Any, config: Mapping[str, Any] | None) -> frozenset[str]:
    """Returns the texts that a Literal of texts accepts."""
    literal = get_origin(annotation) is Literal and not (config and _changes(config))
    if not literal or any(type(one) is not str for one in get_args(annotation)):
        return frozenset()
    return frozenset(get_args(annotation))


def _changes(config: Mapping[str, Any]) -> bool:
    """True if a class's config changes or refuses some values of bare types."""
    return any(config.get(name) for name in _CHANGES_VALUES)


def fixed_zone(value: Any) -> Any:
    """Replaces pydantic's own UTC-offset zone by datetime.timezone, which storage knows."""
    zone = value.tzinfo
    if zone is not None and type(zone).__module__.startswith("pydantic_core"):
        return value.replace(tzinfo=dt.timezone(zone.utcoffset(None)))
    return value
