"""What a newer program stored in objects and this one does not know, kept through whole values.

A newer minor version may give a class fields that this program's class has not. A whole value of
this program comes without them, so each of its objects must first be known for the one that was
there. Objects are the same where their place is: a field, a dict's key. An item of a list is the
same where it is equal in all that this program knows, else by its place between such neighbours.
What remains is refused: a newer program's data is neither dropped nor attached by guess.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from perdure.core.codec import canonical
from perdure.core.objects import ObjectNode
from perdure.core.types import AnyNode, DictNode, ListNode, Node, Origins, TupleNode, Walker
from perdure.core.values import Path, Plain, copy, format_path
from perdure.errors import SchemaError


def unknown(node: Node, plain: Plain, at: Path = ()) -> Iterator[Path]:
    """The places in a plain value that its classes do not know."""
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


def _known(node: Node, plain: Plain) -> bytes:
    """What this program knows of a plain value, to be compared; also where it has its defaults."""
    return canonical(node.plain(node.build(plain), (), Walker()))


def note_unknown(node: Node, typed: Any, plain: Plain, origins: Origins) -> None:
    """Remember what in a value just built from `plain` has fields that its class does not know."""
    if next(unknown(node, plain), None) is not None:
        _note(node, typed, plain, origins)


def _note(node: Node, typed: Any, plain: Plain, origins: Origins) -> None:
    node = node.pick_typed(typed)
    if isinstance(node, ObjectNode):
        fields = {key: copy(item) for key, item in plain.items() if not node.knows(key)}
        if fields:
            origins[id(typed)] = typed, fields
        for name in node.fields:
            child = node.child(name)
            if name in plain and child is not None:
                _note(child, node.face.get(typed, name), plain[name], origins)
    elif isinstance(node, DictNode) and type(plain) is dict:
        for key, item in plain.items():
            _note(node.item, typed[node.typed_key(key)], item, origins)
    elif isinstance(node, ListNode | TupleNode):
        for index, (one, item) in enumerate(zip(typed, plain, strict=True)):
            child = node.child(index)
            if child is not None:
                _note(child, one, item, origins)


def keep_unknown(
    node: Node, old: Plain, new: Plain, at: Path = (), *, root: str = "state"
) -> Plain:
    """`new`, with what `old` has and the classes at their places do not know.

    Args:
        old: what is stored at a place.
        new: a whole value of this program for the same place; not changed.

    Raises:
        SchemaError: it cannot be told which item of a list is which; names the list.
    """
    if next(unknown(node, old, at), None) is None:
        return new
    return _keep(node, old, new, at, root)


def _keep(node: Node, old: Plain, new: Plain, at: Path, root: str) -> Plain:
    if old is new:
        return new
    picked = node.pick(new)
    if type(old) is not type(new) or node.pick(old) is not picked:
        return new  # another thing, and what was known of the old one goes with it
    if isinstance(picked, AnyNode):
        return new
    if type(new) is dict:
        return _keep_in_dict(picked, old, new, at, root)
    if isinstance(picked, TupleNode) and picked.rest is None:
        return tuple(
            one if (child := picked.child(index)) is None
            else _keep(child, old[index], one, (*at, index), root)
            for index, one in enumerate(new)
        )  # fmt: skip
    item = picked.child(0)
    if isinstance(picked, ListNode | TupleNode) and item is not None:
        return type(new)(_keep_in_items(item, old, new, at, root))
    return new


def _keep_in_dict(node: Node, old: Plain, new: Plain, at: Path, root: str) -> Plain:
    kept = {}
    for key, item in old.items():
        child = node.child(key)
        if key in new:
            kept[key] = (
                new[key] if child is None else _keep(child, item, new[key], (*at, key), root)
            )
        elif isinstance(node, ObjectNode) and not node.knows(key):
            kept[key] = copy(item)
    shared = [key for key in new if key in kept]
    if isinstance(node, ObjectNode) and not node.face.is_dict:
        pass  # the class has an order of its own, so the stored one stays
    elif shared != [key for key in kept if key in new]:
        kept = {key: kept[key] for key in [*shared, *(key for key in kept if key not in new)]}
    if len(shared) == len(new):
        return kept
    return {**kept, **{key: item for key, item in new.items() if key not in kept}}


def _keep_in_items(
    item: Node, old: Sequence[Plain], new: Sequence[Plain], at: Path, root: str
) -> list[Plain]:
    kept = list(new)
    for index, was in _pairs(item, old, new, at, root):
        kept[index] = _keep(item, old[was], new[index], (*at, index), root)
    return kept


def _pairs(
    item: Node, old: Sequence[Plain], new: Sequence[Plain], at: Path, root: str
) -> list[tuple[int, int]]:
    """Which item of the new list was which of the old one: (index, index before)."""
    fields = [[str(path[-1]) for path in unknown(item, one)] for one in old]
    equal: dict[bytes, tuple[list[int], list[int]]] = {}
    there = {id(one): index for index, one in enumerate(old)}
    pairs = [(now, there[id(one)]) for now, one in enumerate(new) if id(one) in there]
    met = {now for now, _ in pairs}, {before for _, before in pairs}
    for side, items in enumerate((new, old)):
        for index, one in enumerate(items):
            if index not in met[side]:
                equal.setdefault(_known(item, one), ([], []))[side].append(index)
    for now, before in equal.values():
        if 0 < len(now) < len(before) and len({canonical(old[index]) for index in before}) > 1:
            raise _refused([name for index in before for name in fields[index]], at, root)
        pairs += zip(now, before, strict=False)
    pairs.sort()
    in_order = [before for _, before in pairs] == sorted(before for _, before in pairs)
    loose = _gaps(pairs, len(new), len(old)) if in_order else _rest(pairs, new, old)
    for come, gone in loose:
        lost = [name for index in gone for name in fields[index]]
        if in_order and len(come) == len(gone):
            pairs += zip(come, gone, strict=True)
        elif come and lost:
            raise _refused(lost, at, root)
    return pairs


Stretch = tuple[Sequence[int], Sequence[int]]
"""Items without a partner, now and before."""


def _gaps(pairs: Sequence[tuple[int, int]], count: int, count_before: int) -> Iterator[Stretch]:
    """Between each two items with a partner, and at the ends."""
    ends = [(-1, -1), *pairs, (count, count_before)]
    for (low, low_before), (high, high_before) in itertools.pairwise(ends):
        yield range(low + 1, high), range(low_before + 1, high_before)


def _rest(
    pairs: Sequence[tuple[int, int]], new: Sequence[Plain], old: Sequence[Plain]
) -> Iterator[Stretch]:
    """All together: where items were moved about, nothing lies between any."""
    nows, befores = {now for now, _ in pairs}, {before for _, before in pairs}
    yield (
        [index for index in range(len(new)) if index not in nows],
        [index for index in range(len(old)) if index not in befores],
    )


def _refused(fields: Sequence[str], at: Path, root: str) -> SchemaError:
    return SchemaError(
        "its items cannot be told apart, and a newer program stored in them what this one does "
        f"not know: {', '.join(fields)}",
        target=format_path(at, root),
        hint="change the items one by one in agent.edit(), which knows which is which; "
        "or save with the newer program",
    )
