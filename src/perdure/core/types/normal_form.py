"""The plain form in which a typed value stands in the log: building it leaves it as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from perdure.core.types.moved_objects import Moves, Part
from perdure.core.types.nodes import AnyNode, LeafNode, Node, TupleNode, Walker, isolate
from perdure.core.types.objects import ObjectNode, alike, is_default
from perdure.core.types.renamed_fields import renamed_in
from perdure.core.types.unions import may_be_another
from perdure.core.types.unknown_fields import Known, keep_unknown
from perdure.core.values.plain_values import SCALARS, Path, Plain, copy, format_path
from perdure.errors import Unstorable
from perdure.missing import MISSING


def in_normal_form(node: Node, plain: Plain, path: Path, root: str) -> tuple[Any, Plain]:
    """Returns the typed value and its plain form: `plain` itself if that is in normal form.

    Raises:
        SchemaError: it does not fit. Unstorable: validation changes it each time.
    """
    if isinstance(node, AnyNode):
        return isolate(plain), plain
    if node.stable(plain):
        return node.build_stable(plain, path, root), plain
    return normalised(node, plain, path, root)


def normalised(node: Node, plain: Plain, path: Path, root: str) -> tuple[Any, Plain]:
    """As `in_normal_form`, for a value that is not known to be in it."""
    value = node.build(plain, path, root)
    taken = node.plain(value, path, Walker(root=root))
    if alike(node, taken, plain):
        return value, plain
    fixed = as_stored(node, plain, taken, path, root)
    if alike(node, fixed, plain):
        return value, plain
    again = node.plain(node.build(fixed, path, root), path, Walker(root=root))
    if not alike(node, as_stored(node, fixed, again, path, root), fixed):
        raise restless(path, root)
    return value, fixed


def restless(path: Path, root: str) -> Unstorable:
    """Returns the error for a value that validation changes each time."""
    return Unstorable(
        "validating it a second time changes it again",
        target=format_path(path, root),
        hint="make the validator, or hook of the class, leave its own result as it is",
    )


def longer_named_tuples(
    node: Node, stored: Plain, plain: Plain, at: Path = ()
) -> Iterator[tuple[Path, TupleNode]]:
    """Yields the NamedTuples that have more items in `plain`, a normal form, than in `stored`."""
    node = node.pick(plain)
    if type(stored) is not type(plain) or isinstance(node, AnyNode | LeafNode):
        return
    if type(plain) is dict:
        pairs = [(key, stored[key], one) for key, one in plain.items() if key in stored]
    elif type(plain) in (list, tuple):
        if isinstance(node, TupleNode) and node.cls is not tuple and len(plain) > len(stored):
            yield at, node
        pairs = [(index, *pair) for index, pair in enumerate(zip(stored, plain, strict=False))]
    else:
        return
    for key, was, one in pairs:
        child = None if type(one) in SCALARS else node.child(key)
        if child is not None:
            yield from longer_named_tuples(child, was, one, (*at, key))


def as_stored(node: Node, stored: Plain, taken: Plain, at: Path, root: str) -> Plain:
    """Returns `taken` (the plain form of a typed value) with the parts of `stored` that the types
    do not show.

    Keys that a class does not know stay with their objects, and a field that is missing in `stored`
    stays missing while it has its default.

    An object that a hook put elsewhere keeps its own there.

    Raises:
        SchemaError: items cannot be matched with those that a newer program stored something in.
    """
    thin = _thinned(node, stored, taken)
    known = brought_along([(node, stored, thin, at)], root)
    return keep_unknown(node, stored, thin, at, root=root, known=known)


def fields_as_stored(
    node: ObjectNode, stored: dict[Any, Any], taken: dict[str, Plain], at: Path, root: str
) -> dict[str, Plain]:
    """As `as_stored`, for fields of one object that a hook may have moved objects between. Returns
    those that are not as they are stored."""
    parts = []
    for name, one in taken.items():
        child, was, path = node.child(name), stored.get(name, MISSING), (*at, name)
        if child is not None and not (was is MISSING and is_default(node, name, one)):
            thin = one if was is MISSING else _thinned(child, was, one)
            if was is MISSING or not alike(child, thin, was):
                parts.append((child, was, thin, path))
    known = brought_along(parts, root)
    fixed = {}
    for child, was, thin, path in parts:
        kept = thin
        if was is not MISSING:
            kept = keep_unknown(child, was, thin, path, root=root, known=known)
        if was is MISSING or not alike(child, kept, was):
            fixed[path[-1]] = kept
    return fixed


def brought_along(parts: Sequence[Part], root: str) -> Known:
    """Gives objects that a hook put elsewhere what a newer program stored in them: in place, in
    the values as the types read them. Returns those, and those that get nothing at their places.

    Raises:
        SchemaError: which object is which cannot be told.
    """
    moves, known = Moves(parts, root), Known()
    for one in moves.fresh:
        known[id(one)] = one, MISSING
    for node, was, comes, path in moves.found:
        kept = copy(as_stored(node, was, comes, path, root))
        comes.clear()
        comes.update(kept)
        known[id(comes)] = comes, was
    return known


def _thinned(declared: Node, stored: Plain, taken: Plain) -> Plain:
    """Returns `taken` without the defaults that are not stored, and in the order of the stored
    fields."""
    node, kind = declared.pick(taken), type(taken)
    if isinstance(node, AnyNode) or type(stored) is not kind:
        return taken
    if kind is dict:
        return _thinned_dict(node, stored, taken, may_be_another(declared, stored))
    if kind not in (list, tuple) or len(stored) != len(taken):
        return taken
    first = node.child(0)
    if kind is list and (first is None or (isinstance(first, LeafNode) and first.as_is)):
        return taken
    return kind(
        one if (child := node.child(at)) is None else _thinned(child, was, one)
        for at, (was, one) in enumerate(zip(stored, taken, strict=True))
    )


def _thinned_dict(
    node: Node, stored: dict[Any, Any], taken: dict[Any, Any], may_be_another: bool
) -> Plain:
    result = {}
    for key, item in stored.items():
        if key in taken:
            child = node.child(key)
            result[key] = taken[key] if child is None else _thinned(child, item, taken[key])
    if not may_be_another:
        for key, item in taken.items():
            if key not in stored and not is_default(node, key, item):
                result[key] = item
    return result if isinstance(node, ObjectNode) else {key: result[key] for key in taken}


def completed(node: Node, plain: Plain, *, by_newer: bool = False) -> Plain:
    """`plain`, with what it lacks of fields that may be others each time, as they are now. The same
    where it lacks none of them.

    Args:
        by_newer: a newer program stored it, and this one need not know all fields. Else an object
            stays as it is where a field of it seems to be renamed: the default would hide that.
    """
    kind = type(plain)
    if kind not in (dict, list, tuple):
        return plain
    declared, node = node, node.pick(plain)
    if isinstance(node, AnyNode | LeafNode):
        return plain
    first = node.child(0) if kind is list and plain and type(plain[0]) is dict else None
    if isinstance(first, ObjectNode) and first.are_whole(plain):
        return plain
    made: dict[Any, Plain] = {}
    for key, item in plain.items() if kind is dict else enumerate(plain):
        child = None if type(item) in SCALARS else node.child(key)
        if child is None:
            continue
        whole = completed(child, item, by_newer=by_newer)
        if whole is not item:
            made[key] = whole
    if kind is not dict:
        return kind(made.get(at, item) for at, item in enumerate(plain)) if made else plain
    if isinstance(node, ObjectNode) and node.filled_in - plain.keys():
        hidden = may_be_another(declared, plain) or (not by_newer and renamed_in(node, plain))
        made |= {} if hidden else _filled_in(node, plain)
    return {**plain, **made} if made else plain


def _filled_in(node: ObjectNode, plain: Plain) -> dict[str, Plain]:
    """Returns what its lacking fields have, except for fixed defaults that are left as they are."""
    lacking = node.filled_in - plain.keys()
    whole = node.plain(node.build(plain), (), Walker())
    fixed = {name for name in lacking if node.fields[name].default_is_fixed}
    return {
        name: item
        for name, item in whole.items()
        if name in lacking and not (name in fixed and is_default(node, name, item))
    }
