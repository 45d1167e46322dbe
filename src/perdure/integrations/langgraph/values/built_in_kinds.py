"""The kinds of values that any thread may hold: the standard library's, and the frameworks' own."""

from __future__ import annotations

import ipaddress
import pathlib
import re
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from datetime import timezone
from typing import Any
from zoneinfo import ZoneInfo

from langchain_core import messages as lc
from langchain_core.documents import Document
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.store.base import Item, SearchItem

from perdure.core.values.zones import MissingZone, named
from perdure.integrations.langgraph.values.kinds import (
    DELTA_SNAPSHOT,
    DataclassKind,
    Kind,
    Kinds,
    ModelKind,
    PartsKind,
    TupleKind,
)
from perdure.system.late_imports import optional


def _text(value: Any) -> dict[str, Any]:
    return {"text": str(value)}


def _items(value: Any) -> dict[str, Any]:
    return {"items": list(value)}


def _pairs(value: Any) -> dict[str, Any]:
    return {"items": [list(pair) for pair in value.items()]}


def _standard() -> list[Kind]:
    """Returns the kinds of the standard library that LangGraph's own serializer takes."""
    paths = {pathlib.PosixPath, pathlib.WindowsPath, pathlib.PurePosixPath, pathlib.PureWindowsPath}
    addresses = [f"IPv{n}{what}" for what in ("Address", "Network", "Interface") for n in (4, 6)]
    texts = sorted(paths, key=lambda cls: cls.__name__)
    texts += [getattr(ipaddress, name) for name in addresses]
    return [
        *(PartsKind(cls.__name__, cls, _text, _from_text(cls)) for cls in texts),
        PartsKind("ZoneInfo", ZoneInfo, lambda v: {"text": v.key}, lambda text: named(text)),
        PartsKind(
            "timezone",
            timezone,
            lambda v: {"arguments": list(v.__getinitargs__())},
            lambda arguments: timezone(*arguments),
        ),
        PartsKind("Pattern", re.Pattern, _pattern_fields, re.compile),
        PartsKind(
            "bytearray", bytearray, lambda v: {"data": bytes(v)}, lambda data: bytearray(data)
        ),
        PartsKind(
            "deque",
            deque,
            lambda v: {"items": list(v), "length": v.maxlen},
            lambda items, length: deque(items, length),
        ),
        PartsKind("OrderedDict", OrderedDict, _pairs, lambda items: OrderedDict(items)),
        PartsKind("Counter", Counter, _pairs, lambda items: Counter(dict(items))),
        PartsKind("set", set, _items, lambda items: set(items)),
        PartsKind("frozenset", frozenset, _items, lambda items: frozenset(items)),
    ]


def _pattern_fields(pattern: re.Pattern[Any]) -> dict[str, Any]:
    return {"pattern": pattern.pattern, "flags": pattern.flags}


def _from_text(cls: Any) -> Callable[[str], Any]:
    return lambda text: cls(text)


def _frameworks() -> list[Kind]:
    spoken = [f"{who}Message" for who in ("Human", "AI", "System", "Tool", "Function", "Chat")]
    names = [*spoken, "RemoveMessage", *(f"{name}Chunk" for name in spoken)]
    found: list[Kind] = [ModelKind(name, getattr(lc, name), terse=True) for name in names]
    found.append(ModelKind("Document", Document, terse=True))
    found.append(TupleKind(DELTA_SNAPSHOT, _DeltaSnapshot))
    found.append(
        PartsKind(
            "Item",
            Item,
            lambda v: {n: getattr(v, n) for n in Item.__slots__},
            lambda **fields: Item(**fields),
        )
    )
    found.append(
        PartsKind(
            "SearchItem",
            SearchItem,
            lambda v: {n: getattr(v, n) for n in (*Item.__slots__, "score")},
            lambda **fields: SearchItem(**fields),
        )
    )
    return found + _langgraph()


def _langgraph() -> list[Kind]:
    """LangGraph's own; without it (only its checkpoint library is here), there are none."""
    types = optional("langgraph.types")
    if types is None:
        return []
    found: list[Kind] = [
        DataclassKind(name, getattr(types, name))
        for name in ("Interrupt", "Command", "Overwrite", "TimeoutPolicy")
        if hasattr(types, name)
    ]
    slots = getattr(types.Send, "__slots__", ("node", "arg"))

    def send(**fields: Any) -> Any:
        return types.Send(fields.pop("node"), fields.pop("arg"), **fields)

    def parts(value: Any) -> dict[str, Any]:
        fields = {name: getattr(value, name) for name in slots}
        return {
            name: item for name, item in fields.items() if name != "timeout" or item is not None
        }

    found.append(PartsKind("Send", types.Send, parts, send))
    return found


BUILT_IN = Kinds([*_standard(), *_frameworks()])
# What one machine does not know is written back under the name that it was read by.
BUILT_IN.by_type[MissingZone] = BUILT_IN.by_tag["ZoneInfo"]
