"""Answers about the parts of one value, remembered while the whole is asked.

Without them, each level of nested unions would ask all below it once more than the level above.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from perdure.core.types.nodes import Node
from perdure.core.values.plain_values import Path, Plain
from perdure.errors import SchemaError

_Refusals = dict[tuple[int, int, Path], tuple[Plain, SchemaError]]


class _Asked(threading.local):
    """Of this thread.

    Attributes:
        refused: by member of a union, value and place, while a union is built of its parts.
        checked: True while it is looked for objects that were read as those of another class.
    """

    known: dict[tuple[int, int], tuple[Plain, bool]] | None = None
    refused: _Refusals | None = None
    checked = False

    def builds(self, node: Node, plain: Plain) -> bool:
        assert self.known is not None
        mark = id(node), id(plain)
        if mark not in self.known:
            self.known[mark] = plain, builds(node, plain)  # with it, so that its id stays its own
        return self.known[mark][1]


asked = _Asked()


@contextmanager
def asking() -> Iterator[_Asked]:
    if asked.known is not None:
        yield asked
        return
    try:
        asked.known = {}
        yield asked
    finally:
        asked.known = None


@contextmanager
def checking() -> Iterator[None]:
    """A part that is built meanwhile is not checked by itself: whoever checks the whole comes to
    it."""
    try:
        asked.checked = True
        yield
    finally:
        asked.checked = False


def builds(node: Node, plain: Plain) -> bool:
    try:
        node.build(plain)
    except SchemaError:
        return False
    return True
