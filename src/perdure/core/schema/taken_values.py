"""Users' values as plain ones: taken apart, checked to come back as they are, and with what a newer
program stored in their objects."""

from __future__ import annotations

from collections import ChainMap
from functools import cache
from typing import Any

from perdure.core.types.kept_whole import comes_back
from perdure.core.types.nodes import AnyNode, Node, Walker
from perdure.core.types.objects import ObjectNode
from perdure.core.types.read_values import READ
from perdure.core.types.registry import Registry
from perdure.core.types.typed_copies import Copies
from perdure.core.types.unknown_fields import keep, unknown
from perdure.core.values.plain_values import Path, Plain, format_path, refuse_too_deep, same, take
from perdure.errors import PerdureError, SchemaError, Unstorable


def take_untyped(value: Any, root: str) -> Plain:
    """Returns a value without a declared type as a fresh plain one; see `plain_values.take`."""
    if not READ.given:
        return take(value, root=root)
    return take_at(_anything(), value, (), root=root)


@cache
def _anything() -> Node:
    return Registry(Any).root


def take_at(
    node: Node,
    value: Any,
    path: Path,
    seen: dict[int, Path] | None = None,
    root: str = "state",
    copies: Copies | None = None,
) -> Plain:
    """See `Schema.take`. `seen`: containers met so far; meeting one twice is refused. `copies`: of
    a draft, which may be met in the value."""
    walker = Walker(seen, root)
    if READ.given:
        walker.given = READ.given if copies is None else ChainMap(copies.given, READ.given)
    elif copies is not None:
        walker.given = copies.given
    if copies is not None:
        copies.taken.here = frozenset()
    plain = checked = node.plain(value, path, walker)
    # Of an object, whether it is valid is seen when the edit ends.
    surely = isinstance(node, ObjectNode) and not walker.unsure and node.stable(plain)
    if not surely and not isinstance(node, AnyNode):
        checked = _checked(node, value, plain, path, walker)
    if not walker.found:
        return checked
    copies = Copies() if copies is None else copies
    copies.settle(node, plain, path, walker.found, root)
    if checked is not plain:  # a validator made another of it
        checked = keep(node, plain, checked, path, root, copies.taken)
    refuse_too_deep(checked, path, root)  # what a newer program stored goes along
    return checked


def take_plain(node: Node, plain: Plain, root: str) -> Plain:
    """Returns plain data that somebody said, as `take_at` does. What the type itself stores is
    taken as it is: of a typed value that was sent, that is all that is left.

    Raises:
        SchemaError: it is neither.
    """
    try:
        return take_at(node, plain, (), root=root)
    except SchemaError:
        if not _is_stored_form(node, plain, root):
            raise
        return plain


def _is_stored_form(node: Node, plain: Plain, root: str) -> bool:
    try:
        if next(unknown(node, plain), None) is not None:
            return False
        return same(take_at(node, node.build(plain, (), root), (), root=root), plain)
    except PerdureError:
        return False


def _checked(node: Node, value: Any, plain: Plain, path: Path, walker: Walker) -> Plain:
    """Returns a value's plain form, checked to come back the same."""
    root = walker.root
    previous, classes = plain, walker.classes
    for attempt in range(2):
        typed = node.build(previous, path, root)
        if attempt == 0 and comes_back(node, value, typed, path, root):
            return plain
        again = Walker(None, root)
        plain = node.plain(typed, path, again)
        for at, cls in again.classes.items():
            if classes.get(at, cls) is not cls:
                raise Unstorable(
                    f"a {classes[at].__qualname__} would come back as a {cls.__qualname__}",
                    target=format_path(at, root),
                    hint="give both a field that tells them apart (a Literal, or a tag)",
                )
        if same(plain, previous):
            return plain
        if attempt == 1:
            break
        previous, classes = plain, again.classes
    difference = first_difference(previous, plain, path)
    raise Unstorable(
        "it would not come back as it is: validating it a second time changes it again",
        target=format_path(difference, root),
        hint="make the validator leave its own result as it is",
    )


def first_difference(a: Plain, b: Plain, at: Path) -> Path:
    """Returns the first place in which two plain values differ."""
    if type(a) is dict and type(b) is dict:
        for key in [*a, *b]:
            if key not in a or key not in b:
                return (*at, key)
            if not same(a[key], b[key]):
                return first_difference(a[key], b[key], (*at, key))
    if type(a) is list and type(b) is list and len(a) == len(b):
        for index, (one, other) in enumerate(zip(a, b, strict=True)):
            if not same(one, other):
                return first_difference(one, other, (*at, index))
    return at
