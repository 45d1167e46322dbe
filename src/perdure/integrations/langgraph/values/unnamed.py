"""Values of classes that nobody registered: kept under their class's name, read as data without it.

A pydantic model, dataclass, enum or named tuple is kept by its fields. Read again, it is of its
class where the program has that class loaded under its name; else it is its data. Nothing is
imported by a name that was read (I10), and no constructor or validator runs.
"""

from __future__ import annotations

import sys
from enum import Enum
from typing import Any

from perdure.core.values.base_values import StandIn
from perdure.integrations.langgraph.values.kinds import (
    BESIDE,
    MEMBER,
    Kind,
    kind_of,
    may_register,
    own_name,
)
from perdure.system import logs

MET_MAX = 4096
"""Classes that are in memory without being registered; a program may make them as it goes."""

_SCALARS = frozenset({type(None), bool, int, float, str, bytes})

_log = logs.logger("perdure.langgraph")
_said: set[str] = set()


class Data(dict[str, Any]):
    """The fields of an object whose class is missing. Stored again, it is what it was before; and
    it may be in a set, or a key, as that object was.

    Attributes:
        tag: the name of its class.
        beside: the values stored beside its fields.
    """

    __slots__ = ("beside", "tag")
    tag: str
    beside: dict[str, Any]

    def _parts(self) -> tuple[Any, Any]:
        return getattr(self, "tag", None), getattr(self, "beside", None)

    def __eq__(self, other: object) -> bool:
        if type(other) is Data and self._parts() != other._parts():
            return False
        return dict.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:  # type: ignore[override]
        scalars = frozenset(item for item in self.items() if type(item[1]) in _SCALARS)
        return hash((self._parts()[0], scalars))


class Member(StandIn):
    """The value of an enum's member that this program does not have. Stored again in a thread, it
    is that member; elsewhere, its value.

    Attributes:
        tag: the name of the enum.
        stored: its name and value, as they are stored.
    """

    tag: str
    stored: dict[str, Any]


class TextMember(str, Member): ...


class NumberMember(int, Member): ...


class FloatMember(float, Member): ...


class BytesMember(bytes, Member): ...


class TupleMember(tuple[Any, ...], Member): ...


_MEMBERS: dict[type, Any] = {
    str: TextMember,
    int: NumberMember,
    float: FloatMember,
    bytes: BytesMember,
    tuple: TupleMember,
}


def data_of(tag: str, fields: dict[str, Any]) -> Any:
    """Returns the data of an object without its class: its fields; for an enum's member, its value
    where that can be told from another of its kind."""
    if MEMBER in fields and (cls := _MEMBERS.get(type(fields.get("value")))) is not None:
        member: Member = cls(fields["value"])
        member.tag, member.stored = tag, fields
        return member
    beside = {name: fields[name] for name in (*BESIDE, MEMBER) if name in fields}
    made = Data({name: item for name, item in fields.items() if name not in beside})
    made.tag, made.beside = tag, beside
    return made


class Met:
    """The classes that this process met, by themselves and by name. Safe to share."""

    def __init__(self) -> None:
        self._kinds: dict[type, Kind] = {}
        self._named: dict[str, Kind] = {}

    def kind_of(self, cls: type) -> Kind | None:
        """Returns the kind of a class whose instance is stored; None if it is of no known kind.
        Warns, once, if another process could not find the class by its name."""
        known = self._kinds.get(cls)
        if known is None:
            known = _make(cls)
            if known is None:
                return None
            self._keep(known)
            if _loaded(known.tag) is not cls:
                _say(known.tag, _LOST, known.tag, known.tag, cls.__name__)
        self._named[known.tag] = known  # of two of one name, the one that was met last
        return known

    def kind_named(self, tag: str) -> Kind | None:
        """The kind of the class that the program has under a name; None: it has none."""
        known = self._named.get(tag)
        cls = _loaded(tag)
        if cls is None or (known is not None and known.cls is cls):
            return known
        made = self._kinds.get(cls) or _make(cls)
        if made is None:
            return known
        self._keep(made)
        return made

    def forget(self) -> None:
        """Forgets all classes, as in a process that met none."""
        self._kinds.clear()
        self._named.clear()

    def _keep(self, kind: Kind) -> None:
        if len(self._kinds) >= MET_MAX:
            for cls in list(self._kinds)[: MET_MAX // 4]:  # the oldest: others may be in use
                old = self._kinds.pop(cls, None)
                if old is not None and self._named.get(old.tag) is old:
                    self._named.pop(old.tag, None)
        self._kinds[kind.cls] = kind
        self._named[kind.tag] = kind


MET = Met()

_LOST = (
    "%s is stored by its fields, but no class can be found under that name, e.g. because it is "
    "defined inside a function: after a restart its values come back as dicts. Define it in a "
    "module, or register it: PerdureSaver(…, types={%r: %s})"
)
_ABSENT = (
    "%s comes back as its data, e.g. as a dict: no class of that name is loaded, and none is "
    "imported by a name that is stored. Import its module before; or register it: "
    "PerdureSaver(…, types=[%s]); where it was renamed or moved: "
    "PerdureSaver(…, types={%r: NewName})"
)
_MISFIT = (
    "%s comes back as its data, e.g. as a dict: the stored data does not fit the class any more "
    "(%s). Give new fields a default, or register a class that fits: "
    "PerdureSaver(…, types={%r: NewName})"
)
_UNMADE = (
    "%s comes back without the parts that are no data, as its constructor fails now (%s): they are "
    "missing until it is read again"
)
_ANSWERED = (
    "%s has no member %s any more, or not yet: the class answers %s for it, which is all that is "
    "stored when it is handed on. Give it the member; or let a value that it does not know raise: "
    "then the value comes back, and is that member when it is stored again"
)


def say_answered(tag: str, fields: dict[str, Any], made: Any) -> None:
    """Warns, once, that an enum's class gives another member than was stored, by `_missing_` or as
    a Flag that drops bits."""
    if MEMBER in fields and isinstance(made, Enum) and made.name != fields.get("name"):
        if type(made.value) is type(fields.get("value")) and made.value == fields["value"]:
            return  # it has another name now
        _say(tag, _ANSWERED, tag, fields.get("name"), made.name)


def say_absent(tag: str) -> None:
    """Warn, once, that the class of a stored object is not there."""
    _say(tag, _ABSENT, tag, tag.rpartition(".")[2], tag)


def say_misfit(tag: str, problem: Exception) -> None:
    """Warns, once, that a class that is not registered does not fit the data stored under its
    name."""
    _say(tag, _MISFIT, tag, problem, tag)


def say_unmade(tag: str, problem: Exception) -> None:
    """Warns, once, that a class does not make the parts of an object that are no data."""
    _say(tag, _UNMADE, tag, problem)


def _say(tag: str, words: str, *parts: object) -> None:
    """A warning for each class and reason, not for each object."""
    mark = words[:30] + tag
    if mark not in _said and len(_said) < MET_MAX:
        _said.add(mark)
        _log.warning(words, *parts)


def _make(cls: type) -> Kind | None:
    return kind_of(own_name(cls), cls) if may_register(cls) else None


def _loaded(tag: str) -> type | None:
    """Returns the class that the program has loaded under this exact name. Looks only at what
    modules have, not at what they would import on request."""
    module, _, rest = tag.rpartition(".")
    names = [rest]
    while module and module not in sys.modules:
        module, _, part = module.rpartition(".")
        names.append(part)
    found: Any = sys.modules.get(module)
    for name in reversed(names):
        try:
            found = vars(found).get(name)
        except TypeError:
            return None
    return found if isinstance(found, type) and own_name(found) == tag else None
