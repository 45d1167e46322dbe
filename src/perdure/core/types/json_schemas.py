"""The JSON Schema (2020-12) of a type: what the JSON form of its plain values looks like.

There are two such forms. The exact one is what `perdure state` writes: what JSON lacks stands in an
object with one key, such as ``{"$decimal": "1.10"}``. The other one is that of public data in the
answer of a web framework (`perdure.public_data.as_json`): texts, numbers and lists.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from enum import Enum, Flag
from typing import Any
from uuid import UUID

from perdure.core.types.annotations import ItemLimits, marks_of, unwrap
from perdure.core.types.nodes import (
    AnyNode,
    DictNode,
    LeafNode,
    ListNode,
    Node,
    SetNode,
    TupleNode,
    Walker,
)
from perdure.core.types.objects import ObjectNode
from perdure.core.types.unions import UnionNode
from perdure.core.types.validation import text_types
from perdure.errors import PerdureError
from perdure.missing import MISSING

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Json = dict[str, Any]

_PLAIN: Mapping[type, Json] = {
    type(None): {"type": "null"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    str: {"type": "string"},
}
_AS_TEXT: Mapping[type, Json] = {
    **_PLAIN,
    float: {"type": ["number", "null"]},  # null for NaN and the infinities
    bytes: {"type": "string", "contentEncoding": "base64"},
    dt.datetime: {"type": "string", "format": "date-time"},
    dt.date: {"type": "string", "format": "date"},
    dt.time: {"type": "string", "format": "time"},
    dt.timedelta: {"type": "number", "description": "seconds"},
    Decimal: {"type": "string", "description": "a decimal number"},
    UUID: {"type": "string", "format": "uuid"},
}


def _tagged(tag: str, held: Json) -> Json:
    return {
        "type": "object",
        "properties": {tag: held},
        "required": [tag],
        "additionalProperties": False,
    }


_TEXT: Json = {"type": "string"}
_EXACT: Mapping[type, Json] = {
    **_PLAIN,
    float: {
        "anyOf": [{"type": "number"}, _tagged("$float", {"enum": ["nan", "inf", "-inf"]})],
    },
    bytes: _tagged("$bytes", {"type": "string", "contentEncoding": "base64"}),
    dt.datetime: _tagged("$datetime", _TEXT),
    dt.date: _tagged("$date", {"type": "string", "format": "date"}),
    dt.time: _tagged("$time", _TEXT),
    dt.timedelta: _tagged(
        "$timedelta",
        {"type": "array", "items": {"type": "integer"}, "minItems": 3, "maxItems": 3},
    ),
    Decimal: _tagged("$decimal", _TEXT),
    UUID: _tagged("$uuid", {"type": "string", "format": "uuid"}),
}

_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


def json_schema_of(root: Node, title: str, *, exact: bool) -> Json:
    """Returns the JSON Schema of the JSON form of a type's plain values.

    Args:
        exact: of the form that `perdure state` writes; else of the one of public data.
    """
    making = _Making(exact)
    made = making.of(root)
    defs = {"$defs": making.defs} if making.defs else {}
    return {"$schema": DIALECT, "title": title, **made, **defs}


class _Making:
    """One making of a schema. Classes, and what contains itself, are made once and referred to."""

    def __init__(self, exact: bool) -> None:
        self._exact = exact
        self._scalars = _EXACT if exact else _AS_TEXT
        self.defs: Json = {}
        self._names: dict[int, str] = {}
        """Of what is in `defs`, or will be: by the content of its node, which its copies share."""
        self._open: set[int] = set()

    def of(self, node: Node) -> Json:
        if isinstance(node, AnyNode | LeafNode):
            return self._leaf(node) if isinstance(node, LeafNode) else {}
        mark = id(vars(node))
        if mark in self._open or mark in self._names:
            return self._reference(mark, node)
        self._open.add(mark)
        if isinstance(node, ObjectNode):
            self._reference(mark, node)
        made = self._made(node)
        self._open.remove(mark)
        if mark not in self._names:
            return made
        self.defs[self._names[mark]] = made
        return self._reference(mark, node)

    def _reference(self, mark: int, node: Node) -> Json:
        name = self._names.get(mark)
        if name is None:
            cls = node.face.cls if isinstance(node, ObjectNode) else node.annotation
            said = getattr(cls, "__name__", "") or "part"
            said = re.sub(r"[^\w.-]+", "_", said, flags=re.ASCII)
            name, count = said, 1
            while name in self._names.values():
                count += 1
                name = f"{said}-{count}"
            self._names[mark] = name
        return {"$ref": f"#/$defs/{name}"}

    def _made(self, node: Node) -> Json:
        if isinstance(node, ObjectNode):
            return self._object(node)
        if isinstance(node, UnionNode):
            return _any_of(self.of(one) for one in node.options)
        if isinstance(node, ListNode):
            made = {"type": "array", "items": self.of(node.item), **_sizes(node.limits, "Items")}
            return _any_of([made, self._in("$tuple", made)]) if node.either else made
        if isinstance(node, SetNode):
            return self._set(node)
        if isinstance(node, TupleNode):
            return self._tuple(node)
        if isinstance(node, DictNode):
            return self._dict(node)
        return {}

    def _in(self, tag: str, made: Json) -> Json:
        return _tagged(tag, made) if self._exact else made

    def _set(self, node: SetNode) -> Json:
        made = {"type": "array", "items": self.of(node.item), **_sizes(node.limits, "Items")}
        if isinstance(node.item, LeafNode) and node.item.kinds in (
            frozenset({int}),
            frozenset({str}),
        ):
            made["uniqueItems"] = True  # of others, two may have one form
        kinds = ["set", "frozenset"] if node.either else [node.kind.__name__]
        return _any_of(self._in(f"${kind}", made) for kind in kinds)

    def _tuple(self, node: TupleNode) -> Json:
        made: Json = {"type": "array"}
        if node.items:
            made["prefixItems"] = [self.of(one) for one in node.items]
            made["minItems"] = len(node.items) - len(getattr(node.cls, "_field_defaults", ()))
        made["items"] = False if node.rest is None else self.of(node.rest)
        return self._in("$tuple", {**made, **_sizes(node.limits, "Items")})

    def _dict(self, node: DictNode) -> Json:
        item, key = self.of(node.item), node.key
        of_text = isinstance(key, LeafNode) and key.kinds == frozenset({str})
        made: Json = {"type": "object", "additionalProperties": item}
        if of_text:
            return {**made, **_sizes(node.limits, "Properties")}
        if not self._exact:
            return made
        pair = {"type": "array", "prefixItems": [self.of(key), item], "items": False, "minItems": 2}
        return _any_of([made, _tagged("$map", {"type": "array", "items": pair})])

    def _object(self, node: ObjectNode) -> Json:
        """A field that is not stored has its default; what a newer program stored may be there."""
        face, properties, required = node.face, {}, []
        if face.tag is not None:
            properties[face.tag[0]] = {"const": face.tag[1]}
        for name, field in face.fields.items():
            child = node.child(name)
            assert child is not None
            properties[name] = self.of(child) | _default(node, name, child)
            if field.default is None and field.required_key and not field.late:
                required.append(name)
        made: Json = {"title": face.name, "type": "object", "properties": properties}
        return {**made, "required": required} if required else made

    def _leaf(self, node: LeafNode) -> Json:
        if node.literals is not None:
            return _constants(one for one in node.literals if not isinstance(one, Enum))
        if node.enum is not None:
            members = node.enum.__members__.values()
            whole = issubclass(node.enum, Flag)
            return {"type": "integer"} if whole else _constants(one.value for one in members)
        if node.members:
            return _any_of(self.of(one) for one in node.members)
        if node.kinds is None:
            declared = unwrap(node.annotation).type
            as_text = isinstance(declared, type) and issubclass(declared, text_types())
            return _TEXT if as_text else {}
        return _any_of(map(self._scalar, _spoken(node.kinds))) | _bounds(node)

    def _scalar(self, kind: type) -> Json:
        made = self._scalars[kind]
        if not self._exact or kind in _PLAIN:
            return made
        name = f"${kind.__name__.lower()}"  # as its tag; no class is called so
        self.defs[name] = made
        return {"$ref": f"#/$defs/{name}"}


def _spoken(kinds: Iterable[type]) -> list[type]:
    """Returns the kinds of a leaf in one order; a float says that an int may stand there, too."""
    found = sorted(kinds, key=lambda kind: kind.__name__)
    return [kind for kind in found if kind is not int or float not in found]


def _any_of(made: Iterable[Json]) -> Json:
    """Returns the schema of a value that fits one of several."""
    found: list[Json] = []
    for one in made:
        if not one:
            return {}
        if one not in found:
            found.append(one)
    return found[0] if len(found) == 1 else {"anyOf": found}


def _constants(values: Iterable[Any]) -> Json:
    """Returns the schema of a place that takes these values only."""
    found = list(values)
    return {"enum": found} if all(map(_is_json, found)) else {}


def _is_json(value: Any) -> bool:
    kind = type(value)
    if kind is str:
        return bool(value.isprintable())
    return kind in (bool, int, type(None)) or (kind is float and math.isfinite(value))


def _bounds(node: LeafNode) -> Json:
    kinds, made = node.kinds or frozenset(), {}
    if kinds == {str}:
        return _sizes(node.limits, "Length")
    if not kinds <= {int, float}:
        return {}
    for mark in marks_of(unwrap(node.annotation).metadata):
        for name, word in _BOUNDS.items():
            bound = getattr(mark, name, None)
            if isinstance(bound, int | float) and math.isfinite(bound):
                made[word] = bound
    return made


def _sizes(limits: ItemLimits, what: str) -> Json:
    least = {f"min{what}": limits.least} if limits.least else {}
    return least if limits.most is None else {**least, f"max{what}": limits.most}


def _default(node: ObjectNode, name: str, child: Node) -> Json:
    """Returns the default of a field as an annotation, if it is a fixed one that JSON has."""
    if not node.fields[name].default_is_fixed:
        return {}
    try:
        default = node.default(name)
        plain = MISSING if default is MISSING else child.plain(default, (name,), Walker())
    except PerdureError:
        return {}
    empty = plain in ([], {}) and type(plain) in (list, dict)
    return {"default": plain} if empty or _is_json(plain) else {}
