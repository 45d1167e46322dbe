"""The members of a union that a dict may be of, the likeliest first."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from perdure.core.types.nodes import Node
from perdure.core.types.objects import ObjectNode
from perdure.missing import MISSING

IMPOSSIBLE = -(10**6)


def score(node: Node, plain: Mapping[Any, Any]) -> int:
    """Returns a score of how well a dict fits a member of a union; IMPOSSIBLE where it cannot."""
    if not isinstance(node, ObjectNode):
        return 0
    face = node.face
    if face.tag is not None and plain.get(face.tag[0], face.tag[1]) != face.tag[1]:
        return IMPOSSIBLE
    names = {face.aliases.get(key, key): item for key, item in plain.items()}
    points = 0
    for name, item in names.items():
        allowed = getattr(node.child(name), "literals", None)
        if allowed is not None and item not in allowed:
            return IMPOSSIBLE
        points += (2 if allowed is None else 1000) if node.knows(name) else -1
    for name, one in face.fields.items():
        required = one.default is None and one.required_key
        if name not in names and required and not face.opaque_input:
            return IMPOSSIBLE
    return points


def possible(members: Sequence[Node], plain: Mapping[Any, Any]) -> Iterator[Node]:
    """Yields the members of a union that a dict may be of, the likeliest first.

    A field that a member knows is not one of a newer program, for others to ignore: they would take
    any object that this member refuses, and nothing would be left of it. So they keep the fields
    that the likeliest one declares, and the literals and tags that rule members out.
    """
    if len(members) < 2:
        yield from members
        return
    scored = sorted((-score(one, plain), place) for place, one in enumerate(members))
    able = [members[place] for points, place in scored if points < -IMPOSSIBLE]
    able = able or [members[place] for _, place in scored]
    sure = knows_all(able[0], plain)
    if sure:
        yield able[0]  # mostly the last one that is asked for
    lead = next((one for one in able if declared(one, plain)), able[0])
    nearest = max(members, key=lambda one: len(declared(one, plain)))
    telling = declared(lead, plain) | ({_ruled_out_by(one, plain) for one in members} - {MISSING})
    if not telling and declared(nearest, plain):
        found = [one for one in able if known(one, plain)]
    else:
        found = [one for one in able if telling <= known(one, plain)]
    yield from found[sure:] or ([] if sure else [nearest])


def knows_all(node: Node, plain: Mapping[Any, Any]) -> bool:
    """True if a member of a union keeps all keys of a dict."""
    return len(known(node, plain)) == len(plain)


def declared(node: Node, keys: Collection[Any]) -> set[Any]:
    """Returns those keys of a dict for which a class has a field, or that are its tag."""
    if not isinstance(node, ObjectNode):
        return set()
    fields, aliases, tag = node.fields, node.face.aliases, node.face.tag
    return {key for key in keys if aliases.get(key, key) in fields or (tag and key == tag[0])}


def known(node: Node, keys: Collection[Any]) -> set[Any]:
    """Returns those keys of a dict that a member of a union keeps, declared or not."""
    if not isinstance(node, ObjectNode):
        return {*keys}
    aliases = node.face.aliases
    return {key for key in keys if node.knows(aliases.get(key, key) if aliases else key)}


def _ruled_out_by(node: Node, plain: Mapping[Any, Any]) -> Any:
    """Returns the key of a tag or literal that a member of a union would not have; else MISSING."""
    if not isinstance(node, ObjectNode):
        return MISSING
    tag, aliases = node.face.tag, node.face.aliases
    if tag is not None and plain.get(tag[0], tag[1]) != tag[1]:
        return tag[0]
    for key, item in plain.items():
        allowed = getattr(node.child(aliases.get(key, key)), "literals", None)
        if allowed is not None and item not in allowed:
            return key
    return MISSING
