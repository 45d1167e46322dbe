"""Fields that a class makes of others, in objects whose plain form changes.

See `late_fields`: some of those hold what came later, and stay. An object as it was before a change
shows which; the plain form after it does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.core.types.late_fields import made_anew, made_of_others
from perdure.core.types.nodes import Walker
from perdure.core.types.objects import ObjectNode
from perdure.core.values.plain_values import Path, Plain, same
from perdure.errors import PerdureError
from perdure.missing import MISSING


def derived(node: ObjectNode, typed: Any) -> dict[str, Plain]:
    """Returns the fields that an object's class made of others, with what they hold."""
    return _plain(
        node, {name: node.face.get(typed, name) for name in made_of_others(node.face, typed)}
    )


def derive_anew(
    node: ObjectNode, plain: Plain, before: Mapping[str, Plain], path: Path, root: str
) -> dict[str, Plain]:
    """Returns what the class makes of those fields now, where that differs from what is there.

    Args:
        before: what `derived` gave before the object changed. A field that was itself set to
            another value since stays.
    """
    names = [name for name, was in before.items() if same(plain.get(name, MISSING), was)]
    if not names:
        return {}
    try:
        made = _plain(node, made_anew(node.face, node.build(plain, path, root), names))
    except PerdureError:
        return {}  # it does not fit: whoever checks the whole says why
    return {name: item for name, item in made.items() if not same(plain[name], item)}


def _plain(node: ObjectNode, values: Mapping[str, Any]) -> dict[str, Plain]:
    found = {}
    for name, value in values.items():
        child = node.child(name)
        if child is not None and value is not MISSING:
            found[name] = child.plain(value, (name,), Walker())
    return found
