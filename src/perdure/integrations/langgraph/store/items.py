"""The store's data in an agent's state: namespaces, items, and the values that an item may have.

The state is ``{namespace: {key: item}}``. An item is a dict: ``value``, ``created`` and ``updated``
(times); if it expires, ``ttl`` (minutes) and ``expires`` (a time); if it was embedded, ``vectors``
(the field's path: packed float32, little-endian). Times are ISO 8601 in UTC: texts are readable in
the log, and thousands of them are read when a store is opened.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from hashlib import sha256
from typing import Any

from perdure.core.arguments.bounds import NAME_MAX
from perdure.core.arguments.names import is_text
from perdure.core.values.plain_values import SCALARS, format_path, take
from perdure.errors import SchemaError, Unstorable
from perdure.integrations.langgraph.values.plain_subclasses import NOT_PLAIN, plain_of
from perdure.system.cached import kept_of_one

Namespace = tuple[str, ...]
Order = tuple[float, Namespace, str]

DEPTH_MAX = 90
"""Containers within containers in one value: fewer than a state may have, for it lies in one."""

EMPTY: Mapping[str, bytes] = {}
_TEXT = frozenset({str})


def space_text(namespace: Namespace) -> str:
    """A namespace as a key of the state: ``("users", "a/b")`` is ``users/a%2Fb``."""
    return "/".join(label.replace("%", "%25").replace("/", "%2F") for label in namespace)


@kept_of_one(4096)
def space_of(text: str) -> Namespace:
    """The namespace that a key of the state stands for."""
    return tuple(part.replace("%2F", "/").replace("%25", "%") for part in text.split("/"))


def agent_name(prefix: str, label: str) -> str:
    """The agent that keeps every namespace which begins with a label.

    Labels that cannot be in a name are cut and marked by their hash. Should two ever meet in one
    agent, nothing is lost by it: the state holds the namespaces in full.
    """
    if is_text(label) and len(prefix) + len(label) <= NAME_MAX:
        return prefix + label
    readable = label.encode("utf-8", "replace").decode()[: NAME_MAX - len(prefix) - 17]
    digest = sha256(label.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{prefix}{readable}~{digest}"


def time_text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


read_time = datetime.fromisoformat


class StoredItem:
    """One item in the index. Immutable: another version of the item is another entry.

    Attributes:
        value: the item's own value; must be copied before it is returned to callers.
        order: sorts the newest first, and items of one moment in a fixed order.
    """

    __slots__ = (
        "created",
        "expires",
        "key",
        "namespace",
        "norms",
        "order",
        "ttl",
        "updated",
        "value",
        "vectors",
    )

    def __init__(self, space: str, key: str, item: Any) -> None:
        try:
            self.value: dict[str, Any] = item["value"]
            self.created: datetime = read_time(item["created"])
            self.updated: datetime = read_time(item["updated"])
            self.ttl: float | None = item.get("ttl")
            expires = item.get("expires")
            self.expires: datetime | None = None if expires is None else read_time(expires)
            self.vectors: Mapping[str, bytes] = item.get("vectors", EMPTY)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise SchemaError(
                f"not an item of a LangGraph store ({error!r})",
                target=format_path((space, key)),
                hint="it was changed by other means than the store: undo that commit",
            ) from error
        self.namespace = space_of(space)
        self.key = key
        self.order: Order = (-self.updated.timestamp(), self.namespace, key)
        self.norms: dict[str, float] | None = None

    def expired(self, now: datetime) -> bool:
        return self.expires is not None and self.expires <= now


def take_value(value: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a copy of an item's value as plain data. Instances of subclasses of plain types
    become instances of that type.

    Raises:
        Unstorable: something in it is not plain data, or too deep; names its path.
    """
    if not isinstance(value, Mapping):
        raise _refused(value, ())
    return _take(dict(value), ())  # type: ignore[no-any-return]


def _take(value: Any, at: tuple[Any, ...]) -> Any:
    kind = type(value)
    if value is None or kind in (str, int, float, bool):
        return value
    if len(at) >= DEPTH_MAX and kind not in SCALARS:
        raise Unstorable(
            f"nested more than {DEPTH_MAX} levels deep, or inside itself",
            target=format_path(at[:8], "value") + "…",
            hint="flatten it, or store it as text",
        )
    if kind is list or kind is tuple:
        return kind(_take(item, (*at, index)) for index, item in enumerate(value))
    if kind is dict:
        named = value if _TEXT.issuperset(map(type, value)) else _named(value, at)
        return {key: _take(item, (*at, key)) for key, item in named.items()}
    if kind in SCALARS or kind is set or kind is frozenset:
        return take(value, at, root="value")
    plain = plain_of(value)
    if plain is NOT_PLAIN or type(plain) in (bytearray, deque):
        raise _refused(value, at)
    return _take(plain, at)


def _named(value: dict[Any, Any], at: tuple[Any, ...]) -> dict[str, Any]:
    """A dict with its keys as texts of exactly that type."""
    for key in value:
        if not isinstance(key, str) or isinstance(key, Enum):
            raise Unstorable(
                f"a key of type {type(key).__qualname__}",
                target=format_path((*at, key), "value"),
                hint="keys are str",
            )
    return {str.__str__(key): item for key, item in value.items()}


def _refused(value: Any, at: tuple[Any, ...]) -> Unstorable:
    kind = type(value)
    return Unstorable(
        f"a {kind.__module__}.{kind.__qualname__} cannot be in an item",
        target=format_path(at, "value"),
        hint="an item is a dict of plain data (str, int, float, bool, None, lists, dicts, tuples, "
        "sets, bytes, datetimes, Decimal, UUID); of a model, store value.model_dump(), of an "
        "enum's member, value.value",
    )


def as_json(value: Any) -> Any:
    """Returns a value as its texts are extracted for an embedding: what JSON lacks becomes text."""
    kind = type(value)
    if value is None or kind in (str, int, float, bool):
        return value
    if kind is dict:
        return {key: as_json(item) for key, item in value.items()}
    if kind is list or kind is tuple:
        return [as_json(item) for item in value]
    if kind is set or kind is frozenset:
        return sorted((as_json(item) for item in value), key=repr)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def utc_now() -> datetime:
    return datetime.now(UTC)
