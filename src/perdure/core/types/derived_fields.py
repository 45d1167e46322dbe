"""Fields that a class makes of others, in objects whose plain form changes.

Of the fields that a constructor does not take, `__post_init__` computes some from the others; some
hold what came later. An edit recomputes the first kind, and must not reset the second. An object as
it was before a change shows which; the plain form after it does not.

What a class makes of other fields is asked of a new instance, built of their plain form: its hook
may change what it is given in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from perdure.core.types.nodes import Walker
from perdure.core.types.objects import ObjectNode
from perdure.core.values.plain_values import Path, Plain, same
from perdure.errors import PerdureError
from perdure.missing import MISSING


def derived(node: ObjectNode, typed: Any) -> dict[str, Plain]:
    """Returns the fields that an object's class made of others, with what they hold."""
    if not node.face.late or not node.face.checks_whole:
        return {}
    try:
        plain = node.plain(typed, (), Walker())
        made = _made(node, plain, node.face.late, (), "state")
    except PerdureError:  # nobody knows what it would make of them
        return {}
    return {name: item for name, item in made.items() if same(plain.get(name, MISSING), item)}


def derive_anew(
    node: ObjectNode, plain: Mapping[str, Plain], before: Mapping[str, Plain], path: Path, root: str
) -> dict[str, Plain]:
    """Returns what the class makes of those fields now, where that differs from what is there.

    Args:
        before: what `derived` gave before the object changed. A field that was itself set to
            another value since stays.
    """
    names = untouched(plain, before)
    if not names:
        return {}
    try:
        made = _made(node, plain, names, path, root)
    except PerdureError:
        return {}  # it does not fit: whoever checks the whole says why
    return {name: item for name, item in made.items() if not same(plain[name], item)}


def untouched(plain: Mapping[str, Plain], before: Mapping[str, Plain]) -> list[str]:
    """Returns the fields of those that `derived` gave which still hold the same."""
    return [name for name, was in before.items() if same(plain.get(name, MISSING), was)]


def without(names: Iterable[str], plain: Mapping[str, Plain]) -> dict[str, Plain]:
    gone = set(names)
    return {name: item for name, item in plain.items() if name not in gone}


def _made(
    node: ObjectNode, plain: Mapping[str, Plain], names: Iterable[str], path: Path, root: str
) -> dict[str, Plain]:
    """Returns what the class makes of the fields that its constructor takes, for some others."""
    built = node.build(without(node.face.late, plain), path, root)
    found = {}
    for name in names:
        child, value = node.child(name), node.face.get(built, name)
        if child is not None and value is not MISSING:
            found[name] = child.plain(value, (name,), Walker())
    return found
