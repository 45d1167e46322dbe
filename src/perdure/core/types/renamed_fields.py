"""Fields that seem to be renamed: an object is stored with one that its class does not know, and
without one for which the class has a default.

Read as usual, the default would stand where the stored value belongs. Where no newer program wrote
the state, nothing else explains the unknown field than that it was removed, or renamed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from perdure.core.types.nodes import AnyNode, LeafNode, ListNode, Node, Walker
from perdure.core.types.objects import ObjectNode
from perdure.core.types.unions import UnionNode, may_be_another
from perdure.core.values.plain_values import Path, Plain, same
from perdure.errors import SchemaError
from perdure.missing import MISSING


class Renamed(NamedTuple):
    """One object in which fields seem to be renamed.

    Attributes:
        path: where it stands.
        cls: the name of its class.
        stored: the fields that are stored and that the class does not know.
        lacking: the fields of the class that are not stored and would be read as defaults.
    """

    path: Path
    cls: str
    stored: Sequence[str]
    lacking: Sequence[str]

    @property
    def problem(self) -> str:
        stored, lacking = _listed(self.stored), _listed(self.lacking)
        return (
            f"it is stored with {stored}, unknown to {self.cls}, and without {lacking}, which "
            "would be read as its default: renamed"
        )

    def declared(self, major: int) -> str:
        """Returns the line that declares a schema of that version, with a migration that renames
        the fields; of an object inside of the state, with what its function has to do."""
        pairs = list(zip(self.lacking, self.stored, strict=False))
        if not self.path:
            moved = ", ".join(f"{new!r}: old.pop({was!r})" for new, was in pairs)
            function, note = f"lambda old: {{{moved}, **old}}", ""
        else:
            moved = "; ".join(f"one[{new!r}] = one.pop({was!r})" for new, was in pairs)
            function = "rename"
            note = f", where rename(old) does `{moved}` with each such object in it and returns it"
        return f"perdure.Schema(…, version={major}, migrations={{{major - 1}: {function}}}){note}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def first_renamed(node: Node, plain: Plain) -> Renamed | None:
    """Returns the first object in a plain value in which fields seem to be renamed. One that may be
    of several classes of a union is none: which fields are its own is not certain."""
    kind = type(plain)
    if (kind is not dict and kind is not list and kind is not tuple) or not plain:
        return None
    if isinstance(node, UnionNode):
        if may_be_another(node, plain):
            return None
        node = node.pick(plain)
    if isinstance(node, AnyNode | LeafNode):
        return None
    items: Iterable[tuple[Any, Plain]] = plain.items() if kind is dict else enumerate(plain)
    if isinstance(node, ObjectNode):
        found = renamed_in(node, plain) if kind is dict else None
        if found is not None:
            return found
        items = [(name, plain[name]) for name in node.with_parts if name in plain]
    elif isinstance(node, ListNode) and _are_whole(node.item, plain):
        return None
    for key, item in items:
        child = node.child(key)
        found = None if child is None else first_renamed(child, item)
        if found is not None:
            return found._replace(path=(key, *found.path))
    return None


def _are_whole(item: Node, plain: Sequence[Plain]) -> bool:
    """True if surely nothing is renamed in items of a list. Checked in a loop that runs in C."""
    if not isinstance(item, ObjectNode):
        return isinstance(item, LeafNode)
    flat = not item.with_parts and {dict}.issuperset(map(type, plain))
    return flat and all(map(item.defaulted.issubset, plain))


def renamed_in(node: ObjectNode, plain: Mapping[Any, Any]) -> Renamed | None:
    """Returns the fields of one object that seem to be renamed, if there are any."""
    if node.defaulted.issubset(plain):
        return None
    lacking = [name for name in node.fields if name in node.defaulted and name not in plain]
    stored = [key for key in plain if _is_unknown(node, key, plain)]
    if stored and lacking and node.face.opaque_input:
        stored, lacking = _unread(node, plain, stored, lacking)
    return Renamed((), node.face.name, stored, lacking) if stored and lacking else None


def _is_unknown(node: ObjectNode, key: Any, plain: Mapping[Any, Any]) -> bool:
    """True if a class has nothing of that name. A second name of a field that is stored is one;
    that of another field is not read, so it is none."""
    face = node.face
    if type(key) is not str or node.knows(key) or face.knows(key):
        return False
    return face.aliases.get(key) not in plain


def _unread(
    node: ObjectNode, plain: Mapping[Any, Any], stored: Sequence[str], lacking: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Returns, of a class with a hook that sees the unknown fields, those that it makes nothing of,
    and the lacking fields that it leaves at their defaults."""
    whole, again = _shown(node, plain), _shown(node, plain)
    # What is another value each time is a default that a function makes, and came of no field.
    steady = [name for name in whole if same(whole[name], again.get(name, MISSING))]
    unread = []
    for key in stored:
        without = _shown(node, {name: one for name, one in plain.items() if name != key})
        if without and all(same(whole[name], without.get(name, MISSING)) for name in steady):
            unread.append(key)
    left = [
        name for name in lacking if name not in steady or same(whole[name], _default(node, name))
    ]
    return unread, left


def _shown(node: ObjectNode, plain: Mapping[Any, Any]) -> Mapping[str, Plain]:
    """Returns what a class makes of an object; nothing where it does not accept it."""
    try:
        shown: Mapping[str, Plain] = node.plain(node.build(dict(plain)), (), Walker())
        return shown
    except SchemaError:
        return {}


def _default(node: ObjectNode, name: str) -> Plain:
    child, default = node.child(name), node.default(name)
    assert child is not None
    return MISSING if default is MISSING else child.plain(default, (name,), Walker())
