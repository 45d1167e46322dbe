"""Plain values: what a state is made of once its types are taken off, and paths into them.

A plain value is one of the scalars below, or a list, dict, tuple, set or frozenset of plain values.
Each comes back from storage equal and of the same type; anything else is refused by path (I12).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from decimal import (
    ROUND_HALF_EVEN,
    Context,
    Decimal,
    DivisionByZero,
    InvalidOperation,
    Overflow,
)
from typing import Any
from uuid import UUID

from msgspec import Struct, field

from perdure.core.values import zones
from perdure.core.values.base_values import StandIn
from perdure.core.values.held_values import hint_of
from perdure.delta import Path as Path
from perdure.delta import Plain as Plain
from perdure.errors import SharedValue, Unstorable
from perdure.missing import MISSING

SCALARS = frozenset(
    {
        type(None),
        bool,
        int,
        float,
        str,
        bytes,
        dt.datetime,
        dt.date,
        dt.time,
        dt.timedelta,
        Decimal,
        UUID,
    }
)

STEADY = SCALARS - {dt.datetime, dt.time}
"""Scalars that are plain whatever they hold; of the others it is asked whether their zone is."""

DEPTH_MAX = 100
"""Containers within containers. Deeper values would exhaust the stack of readers."""


def format_path(path: Path, root: str = "state") -> str:
    """Returns ``state.messages[3].when`` for ``("messages", 3, "when")``."""
    text = root
    for key in path:
        text += f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{_shown(key)}]"
    return text


def _shown(key: Any) -> str:
    try:
        return repr(key)
    except Exception:  # nested too deep, or the caller's own: what is refused is refused
        return f"a {type(key).__qualname__}"


def take(
    value: Any, at: Path = (), *, seen: dict[int, Path] | None = None, root: str = "state"
) -> Plain:
    """Copies an untyped value into a fresh plain tree.

    Args:
        value: anything; only plain kinds of exactly these types pass.
        at: where it will stand, for the message.
        seen: the containers met so far by identity. When given, one that is met a second time is
            refused as an alias; when None, only a cycle is.
        root: what the path starts with in messages.

    Raises:
        Unstorable: a value of another kind, with its path.
        SharedValue: a container that stands at two places, or inside itself.
    """
    return CopyWalk(seen, root).take(value, at)


DECIMALS = Context(
    prec=28,
    rounding=ROUND_HALF_EVEN,
    Emin=-999999,
    Emax=999999,
    capitals=1,
    clamp=0,
    flags=[],
    traps=[InvalidOperation, DivisionByZero, Overflow],
)
"""The log computes and writes decimals by it (I6): Python's own defaults, whatever a program makes
of `decimal.DefaultContext`, from which all that is not said here would be taken."""


class CopyWalk(Struct):
    """One copying walk: refuses aliases (with `seen`) and cycles, and measures the depth."""

    seen: dict[int, Path] | None = None
    root: str = "state"
    open: dict[int, Path] = field(default_factory=dict)

    def take(self, value: Any, at: Path) -> Plain:
        kind = type(value)
        if kind in SCALARS:
            if kind is dt.datetime or kind is dt.time:
                check_zone(value, at, self.root)
            return value
        if kind is list:
            self.enter(value, at)
            taken: Any = [self.take(item, (*at, index)) for index, item in enumerate(value)]
        elif kind is dict:
            self.enter(value, at)
            try:
                taken = {
                    self.key(key, at): self.take(item, (*at, key)) for key, item in value.items()
                }
            except RuntimeError as error:
                raise changed(error, at, self.root) from error
        elif kind is tuple:
            self.check_depth(at)
            return tuple(self.take(item, (*at, index)) for index, item in enumerate(value))
        elif kind is set or kind is frozenset:
            self.check_depth(at)
            try:
                return kind(self.member(item, at) for item in value)
            except RuntimeError as error:
                raise changed(error, at, self.root) from error
        else:
            return self.other(value, at)
        self.leave(value)
        return taken

    def other(self, value: Any, at: Path) -> Plain:
        """Handles a value of no plain kind: refuses it, if it does not stand for one. Typed schemas
        know more kinds."""
        if issubclass(type(value), StandIn):  # `isinstance` would ask a proxy
            return self.take(value.plain(), at)
        raise Unstorable(
            f"a {type(value).__module__}.{type(value).__qualname__} cannot be stored",
            target=format_path(at, self.root),
            hint=hint_of(value)
            or "store plain data (str, int, float, bool, None, bytes, list, dict, tuple, set, "
            "datetime, Decimal, UUID), declare a schema with a type for it, "
            "or mark the field perdure.Ephemeral",
        )

    def enter(self, container: Any, at: Path, *, frozen: bool = False) -> None:
        """Begins a container; refuses one that is open, or that was seen, if `seen` is given and it
        can change."""
        mark = id(container)
        if mark in self.open:
            raise SharedValue(
                f"a cycle: it is inside itself, at {format_path(self.open[mark], self.root)}",
                target=format_path(at, self.root),
                hint="a state is a tree; store an id instead of the object itself",
            )
        if self.seen is not None and not frozen:
            if mark in self.seen:
                raise SharedValue(
                    f"the same object also stands at {format_path(self.seen[mark], self.root)}",
                    target=format_path(at, self.root),
                    hint="a state is a tree; store a copy (copy.deepcopy) or an id",
                )
            self.seen[mark] = at
        if len(at) > DEPTH_MAX:
            self.check_depth(at)
        self.open[mark] = at

    def check_depth(self, at: Path) -> None:
        if len(at) > DEPTH_MAX:
            raise Unstorable(
                f"nested more than {DEPTH_MAX} levels deep",
                target=format_path(at[:8], self.root) + "…",
                hint="flatten it, or store it as text",
            )

    def leave(self, container: Any) -> None:
        del self.open[id(container)]

    def key(self, key: Any, at: Path, given: Any = MISSING) -> Any:
        """Returns a dict key, checked like a `member`."""
        if type(key) is str:
            return key
        if type(key) is bool or key is None:
            raise Unstorable(
                f"a dict key of type {type(key).__name__}",
                target=format_path((*at, key), self.root),
                hint="use str or int keys; True and 1 would be the same key",
            )
        return self.member(key, at, given)

    def member(self, item: Any, at: Path, given: Any = MISSING) -> Any:
        """Returns a set member or a dict key: a scalar, or a tuple or frozenset of them.

        Args:
            given: the typed value of which `item` is the plain form. It may be hashable where that
                is not.
        """
        if issubclass(type(item), StandIn):
            item = item.plain()
        if type(item) not in SCALARS and _changeable(item):
            raise Unstorable(
                "a set member or dict key is, or holds, an object with fields, or a list, dict or "
                "set",
                target=format_path((*at, item if given is MISSING else given), self.root),
                hint="only scalars, and tuples and frozensets of them, can stand there: use a "
                "NamedTuple, or an id of the object",
            )
        if type(item) not in SCALARS and type(item) not in (tuple, frozenset):
            return self.other(item, (*at, item))
        if not _equals_itself(item):
            raise Unstorable(
                "a set member or dict key that is not equal to itself: NaN",
                target=format_path(at, self.root),
                hint="once stored it could never be found again; use None or a text",
            )
        return self.take(item, (*at, item))


def _changeable(item: Any) -> bool:
    """True if the plain form of a value holds a container that is not hashable."""
    if type(item) in (tuple, frozenset):
        return any(map(_changeable, item))
    return type(item) in (dict, list, set)


def _equals_itself(item: Any) -> bool:
    if type(item) in (tuple, frozenset):
        return all(map(_equals_itself, item))
    return bool(item == item)


def changed(error: RuntimeError, at: Path, root: str) -> Exception:
    """Returns the error for a dict or set that grew or shrank while it was read."""
    if type(error) is not RuntimeError:
        return error  # e.g. no stack is left
    return Unstorable(
        "it changed while it was read, by another thread or by an object in it",
        target=format_path(at, root),
        hint="nothing was taken; hand over a copy of it",
    )


def check_zone(value: dt.datetime | dt.time, at: Path, root: str) -> None:
    """Refuses a tzinfo that could not be rebuilt: only fixed offsets and ZoneInfo keys can."""
    zone = value.tzinfo
    if zone is None or type(zone) is dt.timezone:
        return
    if zones.can_be_named(zone):
        return
    hint = "use datetime.timezone or zoneinfo.ZoneInfo, e.g. value.astimezone(datetime.UTC)"
    if (key := zones.key_of(zone)) is not None:
        hint = f"name the zone of the tz database: value.astimezone(zoneinfo.ZoneInfo({key!r}))"
    elif type(zone).__name__ == "ZoneInfo":
        hint = "name a zone of the tz database, e.g. zoneinfo.ZoneInfo('Europe/Berlin')"
    raise Unstorable(
        f"a time zone of type {type(zone).__qualname__}", target=format_path(at, root), hint=hint
    )


def same(a: Plain, b: Plain) -> bool:
    """True if two plain values are equal *and* of the same types: 1, 1.0 and True all differ."""
    if a is b:
        return True
    kind = type(a)
    if kind is not type(b):
        return False
    if kind is dict:
        return _same_dicts(a, b)
    if kind is list or kind is tuple:
        return len(a) == len(b) and all(map(same, a, b))
    if kind is float:
        return (a == b and str(a) == str(b)) or (a != a and b != b)
    if kind is Decimal:
        return str(a) == str(b)
    if kind is dt.datetime or kind is dt.time:
        return repr(a) == repr(b)  # `==` needs the zones' rules, and takes a fold to be no equal
    if kind is set or kind is frozenset:
        return len(a) == len(b) and marks(a) == marks(b)
    return bool(a == b)


def _same_dicts(a: dict[Any, Any], b: dict[Any, Any]) -> bool:
    if len(a) != len(b):
        return False
    texts = True
    for key, item in a.items():
        if key not in b or not same(item, b[key]):
            return False
        texts = texts and type(key) is str
    return texts or marks(a) == marks(b)


def stored(container: dict[Any, Any] | set[Any], key: Any) -> Any:
    """Returns the key or member of a container that equals this one. It may be another object: 1
    equals Decimal("1.0"), and a moment equals the same one in another zone. Returns the given key
    if there is none."""
    if type(key) is str:
        return key
    probe = _Probe(key)
    return probe.met if probe in container else key


class _Probe:
    """A key that equals whatever a value equals, and remembers what that was."""

    __slots__ = ("_value", "met")

    def __init__(self, value: Any) -> None:
        self._value = value

    def __hash__(self) -> int:
        return hash(self._value)

    def __eq__(self, other: object) -> bool:
        self.met = other
        return bool(self._value == other)


def shared_keys(a: dict[Any, Any], b: dict[Any, Any]) -> set[Any]:
    """Returns the keys that both have, where 1 and 1.0 are two keys."""
    if all(type(key) is str for key in a) or all(type(key) is str for key in b):
        return a.keys() & b.keys()
    known = marks(a)
    return {key for key in b if mark(key) in known}


def marks(keys: Iterable[Any]) -> set[Any]:
    """Returns marks of dict keys or set members that distinguish 1, 1.0, True and (1.0,), which
    `==` does not."""
    return set(map(mark, keys))


def mark(key: Any) -> Any:
    kind = type(key)
    if kind is tuple:
        return kind, tuple(map(mark, key))
    if kind is frozenset:
        return kind, frozenset(map(mark, key))
    if kind in _BY_REPR:
        return kind, repr(key)
    return kind, key


_BY_REPR = frozenset({float, Decimal, dt.datetime, dt.time})
"""Kinds with values that are equal and not the same: 0.0 and -0.0, two spellings of a moment."""


def copy(value: Plain) -> Plain:
    """Returns a deep copy of a plain value; scalars, tuples and frozensets are shared."""
    kind = type(value)
    if kind is list:
        return [copy(item) for item in value]
    if kind is dict:
        return {key: copy(item) for key, item in value.items()}
    if kind is set:
        return set(value)
    return value


def refuse_too_deep(value: Plain, at: Path, root: str) -> None:
    """Raises Unstorable if a plain value, at its place, is nested too deep."""
    _check_depths(CopyWalk(None, root), value, at)


def _check_depths(walk: CopyWalk, value: Plain, at: Path) -> None:
    if type(value) not in (dict, list, tuple, set, frozenset):
        return
    walk.check_depth(at)
    items = value.items() if type(value) is dict else enumerate(value)
    for key, item in items:
        _check_depths(walk, item, (*at, key))


def look_up(root: Plain, path: Iterable[Any]) -> Plain:
    """Returns the value at a path.

    Raises:
        LookupError, TypeError: there is none.
    """
    for key in path:
        root = root[key]
    return root
