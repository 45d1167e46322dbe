"""Checks that ops fit a state before they are written: a delta that readers cannot fold would be
`Corrupt` for everybody, for good."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.core.values.ops import Op, apply, own
from perdure.core.values.plain_values import Path, Plain


def check_fits(root: Plain, delta: Iterable[Op]) -> Plain:
    """Folds a delta onto a copy of what it touches, and returns that. The state stays as it is; of
    each container on the way to a change one level is copied, and the rest is shared.

    Raises:
        OpError: an op does not fit.
    """
    made: list[Plain] = []
    for op in delta:
        root = apply(_thawed(root, op.path, made), own(op))
    return root


def _thawed(root: Plain, path: Path, made: list[Plain]) -> Plain:
    """Returns the root with copies of its own along a path; `made` keeps them, and so their ids."""
    own_ids = set(map(id, made))
    root = here = _copied(root, own_ids, made)
    for key in path:
        try:
            below = here[key]
        except (LookupError, TypeError):
            break  # it is new, or `apply` says what is wrong
        copied = _copied(below, own_ids, made)
        if copied is not below:
            here[key] = copied
        here = copied
    return root


def _copied(value: Plain, own_ids: set[int], made: list[Plain]) -> Plain:
    if type(value) not in (dict, list, set) or id(value) in own_ids:
        return value
    copied: Plain = value.copy()
    made.append(copied)
    own_ids.add(id(copied))
    return copied
