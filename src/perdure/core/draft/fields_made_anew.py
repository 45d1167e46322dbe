"""Fields that a class makes of others, in objects that a draft both changes and moves.

What a draft brought in is committed as it is in the end, so nothing later knows which fields the
class had made of the others. The draft does: it has each object as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import Any

from perdure.core.draft.place import Place
from perdure.core.draft.undone_changes import AsItWas, Done
from perdure.core.types.derived_fields import derive_anew, derived
from perdure.core.types.objects import ObjectNode
from perdure.core.types.unions import UnionNode
from perdure.core.values.plain_values import Plain
from perdure.errors import PerdureError


def deriving(place: Place) -> Iterator[Place]:
    """Yields the objects with such fields that a change at a place changes, too."""
    for one in place.line():
        if isinstance(one.node, ObjectNode) and one.node.face.late:
            yield one


def is_rebuilt(place: Place, fresh: bool) -> bool:
    """True if an object's live form is built from its plain one, not changed as that is."""
    return fresh or any(
        one.parent is not None and isinstance(one.parent.node.child(one.key), UnionNode)
        for one in place.line()
    )


Before = tuple[Place, dict[str, Plain]]
"""A changed object, and the fields that its class had made of others, with what they held."""


def before_changes(
    places: Iterable[Place], holder: Callable[[Place], Any], done: Sequence[Done]
) -> list[Before]:
    """Returns objects as they were before all changes of a draft; the inner ones first.

    Args:
        holder: gives the live object that a place stands for; MISSING without one.
        done: the changes.
    """
    was = cache(partial(AsItWas, done))  # it looks at all of them
    found = sorted(places, key=lambda one: -len(one.last_path()))
    return [(one, _before(one, holder(one), was)) for one in found]


def _before(place: Place, live: Any, was: Callable[[], AsItWas]) -> dict[str, Plain]:
    node = place.node
    assert isinstance(node, ObjectNode)
    try:
        if type(live) is not node.face.type:
            plain = was().whole(place.plain)
            live = node.build(plain, place.last_path(), place.session.root_name)
        return derived(node, live)
    except PerdureError:
        return {}


def made_anew(before: Before) -> dict[str, Plain]:
    """Returns the fields of which the class makes something else now."""
    place, held = before
    assert isinstance(place.node, ObjectNode)
    root = place.session.root_name
    return derive_anew(place.node, place.plain, held, place.last_path(), root)
