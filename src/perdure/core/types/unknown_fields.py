"""Fields that a newer program stored in objects and this one does not know, kept through whole
values.

A newer minor version may give a class fields that this program's class has not. A whole value of
this program comes without them, so each of its objects must first be matched with the one that was
there. Objects are the same where their place is: a field, a dict's key. An item of a list is the
same where it is equal in all that this program knows, else by its place between such neighbours.
The rest is refused: a newer program's data is neither dropped nor attached by guess. Objects that
came out of an edit's draft are known; see `typed_copies`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence, Set
from typing import Any

from perdure.core.types.nodes import AnyNode, ListNode, Node, TupleNode, Walker
from perdure.core.types.objects import ObjectNode, is_default
from perdure.core.types.unions import keeps_class, may_be_another
from perdure.core.values.codec import canonical
from perdure.core.values.plain_values import Path, Plain, copy, format_path, same
from perdure.errors import PerdureError, SchemaError


def unknown(node: Node, plain: Plain, at: Path = ()) -> Iterator[Path]:
    """Yields the places in a plain value that its classes do not know."""
    node = node.pick(plain)
    if isinstance(node, AnyNode):
        return
    if type(plain) is dict:
        for key, item in plain.items():
            child = node.child(key)
            if child is not None:
                yield from unknown(child, item, (*at, key))
            elif isinstance(node, ObjectNode) and not node.knows(key):
                yield (*at, key)
    elif type(plain) in (list, tuple):
        for index, item in enumerate(plain):
            child = node.child(index)
            if child is not None:
                yield from unknown(child, item, (*at, index))


def known_part(node: Node, plain: Plain) -> bytes:
    """Returns the part of a plain value that this program knows, for comparing; defaults are filled
    in."""
    return canonical(node.plain(node.build(plain), (), Walker()))


class Known(dict[int, tuple[Plain, Plain]]):
    """By their identity, plain containers of which is known what they were, each with that: a copy
    of what was stored, or MISSING where a newer program had stored nothing in it."""

    here: Set[int] = frozenset()
    """By identity, what was stored in those that stand in the value at hand. It goes with them:
    what stands where they stood is another thing."""


def keep_unknown(
    node: Node,
    old: Plain,
    new: Plain,
    at: Path = (),
    *,
    root: str = "state",
    known: Known | None = None,
) -> Plain:
    """Returns `new`, with the parts of `old` that the classes at their places do not know.

    Args:
        old: the value stored at a place.
        new: a whole value of this program for the same place; not changed.
        known: parts of `new` that are known not to be the ones at their places, however alike.

    Raises:
        SchemaError: items of a list cannot be matched; names the list.
    """
    if next(unknown(node, old, at), None) is None:
        return new
    return keep(node, old, new, at, root, Known() if known is None else known)


def keep(node: Node, old: Plain, new: Plain, at: Path, root: str, known: Known) -> Plain:
    """Does the work of `keep_unknown`, where there is something to keep."""
    if old is new or id(new) in known or id(old) in known.here:
        return new
    kept = keep_own(node, old, new, at, root, known)
    if id(old) in known and kept is not new:
        known[id(kept)] = kept, known[id(old)][1]
    return kept


def keep_own(node: Node, old: Plain, new: Plain, at: Path, root: str, known: Known) -> Plain:
    """As `keep`, for a value that is surely the one that was stored."""
    picked = node.pick(new)
    if not of_one_kind(old, new, picked) or node.pick(old) is not picked:
        return new  # another thing, and what was known of the old one goes with it
    if isinstance(picked, AnyNode):
        return new
    if type(new) is dict:
        if isinstance(picked, ObjectNode) and may_be_another(node, old):
            if _reads_as(picked, old, new):
                return old  # what is in it is of the other class, too
            new = _with_same_fields(node, picked, old, new, at, root)
        return _keep_in_dict(picked, old, new, at, root, known)
    if isinstance(picked, TupleNode) and picked.rest is None:
        return tuple(
            one
            if (child := picked.child(index)) is None
            else keep(child, old[index], one, (*at, index), root, known)
            for index, one in enumerate(new)
        )
    item = picked.child(0)
    if isinstance(picked, ListNode | TupleNode) and item is not None:
        return type(new)(_keep_in_items(item, old, new, at, root, known))
    return new


def of_one_kind(old: Plain, new: Plain, node: Node) -> bool:
    """True if both are a dict, a list or a tuple; where a Sequence is declared, if both are one."""
    kinds = {type(old), type(new)}
    return len(kinds) == 1 or (kinds == {list, tuple} and isinstance(node, ListNode))


Object = dict[Any, Any]


def _reads_as(node: ObjectNode, old: Object, new: Object) -> bool:
    """True if an object as it is stored, read by this program, has the new form."""
    read = node.plain(node.build(old), (), Walker())
    gone = any(key not in new for key in old if node.knows(key))
    return not gone and all(key in read and same(item, read[key]) for key, item in new.items())


def _with_same_fields(
    declared: Node, node: ObjectNode, old: Object, new: Object, at: Path, root: str
) -> Object:
    """Returns a new form of an object without the defaults that are not stored: its fields say to a
    newer program of which class it is; see `may_be_another`.

    Raises:
        SchemaError: it has a further field, or lacks one, or one of them says so by its value.
    """
    kept = {key: one for key, one in new.items() if key in old or not is_default(node, key, one)}
    gone = [key for key in old if key not in kept and node.knows(key)]
    both = [key for key in kept if key in old and not same(old[key], kept[key])]
    told = [key for key in both if not keeps_class(declared, key, old[key], kept[key])]
    if gone or told or kept.keys() - old:
        raise of_which_class(at, root)
    return kept


_NOT_TOLD_APART = "its items cannot be told apart, and a newer program stored in them "
_OF_WHICH_CLASS = "its fields say of which class it is, and a newer program stored some "


def is_of_newer_data(error: PerdureError) -> bool:
    """True if it says that it is not clear where what a newer program stored belongs."""
    return error.problem.startswith((_NOT_TOLD_APART, _OF_WHICH_CLASS))


def of_which_class(at: Path, root: str) -> SchemaError:
    """Returns the error for an object whose class may be another one with other fields."""
    return SchemaError(
        f"{_OF_WHICH_CLASS}that this one does not know: so changed it might be of another class",
        target=format_path(at, root),
        hint="take it out and then put a new one in; or change it with the newer program",
    )


def _keep_in_dict(node: Node, old: Plain, new: Plain, at: Path, root: str, known: Known) -> Plain:
    kept = {}
    for key, item in old.items():
        child = node.child(key)
        if key in new:
            kept[key] = (
                new[key] if child is None else keep(child, item, new[key], (*at, key), root, known)
            )
        elif isinstance(node, ObjectNode) and not node.knows(key):
            kept[key] = copy(item)
    stored_first = {**kept, **{key: item for key, item in new.items() if key not in kept}}
    is_object = isinstance(node, ObjectNode) and not node.face.is_dict
    if is_object or [key for key in stored_first if key in new] == list(new):
        return stored_first  # a class has an order of its own, so the stored one stays
    return {**{key: stored_first[key] for key in new}, **stored_first}


def _keep_in_items(
    item: Node, old: Sequence[Plain], new: Sequence[Plain], at: Path, root: str, known: Known
) -> list[Plain]:
    kept = list(new)
    for index, was in _pairs(item, old, new, at, root, known):
        kept[index] = keep(item, old[was], new[index], (*at, index), root, known)
    return kept


def _pairs(
    item: Node, old: Sequence[Plain], new: Sequence[Plain], at: Path, root: str, known: Known
) -> list[tuple[int, int]]:
    """Returns the matching of new and old items: (index, index before)."""
    fields = [[str(path[-1]) for path in unknown(item, one)] for one in old]
    equal: dict[bytes, tuple[list[int], list[int]]] = {}
    there = {id(one): index for index, one in enumerate(old)}
    was = [id(known[id(one)][1]) if id(one) in known else id(one) for one in new]
    pairs = [(now, there[one]) for now, one in enumerate(was) if one in there]
    foreign = {now for now, one in enumerate(new) if id(one) in known and was[now] not in there}
    moved = {before for before, one in enumerate(old) if id(one) in known.here}
    met = {*foreign, *(now for now, _ in pairs)}, moved.union(before for _, before in pairs)
    for side, items in enumerate((new, old)):
        for index, one in enumerate(items):
            if index not in met[side]:
                equal.setdefault(known_part(item, one), ([], []))[side].append(index)
    for now, before in equal.values():
        if 0 < len(now) < len(before) and len({canonical(old[index]) for index in before}) > 1:
            raise _refused([name for index in before for name in fields[index]], at, root)
        pairs += zip(now, before, strict=False)
    pairs.sort()
    in_order = [before for _, before in pairs] == sorted(before for _, before in pairs)
    loose = gaps(pairs, len(new), len(old)) if in_order else _rest(pairs, new, old)
    for stretch, left in loose:
        come = [now for now in stretch if now not in foreign]
        gone = [before for before in left if before not in moved]
        lost = [name for index in gone for name in fields[index]]
        if in_order and len(come) == len(gone):
            pairs += zip(come, gone, strict=True)
        elif come and lost:
            raise _refused(lost, at, root)
    return pairs


Stretch = tuple[Sequence[int], Sequence[int]]
"""Items without a partner, now and before."""


def gaps(pairs: Sequence[tuple[int, int]], count: int, count_before: int) -> Iterator[Stretch]:
    """Yields the stretches between two matched items, and at the ends."""
    ends = [(-1, -1), *pairs, (count, count_before)]
    for (low, low_before), (high, high_before) in itertools.pairwise(ends):
        yield range(low + 1, high), range(low_before + 1, high_before)


def _rest(
    pairs: Sequence[tuple[int, int]], new: Sequence[Plain], old: Sequence[Plain]
) -> Iterator[Stretch]:
    """Yields all unmatched items together: where items were moved about, they lie between no
    neighbours."""
    nows, befores = {now for now, _ in pairs}, {before for _, before in pairs}
    yield (
        [index for index in range(len(new)) if index not in nows],
        [index for index in range(len(old)) if index not in befores],
    )


def _refused(fields: Sequence[str], at: Path, root: str) -> SchemaError:
    return SchemaError(
        f"{_NOT_TOLD_APART}what this one does not know: {', '.join(fields)}",
        target=format_path(at, root),
        hint="change the items one by one in agent.edit(), which knows which is which; "
        "or save with the newer program",
    )
