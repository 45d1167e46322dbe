"""Members of unions that a draft shows, of values that it brought in and then changed.

Such a value is committed as it is in the end, and the union chooses its member by that: what breaks
the class that it came as may fit another one, which drops the fields that it does not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from perdure.core.draft.place import Place
from perdure.core.types.kept_whole import check_turned
from perdure.core.types.objects import ObjectNode
from perdure.core.types.unions import UnionNode, Whole
from perdure.errors import SchemaError


def shown_members(place: Place) -> Iterator[Place]:
    """Yields the values of unions that a change at a place changes, too."""
    for one in place.line():
        if _union(one) is not None and isinstance(one.node, ObjectNode | Whole):
            yield one


def check_shown_members(places: Iterable[Place]) -> None:
    """Refuses changed values that a reader gets as another member than the draft shows.

    Raises:
        Unstorable: one is.
    """
    for one in places:
        if not one.stands or (union := _union(one)) is None:
            continue
        at, root = one.last_path(), one.session.root_name
        try:
            built = union.build(one.plain, at, root)
        except SchemaError:
            continue  # the commit says so, where the value stays
        shown = one.node.face.type if isinstance(one.node, ObjectNode) else type(built)
        check_turned(union, shown, one.plain, built, at, root)


def _union(place: Place) -> UnionNode | None:
    node = None if place.parent is None else place.parent.node.child(place.key)
    return node if isinstance(node, UnionNode) else None
