"""Results of functions that declare no type: of objects with fields, the plain data is kept.

A result is known when its call has taken effect. To refuse it then would lose what was paid for.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import Any

from msgspec import field

from perdure.core.schema.taken_values import take_at, take_untyped
from perdure.core.types.faces import face_of
from perdure.core.types.nodes import Node
from perdure.core.types.registry import Registry
from perdure.core.values.plain_values import CopyWalk, Path, Plain
from perdure.errors import Unstorable
from perdure.system import logs

OURS = "perdure"
CLASSES_MAX = 256
TOLD_MAX = 1000
_told: set[tuple[str, ...]] = set()
_log = logs.logger("perdure.engine")


def take_undeclared(value: Any, root: str) -> tuple[Plain, list[str]]:
    """Returns a result as plain data, and the names of the classes that it had and will not have
    again.

    Raises:
        Unstorable: it has no plain form; names the path.
    """
    try:
        return take_untyped(value, root), []
    except Unstorable:
        walk = _ObjectsToo(root=root)
        return walk.take(value, ()), [*walk.classes]


def warn_once(function: str, classes: list[str]) -> None:
    """Logs that the caller of a function gets plain data, and what to declare."""
    said = (function, *classes)
    if said in _told or len(_told) >= TOLD_MAX:
        return
    _told.add(said)
    # Not by `warnings`: where those are errors, this would be the error of a call that succeeded.
    _log.warning(
        "%s() returned %s, and declares no type: its caller gets plain data instead, now and on "
        "each replay; annotate what it returns (-> %s), or say returns=",
        function,
        " and ".join(classes),
        classes[0] if len(classes) == 1 else "…",
    )


class _ObjectsToo(CopyWalk):
    """A walk that also takes objects with fields, and members of Enums, by their own classes.

    Attributes:
        classes: the names of those met.
    """

    classes: dict[str, None] = field(default_factory=dict)

    def other(self, value: Any, at: Path) -> Plain:
        cls: Any = type(value)
        if not _has_plain_form(cls):
            return super().other(value, at)
        plain = take_at(_node(cls), value, at, root=self.root)
        self.classes[cls.__qualname__] = None
        return plain


@lru_cache(CLASSES_MAX)
def _has_plain_form(cls: type) -> bool:
    if cls.__module__.partition(".")[0] == OURS:
        return False  # `run.again(…)`, for one, which must be returned by the agent function
    is_named_tuple = issubclass(cls, tuple) and hasattr(cls, "_fields")
    return is_named_tuple or issubclass(cls, Enum) or face_of(cls) is not None


@lru_cache(CLASSES_MAX)
def _node(cls: type) -> Node:
    return Registry(cls).root
