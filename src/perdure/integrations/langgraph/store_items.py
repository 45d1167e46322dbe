"""What the store keeps in an agent's state: namespaces, items, and which values may be in one.

The state is ``{namespace: {key: item}}``. An item is a dict: ``value``, ``created`` and ``updated``
(times); where it expires, ``ttl`` (minutes) and ``expires`` (a time); where it was embedded,
``vectors`` (the field's path: packed float32, little-endian). Times are ISO 8601 in UTC: texts are
readable in the log, and there are thousands of them to be read when a store is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from typing import Any

from perdure.core.bounds import NAME_MAX
from perdure.core.names import is_text
from perdure.core.values import format_path
from perdure.errors import SchemaError, Unstorable

Namespace = tuple[str, ...]
Order = tuple[float, Namespace, str]

DEPTH_MAX = 90
"""Containers within containers in one value: fewer than a state may have, for it lies in one."""

EMPTY: Mapping[str, bytes] = {}
HINTS = {
    "tuple": "use a list: a tuple would come back as one",
    "set": "use a list",
    "bytes": "encode them as text, e.g. base64.b64encode(value).decode()",
    "datetime": "store value.isoformat()",
    "date": "store value.isoformat()",
    "Decimal": "store str(value)",
    "UUID": "store str(value)",
}


def space_text(namespace: Namespace) -> str:
    """A namespace as a key of the state: ``("users", "a/b")`` is ``users/a%2Fb``."""
    return "/".join(label.replace("%", "%25").replace("/", "%2F") for label in namespace)


@lru_cache(maxsize=4096)
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


class Entry:
    """One item as the index has it. Never changed: another version of the item is another entry.

    Attributes:
        value: the item's own; to be copied before it is handed out.
        order: sorts the newest first, and items of one moment always alike.
    """

    __slots__ = (
        "created", "expires", "key", "namespace", "norms", "order", "ttl", "updated", "value",
        "vectors",
    )  # fmt: skip

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
    """A copy of an item's value.

    Raises:
        Unstorable: something in it is not JSON-like, or too deep; names its path.
    """
    if not isinstance(value, Mapping):
        raise _refused(value, ())
    return _take(dict(value), ())  # type: ignore[no-any-return]


def _take(value: Any, at: tuple[Any, ...]) -> Any:
    kind = type(value)
    if value is None or kind in (str, int, float, bool):
        return value
    if len(at) >= DEPTH_MAX and kind in (list, dict):
        raise Unstorable(
            f"nested more than {DEPTH_MAX} levels deep, or inside itself",
            target=format_path(at[:8], "value") + "…",
            hint="flatten it, or store it as text",
        )
    if kind is list:
        return [_take(item, (*at, index)) for index, item in enumerate(value)]
    if kind is dict:
        for key in value:
            if type(key) is not str:
                raise Unstorable(
                    f"a key of type {type(key).__qualname__}",
                    target=format_path((*at, key), "value"), hint="keys are str",
                )  # fmt: skip
        return {key: _take(item, (*at, key)) for key, item in value.items()}
    raise _refused(value, at)


def _refused(value: Any, at: tuple[Any, ...]) -> Unstorable:
    kind = type(value)
    return Unstorable(
        f"a {kind.__module__}.{kind.__qualname__} cannot be in an item",
        target=format_path(at, "value"),
        hint=HINTS.get(
            kind.__name__,
            "an item is a dict of str, int, float, bool, None, lists and dicts; "
            "of a model, store value.model_dump(mode='json')",
        ),
    )


def utc_now() -> datetime:
    return datetime.now(UTC)
