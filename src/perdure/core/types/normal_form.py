"""The plain form in which a typed value stands in the log: building it leaves it as it is."""

from __future__ import annotations

from typing import Any

from perdure.core.types.nodes import AnyNode, Node, Walker, isolate
from perdure.core.types.objects import alike, reconcile
from perdure.core.values.plain_values import Path, Plain, format_path
from perdure.errors import Unstorable


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
    fixed = reconcile(node, plain, taken)
    if alike(node, fixed, plain):
        return value, plain
    again = node.plain(node.build(fixed, path, root), path, Walker(root=root))
    if not alike(node, reconcile(node, fixed, again), fixed):
        raise restless(path, root)
    return value, fixed


def restless(path: Path, root: str) -> Unstorable:
    """Returns the error for a value that validation changes each time."""
    return Unstorable(
        "validating it a second time changes it again",
        target=format_path(path, root),
        hint="make the validator, or hook of the class, leave its own result as it is",
    )
