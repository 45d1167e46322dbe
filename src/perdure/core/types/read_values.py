"""Values that were read outside a state, recognised when they are stored again: they keep what a
newer program stored in them.

An older program reads arguments, signals and results that a newer one stored. Its classes do not
show all of that, and what it hands on is made of its objects. They are known by their identity for
as long as they live, as are the typed copies that a draft gives out.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from perdure.core.types.nodes import Copied, Node
from perdure.core.types.objects import UNKNOWN_KEYS
from perdure.core.types.typed_copies import Copies
from perdure.core.types.unknown_fields import unknown
from perdure.core.values.plain_values import Plain

T = TypeVar("T")

SWEPT_AT = 1000
"""Objects without weak references that are held before it is looked which of them are in use."""


class LivingCopies(dict[int, Copied]):
    """Copies by their identity, while somebody else has them. Safe to share between threads."""

    def __init__(self) -> None:
        super().__init__()
        self._references: dict[int, weakref.ref[Any]] = {}
        self._held: dict[int, Any] = {}
        """Those of which Python has no weak references, as of dicts and most Structs."""
        self._sweep_at = SWEPT_AT

    def __setitem__(self, mark: int, copied: Copied) -> None:
        typed = copied.typed
        try:
            self._references[mark] = weakref.ref(typed, lambda _: self._forget(mark))
        except TypeError:
            if len(self._held) >= self._sweep_at:
                self._sweep()
            self._held[mark] = typed
        # An object that changes is stored as it is: nothing of it is derived anew.
        super().__setitem__(mark, copied._replace(typed=None, derived={}))

    def __getitem__(self, mark: int) -> Copied:
        found = self._references.get(mark)
        typed = self._held[mark] if found is None else found()
        return super().__getitem__(mark)._replace(typed=typed)

    def _forget(self, mark: int) -> None:
        for known in (self, self._references, self._held):
            known.pop(mark, None)

    def _sweep(self) -> None:
        """Lets those go that nobody else has; what is in them goes at the next time."""
        for mark in list(self._held):
            typed = self._held.get(mark)
            if sys.getrefcount(typed) <= _OURS:
                self._forget(mark)
        self._sweep_at = max(SWEPT_AT, 2 * len(self._held))


def _count_ours() -> int:
    held = {0: object()}
    typed = held.get(0)
    return sys.getrefcount(typed)


_OURS = _count_ours()
"""The references that a sweep sees to an object that nobody else has."""

READ = Copies(LivingCopies())
"""The values that this process read. Empty where no newer program stored anything in one."""


def read(build: Callable[..., T], node: Node, plain: Plain, *where: Any) -> T:
    """Returns what `build` makes of a plain value that is in no state, and cannot change; remembers
    it.

    Args:
        node: the value's type.
        where: further arguments of `build`.
    """
    before = UNKNOWN_KEYS.met
    typed = build(plain, *where)
    newer = UNKNOWN_KEYS.met is not before and next(unknown(node, plain), None) is not None
    note_copy(node, typed, plain, newer=newer, stays=True)
    return typed


def note_copy(node: Node, typed: Any, plain: Plain, *, newer: bool, stays: bool) -> None:
    """Remembers a value that was built from `plain`. `newer`: a newer program stored something in
    it. `stays`: `plain` cannot change."""
    if newer or READ.given:  # that there is nothing in it may have to be known, too
        READ.note(node, typed, plain, stays=stays)
