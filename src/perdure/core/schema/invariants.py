"""Invariants: functions of the user that every commit must satisfy."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from numbers import Number
from typing import Any, TypeVar

from perdure.core.arguments.checks import iterable, mapping
from perdure.core.arguments.exact_types import is_a
from perdure.core.arguments.names import shown
from perdure.core.arguments.unrun_code import has_not_run, plain_function
from perdure.core.types.nodes import LeafNode, Node
from perdure.core.types.unions import UnionNode
from perdure.core.values.plain_values import Path, Plain, format_path
from perdure.errors import SchemaError, UnknownZone
from perdure.missing import MISSING
from perdure.system.user_errors import of_code

F = TypeVar("F", bound=Callable[..., Any])

NONE = frozenset((type(None),))

_PART = re.compile(r"\.?([^.\[\]]+)|\[(-?\d+)\]|\[(['\"])(.*?)\3\]")


def parse_path(text: str) -> Path:
    """Returns ``("messages", 3, "role")`` for ``"messages[3].role"``.

    Raises:
        ValueError: it is not such a path.
    """
    path: list[Any] = []
    at = 0
    while at < len(text):
        found = _PART.match(text, at)
        if found is None:
            raise ValueError(f"not a path: {text!r}")
        name, index, _, quoted = found.groups()
        path.append(int(index) if index is not None else name if name is not None else quoted)
        at = found.end()
    return tuple(path)


def invariant(*paths: str) -> Callable[[F], F]:
    """Limits an invariant to commits that touch one of these paths, or something inside or above.

    ``@perdure.invariant("status", "messages")``. Without it an invariant runs at every commit. A
    path that the state's type does not have is a `SchemaError` where its schema is used.
    """
    if any(map(callable, paths)):
        raise TypeError(
            "@perdure.invariant takes the paths that it checks, as @perdure.invariant('status'); "
            "an invariant of the whole state is a plain function"
        )
    parsed = tuple(parse_path(one) for one in paths)

    def mark(function: F) -> F:
        function.__perdure_paths__ = parsed  # type: ignore[attr-defined]
        return function

    return mark


def transitions(path: str, allowed: Mapping[Any, Collection[Any]]) -> Callable[[Any, Any], None]:
    """Returns an invariant that makes a field a status machine: it only moves along the listed
    edges.

    Args:
        path: e.g. ``"status"`` or ``"invoice.status"``.
        allowed: from each value to those it may become. Staying is always allowed, and so is any
            value at creation; a value that is not a key is final. The field may not be removed from
            its dict; what it is part of may be removed as a whole.
    """
    parsed = parse_path(path)
    edges = {
        _bare(old): _values(news, f"allowed[{shown(old)}]")
        for old, news in mapping(allowed, "allowed must be {old: [new, …]}").items()
    }

    def legal_transition(before: Any, after: Any) -> None:
        if before is None:
            return
        old, new = _bare(_get(before, parsed)), _bare(_get(after, parsed))
        if old is MISSING:
            return
        if new is MISSING:
            # Its parent may be removed, and it with that; otherwise it could come back as anything.
            if isinstance(_get(after, parsed[:-1]), Mapping):
                raise ValueError(f"{path} is {old!r} and may not be removed")
            return
        if old != new and new not in edges.get(old, ()):
            legal = sorted(map(repr, edges.get(old, ())))
            raise ValueError(
                f"{path} may not go from {old!r} to {new!r}; "
                + (f"only to {', '.join(legal)}" if legal else f"{old!r} is final")
            )

    legal_transition.__name__ = f"transitions({path!r})"
    return invariant(path)(legal_transition)


def _values(news: Collection[Any], of: str) -> set[Any]:
    """Returns the values as a set. Raises TypeError if they are not iterable, or a single text,
    which would be taken letter by letter."""
    if is_a(news, str):
        raise TypeError(
            f"{of} must be a list of values, not {shown(news)}; for one, write [{shown(news)}]"
        )
    try:
        return {_bare(new) for new in iterable(news, of)}
    except TypeError as error:
        raise TypeError(
            f"{of} must be a list of values, e.g. ['sent'], not {shown(news)}"
        ) from error


def _bare(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def _get(value: Any, path: Path) -> Any:
    """Returns the value at a path; MISSING if there is none."""
    try:
        for key in path:
            by_key = isinstance(value, Mapping | Sequence) or not isinstance(key, str)
            value = value[key] if by_key else getattr(value, key)
    except (LookupError, AttributeError, TypeError):
        return MISSING
    return value


def _up_to_an_end(path: Path) -> Path:
    """Returns a path up to the first index that is counted from a list's end: which item that is,
    each change of the list may change, and ops count from its beginning."""
    ends = (at for at, key in enumerate(path) if isinstance(key, int) and key < 0)
    return path[: next(ends, len(path))]


class Invariant:
    """One function of the user, and the arguments that it takes."""

    def __init__(self, function: Callable[..., Any]) -> None:
        plain_function(function, "an invariant")
        self.function = function
        self.name = getattr(function, "__name__", repr(function))
        self.paths: tuple[Path, ...] | None = getattr(function, "__perdure_paths__", None)
        self._concerned = [*map(_up_to_an_end, self.paths or ())]
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        parameters = inspect.signature(function).parameters.values()
        wanted = [one for one in parameters if one.kind in kinds and one.default is one.empty]
        if len(wanted) not in (1, 2):
            raise SchemaError(
                f"invariant {self.name} takes {len(wanted)} arguments",
                target=self.name,
                hint="write it as (after) or (before, after)",
            )
        self.with_before = len(wanted) == 2

    def concerns(self, touched: Sequence[Path]) -> bool:
        return self.paths is None or any(
            one[: len(path)] == path[: len(one)] for path in self._concerned for one in touched
        )

    def check_places(self, root: Node) -> None:
        """Raises SchemaError if no state of this type has a place that it is limited to: it would
        never be asked, and forbid nothing."""
        for path in self.paths or ():
            nodes = [root]
            for depth, key in enumerate(path):
                options = [
                    one
                    for node in nodes
                    for one in (node.options if isinstance(node, UnionNode) else [node])
                ]
                # What is inside of a value without parts of its own, the types do not say.
                if any(isinstance(one, LeafNode) and one.kinds != NONE for one in options):
                    break
                nodes = [child for one in options if (child := one.child(key)) is not None]
                if not nodes:
                    raise SchemaError(
                        f"{self.name} is limited to a field that there is not",
                        target=format_path(path[: depth + 1]),
                        hint="name a stored field, e.g. 'status' or 'invoice.status'",
                    )

    def is_at(self, plain: Plain) -> bool:
        """True if a stored state has all the paths that it is limited to."""
        return all(_get(plain, path) is not MISSING for path in self.paths or ())

    def holds(self, state: Any) -> bool:
        """True if it accepts a state by itself."""
        try:
            self.check(None, state)
        except SchemaError:
            return False
        return True

    def check(self, before: Any, after: Any) -> None:
        """Raises SchemaError where the function returns False or raises; UnknownZone where this
        machine cannot decide it."""
        try:
            result = self.function(before, after) if self.with_before else self.function(after)
            refused = result is False or _is_false(result)
        except (UnknownZone, MemoryError):
            raise
        except of_code() as error:
            detail = str(error)
            raise self._broken(f": {detail}" if detail else "") from error
        if refused:
            raise self._broken("")
        if result is not True and has_not_run(result):
            raise self._broken(": its answer is still to be computed; write a plain function")

    def _broken(self, detail: str) -> SchemaError:
        where = ", ".join(format_path(path) for path in self.paths or ((),))
        return SchemaError(
            f"invariant {self.name} does not hold{detail}",
            target=where,
            hint="nothing was written; the change must leave the state legal",
        )


def _is_false(answer: Any) -> bool:
    """True for the False of a library of arrays, which is not Python's. Raises what that raises of
    an answer that is neither true nor false: many at once, say."""
    if answer is None or answer is True or isinstance(answer, Number):
        return False
    return bool(answer == False)  # noqa: E712 - asked of the answer, which knows what it is


def check_made(
    invariants: Sequence[Invariant], stored: Plain, before: Any, after: Any, touched: Sequence[Path]
) -> None:
    """Runs invariants on what a migration, or the types, make of a stored state. One of the whole
    state that the stored state breaks already is left to what is committed next.

    Args:
        stored: the plain state that was.
        before: the same, to be read; None where it is of another major version, whose values say
            nothing here. Invariants get None then, as at creation.
        after, touched: as for `Schema.check_invariants`.

    Raises:
        SchemaError: one does not hold; names it.
    """
    for one in invariants:
        if not one.concerns(touched):
            continue
        try:
            one.check(before if one.is_at(stored) else None, after)
        except SchemaError as error:
            if before is not None and one.paths is None and not one.holds(before):
                continue
            raise SchemaError(
                f"{error.problem}, in what this program makes of the stored state",
                target=error.target,
                hint="nothing was written; correct the migration, or the hook or default of "
                "the class, that gives this value, or the invariant",
            ) from error.__cause__
