"""The ops between two plain trees, for a value that is given whole.

Shortcuts first: the same object, a common prefix and suffix. Kept simple behind them: a changed
stretch of a list is one splice; only if it has as many items as before are they compared singly.
The order of a dict's keys is data (docs/decisions/0001): keys out of place are deleted and set
again, which puts them at the end.
"""

from __future__ import annotations

from typing import Any

from perdure.core.values.ops import Append, Delete, Op, Set, SetAdd, SetRemove, Splice, TextSplice
from perdure.core.values.plain_values import Path, Plain, copy, mark, marks, same, shared_keys

TEXT_MIN = 64
"""Shorter texts are set whole: the op would cost more than the text."""


def diff(old: Plain, new: Plain, path: Path = ()) -> list[Op]:
    """Returns ops that turn `old` into `new`. Their values are copies; neither tree is changed."""
    ops: list[Op] = []
    _diff(old, new, path, ops)
    return ops


def _diff(old: Plain, new: Plain, path: Path, ops: list[Op]) -> None:
    if old is new:
        return
    kind = type(old)
    if kind is not type(new):
        ops.append(Set(path, copy(new)))
    elif kind is dict:
        _diff_dicts(old, new, path, ops)
    elif kind is list:
        _diff_lists(old, new, path, ops)
    elif _alike(old, new):
        return
    elif kind is set:
        _diff_sets(old, new, path, ops)
    elif kind is str and (splice := text_splice(old, new, path)):
        ops.append(splice)
    else:
        ops.append(Set(path, copy(new)))


def _diff_dicts(old: Plain, new: Plain, path: Path, ops: list[Op]) -> None:
    kept = shared_keys(old, new)
    if not len(kept) == len(old) == len(new) or list(old) != list(new):
        kept -= _out_of_place(old, new, kept)
        for key in old:
            if key not in kept:
                ops.append(Delete((*path, key)))
    for key, item in new.items():
        if key in kept:
            _diff(old[key], item, (*path, key), ops)
        else:
            ops.append(Set((*path, key), copy(item)))


def _out_of_place(old: Plain, new: Plain, kept: set[Any]) -> set[Any]:
    """Returns the keys of both that cannot stay where they are: a key that is set again comes
    last."""
    moved: set[Any] = set()
    order = iter(new)
    wanted = next(order, _END)
    for key in old:
        if key not in kept:
            continue
        if key == wanted:
            wanted = next(order, _END)
        else:
            moved.add(key)
    return moved


_END = object()


def _alike(a: Plain, b: Plain) -> bool:
    """True if two values are the same, with the keys of their dicts in the same order."""
    if a is b:
        return True
    kind = type(a)
    if kind is not type(b):
        return False
    if kind is str or kind is int:
        return bool(a == b)
    if kind is dict:
        return len(a) == len(b) and _alike_dicts(a, b)
    if kind is list or kind is tuple:
        return len(a) == len(b) and all(map(_alike, a, b))
    return same(a, b)


def _alike_dicts(a: dict[Any, Any], b: dict[Any, Any]) -> bool:
    keys = list(a)
    if keys != list(b):
        return False
    texts = True
    for key in keys:
        item, its = a[key], b[key]
        if item is not its and not _alike(item, its):
            return False
        texts = texts and type(key) is str
    return texts or marks(a) == marks(b)


def _diff_lists(old: Plain, new: Plain, path: Path, ops: list[Op]) -> None:
    shorter = min(len(old), len(new))
    front = 0
    while front < shorter and _alike(old[front], new[front]):
        front += 1
    if front == len(old) == len(new):
        return
    back = 0
    while back < shorter - front and _alike(old[-1 - back], new[-1 - back]):
        back += 1
    gone, come = len(old) - front - back, len(new) - front - back
    if gone == come:
        for index in range(front, front + gone):
            _diff(old[index], new[index], (*path, index), ops)
    elif gone == 0 and back == 0:
        ops.append(Append(path, copy(new[front:])))
    else:
        ops.append(Splice(path, front, gone, copy(new[front : front + come])))


def _diff_sets(old: Plain, new: Plain, path: Path, ops: list[Op]) -> None:
    # By type too: {1} and {True} are equal to Python and not to us.
    before = {mark(item): item for item in old}
    after = {mark(item): item for item in new}
    gone = [item for key, item in before.items() if key not in after]
    come = [item for key, item in after.items() if key not in before]
    if not set(come).isdisjoint(gone):
        ops.append(Set(path, copy(new)))
        return
    if gone:
        ops.append(SetRemove(path, gone))
    if come:
        ops.append(SetAdd(path, come))


def text_splice(old: str, new: str, path: Path) -> TextSplice | None:
    """Returns the splice between two long texts with much in common; None where setting the text is
    better."""
    if len(old) < TEXT_MIN or len(new) < TEXT_MIN:
        return None
    front = _common_prefix(old, new)
    rest = min(len(old), len(new)) - front
    back = _common_prefix(old[: -rest - 1 : -1], new[: -rest - 1 : -1]) if rest else 0
    text = new[front : len(new) - back]
    if len(text) * 2 > len(new):
        return None
    return TextSplice(path, front, len(old) - front - back, text)


def _common_prefix(a: str, b: str) -> int:
    """Returns the length of the common prefix, found by halving: slices compare at the speed of
    memory, characters in a loop do not."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
