"""The ops of a delta: changes that are applied to a plain tree, inverted, and compared for overlap.

Folding applies them in order. It runs no code but this file, so a state is a function of the log
alone (I6). Lists and texts count items and code points from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

from msgspec import Struct

from perdure.core.values.plain_values import (
    DECIMALS,
    Path,
    Plain,
    copy,
    format_path,
    look_up,
    stored,
)
from perdure.delta import (
    Append,
    Delete,
    Increment,
    Move,
    Op,
    Set,
    SetAdd,
    SetRemove,
    Splice,
    TextSplice,
)
from perdure.missing import MISSING
from perdure.system import stack_room

__all__ = [
    "AT_A_KEY",
    "TORN",
    "Append",
    "Delete",
    "Increment",
    "Move",
    "Op",
    "OpError",
    "Reach",
    "Set",
    "SetAdd",
    "SetRemove",
    "Splice",
    "TextSplice",
    "add",
    "apply",
    "apply_noting",
    "fold",
    "invert",
    "is_torn",
    "own",
    "reach",
]


TORN: Op = Set((), MISSING)
"""Stands among inverses while a tree is changed: an exception that comes meanwhile leaves it there,
and nothing can take the tree back."""


class OpError(ValueError):
    """An op that does not fit the tree it is applied to: the log and the state disagree."""


def apply(root: Plain, op: Op) -> Plain:
    """Applies one op to a tree in place; returns the root (another one only for Set at ()).

    Raises:
        OpError: the op does not fit. The tree may not be trusted afterwards.
    """
    try:
        return _APPLIED[type(op)](root, op)
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        stack_room.pass_on(error)
        where = format_path(op.path)
        raise OpError(f"{type(op).__name__} at {where} does not fit: {error}") from error


def _set(root: Plain, op: Set) -> Plain:
    return _put(root, op.path, op.value)


def _delete(root: Plain, op: Delete) -> Plain:
    del look_up(root, op.path[:-1])[op.path[-1]]
    return root


def _append(root: Plain, op: Append) -> Plain:
    _list(root, op.path).extend(op.values)
    return root


def _splice(root: Plain, op: Splice) -> Plain:
    items = _list(root, op.path)
    _within(op.index + op.removed, len(items))
    items[op.index : op.index + op.removed] = op.values
    return root


def _text_splice(root: Plain, op: TextSplice) -> Plain:
    text = look_up(root, op.path)
    _within(op.index + op.removed, len(text))
    return _put(root, op.path, text[: op.index] + op.text + text[op.index + op.removed :])


def _increment(root: Plain, op: Increment) -> Plain:
    return _put(root, op.path, add(look_up(root, op.path), op.by))


def _set_add(root: Plain, op: SetAdd) -> Plain:
    look_up(root, op.path).update(op.members)
    return root


def _set_remove(root: Plain, op: SetRemove) -> Plain:
    look_up(root, op.path).difference_update(op.members)
    return root


def _move(root: Plain, op: Move) -> Plain:
    items = _list(root, op.path)
    items.insert(op.target, items.pop(op.source))
    return root


AT_A_KEY = frozenset({Set, Delete, TextSplice, Increment})
"""Ops that change what stands at the end of their path; the others change the container there."""

_APPLIED: dict[type, Callable[[Plain, Any], Plain]] = {
    Set: _set,
    Delete: _delete,
    Append: _append,
    Splice: _splice,
    TextSplice: _text_splice,
    Increment: _increment,
    SetAdd: _set_add,
    SetRemove: _set_remove,
    Move: _move,
}
"""By kind: who rehydrates a state applies thousands, and a `match` tries one kind after another."""


def _list(root: Plain, path: Path) -> list[Plain]:
    items = look_up(root, path)
    if type(items) is not list:
        raise TypeError(f"a {type(items).__name__} where a list should be")
    return items


def _within(end: int, length: int) -> None:
    if end > length:
        raise IndexError(f"ends at {end} of {length}")


def add(number: Plain, by: Plain) -> Plain:
    """Returns the sum that an Increment makes. I6: never under the thread's own decimal context."""
    if type(number) is Decimal or type(by) is Decimal:
        return DECIMALS.add(number, by)
    return number + by


def _put(root: Plain, path: Path, value: Plain) -> Plain:
    if not path:
        return value
    look_up(root, path[:-1])[path[-1]] = value
    return root


def fold(root: Plain, ops: Iterable[Op]) -> Plain:
    """Applies ops in order, in place; returns the root."""
    for op in ops:
        root = apply(root, op)
    return root


def apply_noting(root: Plain, op: Op, inverses: list[Op]) -> Plain:
    """Applies a copy of an op like `apply`, and notes its inverse."""
    inverse = invert(root, op)
    inverses.append(TORN)
    root = apply(root, own(op))
    inverses[-1] = inverse
    return root


def is_torn(inverses: Iterable[Op]) -> bool:
    """True if the tree that they belong to cannot be taken back by them."""
    return any(one is TORN for one in inverses)


def invert(root: Plain, op: Op) -> Op:
    """Returns the op that takes `op` back, computed on the tree as it is *before* `op`.

    Values are copied, so that the inverse stays right when the tree changes.

    Raises:
        OpError: the op does not fit.
    """
    try:
        return _invert(root, op)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        stack_room.pass_on(error)
        where = format_path(op.path)
        raise OpError(f"{type(op).__name__} at {where} does not fit: {error}") from error


def _invert(root: Plain, op: Op) -> Op:
    match op:
        case Set(path=()):
            return Set((), copy(root))
        case Set():
            parent = look_up(root, op.path[:-1])
            if type(parent) is dict and op.path[-1] not in parent:
                return Delete(op.path)
            return Set(op.path, copy(parent[op.path[-1]]))
        case Delete():
            parent, key = look_up(root, op.path[:-1]), op.path[-1]
            return Set((*op.path[:-1], stored(parent, key)), copy(parent[key]))
        case Append():
            return Splice(op.path, len(look_up(root, op.path)), len(op.values), [])
        case Splice():
            gone = look_up(root, op.path)[op.index : op.index + op.removed]
            return Splice(op.path, op.index, len(op.values), copy(gone))
        case TextSplice():
            text = look_up(root, op.path)[op.index : op.index + op.removed]
            return TextSplice(op.path, op.index, len(op.text), text)
        case Increment():
            number = look_up(root, op.path)
            if type(number) is int and type(op.by) is int:
                return Increment(op.path, -op.by)
            return Set(op.path, number)  # (0.1 + 0.2) - 0.2 is not 0.1
        case SetAdd():
            before = look_up(root, op.path)
            return SetRemove(op.path, [item for item in op.members if item not in before])
        case SetRemove():
            before = look_up(root, op.path)
            gone = set(op.members)
            return SetAdd(op.path, [item for item in before if item in gone])
        case Move():
            return Move(op.path, op.target, op.source)


def own(op: Op) -> Op:
    """Returns the op with copied values, so that applying it does not tie the tree to the delta."""
    match op:
        case Set():
            return Set(op.path, copy(op.value))
        case Append():
            return Append(op.path, copy(op.values))
        case Splice():
            return Splice(op.path, op.index, op.removed, copy(op.values))
    return op


class Reach(Struct, frozen=True):
    """The part of a tree that an op touches: the value at `path`, or the items of its list (or
    text) from `start`.

    `stop` is the first index past what it touched; None where everything behind moved. `inserts`:
    True if something new stands at `start`.
    """

    path: Path
    start: int | None = None
    stop: int | None = None
    inserts: bool = False


def reach(op: Op, length: int | None = None) -> Reach:
    """Returns what an op touches. `length`: of the list at its path before it, for an Append."""
    match op:
        case Append():
            return Reach(op.path, length if length is not None else 0, None)
        case Splice():
            same_size = op.removed == len(op.values)
            stop = op.index + op.removed if same_size else None
            return Reach(op.path, op.index, stop, bool(op.values))
        case TextSplice():
            same_size = op.removed == len(op.text)
            stop = op.index + op.removed if same_size else None
            return Reach(op.path, op.index, stop, bool(op.text))
        case Move():
            low, high = sorted((op.source, op.target))
            return Reach(op.path, low, high + 1, inserts=True)
    return Reach(op.path)
