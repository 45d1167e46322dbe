"""The kinds of values beyond plain data that a thread may hold, each with a name in the log.

A kind takes an instance apart into fields and puts it together again, without running the class's
own code: values are restored exactly. Nothing is imported by a name that was read (I10).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cached_property
from inspect import getattr_static, isabstract
from types import MemberDescriptorType
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from perdure.errors import Unstorable
from perdure.integrations.langgraph.values import live_parts
from perdure.integrations.langgraph.values.class_code import (
    MisfitError,
    UnmadeError,
    default_of,
    give,
    is_computed,
)

TAG = "@"
"""The key that says of what kind a stored map is; a user's own dict with that key is wrapped."""

DELTA_SNAPSHOT = "DeltaSnapshot"

RESERVED = frozenset({"dict", "serde"})
EMPTY: tuple[Any, ...] = (None, {}, [], "")
MEMBER = "@member"
ABSENT = "@absent"
"""The key of the names of fields that an instance does not have."""

BESIDE = ("@unset", "@private", "@more", ABSENT, live_parts.ANEW)
"""The keys that kinds store beside the fields of a class."""


class Kind:
    """One class: `fields` of an instance, and `build` from them. Values in fields may be rich."""

    live = live_parts.LiveParts({}, {})

    def __init__(self, tag: str, cls: type) -> None:
        self.tag = tag
        self.cls = cls

    def fields(self, value: Any) -> dict[str, Any]:
        raise NotImplementedError

    def build(self, fields: dict[str, Any]) -> Any:
        """An instance; `fields` is the caller's to give away.

        Raises:
            MisfitError: they are not those of the class.
            UnmadeError: the class's constructor fails now.
        """
        raise NotImplementedError


class PartsKind(Kind):
    """A class with a constructor that takes what a function took out of it."""

    def __init__(
        self, tag: str, cls: type, take: Callable[[Any], dict[str, Any]], build: Callable[..., Any]
    ) -> None:
        super().__init__(tag, cls)
        self._take = take
        self._build = build

    def fields(self, value: Any) -> dict[str, Any]:
        return self._take(value)

    def build(self, fields: dict[str, Any]) -> Any:
        return self._build(**fields)


class ModelKind(Kind):
    """A pydantic model. `terse`: fields that are empty, as they are by default, are left out."""

    def __init__(self, tag: str, cls: type[BaseModel], *, terse: bool = False) -> None:
        super().__init__(tag, cls)
        self.model = cls
        self.live = live_parts.LiveParts(cls.model_fields, cls.__private_attributes__)
        self._terse = terse
        self._names = frozenset(cls.model_fields)
        self._keeps_extra = cls.model_config.get("extra") == "allow"
        self._private = bool(cls.__private_attributes__)
        self._private_made = {
            name: _private_maker(item)
            for name, item in cls.__private_attributes__.items()
            if item.default_factory is not None or item.default is not PydanticUndefined
        }
        self._template: dict[str, Any] = dict.fromkeys(cls.model_fields)
        self._required: set[str] = set()
        self._made: list[tuple[str, Callable[[], Any]]] = []
        self._omit: dict[str, Any] = {}
        for name, field in cls.model_fields.items():
            if field.is_required():
                self._required.add(name)
                continue
            if field.default_factory is None and type(field.default) in _IMMUTABLE:
                self._template[name] = field.default
            else:
                self._made.append((name, _maker(field)))
            if terse and (default := field.get_default(call_default_factory=True)) in EMPTY:
                self._omit[name] = default
        self._fixed = self._template.get("type") if terse else None
        self._shapes: dict[tuple[str, ...], Callable[[dict[str, Any]], Any]] = {}

    def fields(self, value: Any) -> dict[str, Any]:
        own, names = value.__dict__, self._names  # what is cached beside fields is made anew
        if self._terse:
            fixed = self._fixed
            taken = {
                name: item
                for name, item in own.items()
                if name in names
                and (item or not self._may_omit(name, item))
                and not (name == "type" and item == fixed)
            }
            self._add_extra(taken, value)
            if not own.keys() >= self._required:
                taken[ABSENT] = sorted(self._required - own.keys())
            return taken
        taken = {name: item for name, item in own.items() if name in names}
        if len(taken) < len(names):
            taken[ABSENT] = sorted(names - taken.keys())
        self._add_extra(taken, value)
        given = value.__pydantic_fields_set__
        if unset := [name for name in taken if name not in given and name != ABSENT]:
            taken["@unset"] = unset
        if (private := value.__pydantic_private__) is not None:
            taken["@private"] = dict(private)
            if lacking := self._private_made.keys() - private.keys():
                taken[ABSENT] = sorted(lacking.union(taken.get(ABSENT, ())))
        return taken

    def _add_extra(self, taken: dict[str, Any], value: Any) -> None:
        if extra := value.__pydantic_extra__:
            for name in extra.keys() & BESIDE:
                raise Unstorable(
                    f"an extra field named {name!r}",
                    target=own_name(self.cls),
                    hint="rename it: that name is of what is stored beside the fields",
                )
            taken.update(extra)

    def _may_omit(self, name: str, item: Any) -> bool:
        """Returns True if an empty value equals its default."""
        if name not in self._omit:
            return False
        default = self._omit[name]
        return type(item) is type(default) and bool(item == default)

    def quick(self, plain: dict[str, Any]) -> Any:
        """Returns an instance built from a stored map of scalars only; else None.

        Most messages take this path: long threads have thousands, and a caller waits for them.
        """
        build = self._shapes.get(shape := tuple(plain))
        if build is None:
            build = self._builder(plain)
            if build is None:  # not kept: of those that data may have there is no end
                return None
            self._shapes[shape] = build
        return build(plain)

    def _builder(self, plain: dict[str, Any]) -> Callable[[dict[str, Any]], Any] | None:
        """Returns a function that builds an instance from a map with such keys, or None if a value
        is not a scalar; None if that does not suffice."""
        given = plain.keys() - {TAG}
        if not self._terse or not self._required <= given <= self._names or self._private:
            return None
        more = [(name, make) for name, make in self._made if name not in given]
        # What is the same for all is bound once: this is called for each of thousands.
        own_of, names_of, scalars = self._template.copy, given.copy, _IMMUTABLE
        in_order = [name for name in plain if name != TAG]
        new, model, keeps_extra = _new, self.model, self._keeps_extra
        set_dict, set_names, set_extra, set_private = (
            _set_dict,
            _set_names,
            _set_extra,
            _set_private,
        )

        def build(plain: dict[str, Any]) -> Any:
            own = own_of()
            for name in in_order:
                value = own[name] = plain[name]
                if type(value) not in scalars:
                    return None
            for name, make in more:
                own[name] = make()
            one = new(model)
            set_dict(one, own)
            set_extra(one, {} if keeps_extra else None)
            set_names(one, names_of())
            set_private(one, None)
            return one

        return build

    def build(self, fields: dict[str, Any]) -> Any:
        if anew := fields.pop(live_parts.ANEW, ()):
            own = {name: item for name, item in fields.items() if name not in BESIDE}
            private = self._all_private(fields["@private"], (*fields.get(ABSENT, ()), *anew))
            made = self.build({**fields, "@private": {}})
            problem = live_parts.make_anew(made, own, private, anew)
            if problem is not None:
                raise UnmadeError(made, f"its {anew[0]!r}: {problem}") from problem
            return made
        unset, private = fields.pop("@unset", ()), fields.pop("@private", None)
        absent = fields.pop(ABSENT, ())
        extra: dict[str, Any] | None = {} if self._keeps_extra else None
        given = set(fields).difference(unset)  # as pydantic has it: with the extra ones
        if not fields.keys() <= self._names:
            strange = sorted(fields.keys() - self._names)
            if extra is None:
                raise MisfitError(f"the class has no field {strange[0]!r} any more")
            extra.update((name, fields.pop(name)) for name in strange)
        if lacking := self._required.difference(fields, absent):
            raise MisfitError(f"the required field {min(lacking)!r} is not stored")
        own = self._template.copy()
        own.update(fields)
        for name, make in self._made:
            if name not in fields:
                own[name] = default_of(name, make)
        for name in absent:
            own.pop(name, None)
        made = _new(self.model)
        _set_dict(made, own)
        _set_extra(made, extra)
        _set_names(made, given)
        if private is None and self._private:  # data of another class of that name
            try:
                made.model_post_init(None)
            except Exception as error:
                live_parts.set_private(made, {})
                raise UnmadeError(made, f"its private attributes: {error}") from error
        else:
            live_parts.set_private(made, self._all_private(private, absent))
        return made

    def _all_private(self, private: dict[str, Any] | None, absent: Iterable[str]) -> Any:
        """Returns the stored private attributes, with the defaults of those that the class had not
        when they were stored."""
        new = self._private_made.keys() - set(absent) - (private or {}).keys()
        if private is None or not new:
            return private
        return {**private, **{name: default_of(name, self._private_made[name]) for name in new}}


_new: Callable[[type[Any]], Any] = object.__new__
_set_dict, _set_names, _set_extra, _set_private = (slot.__set__ for slot in live_parts.SLOTS)
_IMMUTABLE = frozenset({type(None), bool, int, float, str, bytes})


def _maker(field: Any) -> Callable[[], Any]:
    make = field.default_factory
    if make in (dict, list, set):
        return make  # type: ignore[no-any-return]
    if make is not None and not field.default_factory_takes_validated_data:
        return lambda: make()
    return lambda: field.get_default(call_default_factory=True, validated_data={})


def _private_maker(attribute: Any) -> Callable[[], Any]:
    if getattr(attribute, "default_factory_takes_validated_data", False):
        return lambda: attribute.get_default(call_default_factory=True, validated_data={})
    return attribute.default_factory or attribute.get_default  # type: ignore[no-any-return]


class DataclassKind(Kind):
    """A dataclass. Attributes that are not fields are kept beside them, except the values of
    `functools.cached_property`, which are computed again. Those that are no data, such as a lock,
    the class's constructor makes, as for models."""

    def __init__(self, tag: str, cls: type) -> None:
        super().__init__(tag, cls)
        self.live = live_parts.LiveParts({}, {}, beside="@more")
        self._is_error = issubclass(cls, BaseException)
        self._fields = {field.name: field for field in dataclasses.fields(cls)}
        members = [item for base in cls.__mro__ for item in base.__dict__.items()]
        computed = {name for name, member in members if isinstance(member, property)}
        self._computed = {name for name in computed if is_computed(getattr_static(cls, name))}
        self._slots = [
            name
            for name, member in members
            if isinstance(member, MemberDescriptorType) and name not in self._fields
        ]
        cached = {name for name, member in members if isinstance(member, cached_property)}
        self._passed = cached.union(self._fields)

    def fields(self, value: Any) -> dict[str, Any]:
        taken = {name: getattr(value, name) for name in self._fields if hasattr(value, name)}
        own: dict[str, Any] = getattr(value, "__dict__", {})
        more = {name: item for name, item in own.items() if name not in self._passed}
        more |= {name: getattr(value, name) for name in self._slots if hasattr(value, name)}
        if self._is_error:
            more["args"] = value.args
        if more:
            taken["@more"] = more
        if absent := [name for name in self._fields if name not in taken]:
            taken[ABSENT] = absent
        return taken

    def build(self, fields: dict[str, Any]) -> Any:
        anew, absent = fields.pop(live_parts.ANEW, ()), fields.pop(ABSENT, ())
        made = blank(self.cls)
        problem = self._make_anew(made, fields, anew) if anew else None
        for name, value in fields.pop("@more", {}).items():
            if not hasattr(made, "__dict__") and name not in self._slots:
                raise MisfitError(f"the class has no place for the attribute {name!r} any more")
            if name not in self._computed:
                give(made, name, value)
        for name, value in fields.items():
            if name not in self._fields:
                raise MisfitError(f"the class has no field {name!r} any more")
            if name not in self._computed:
                give(made, name, value)
        for name, field in self._fields.items():
            if name in fields or name in absent or name in self._computed:
                continue
            if field.default is not dataclasses.MISSING:
                give(made, name, field.default)
            elif field.default_factory is not dataclasses.MISSING:
                give(made, name, default_of(name, field.default_factory))
            else:
                raise MisfitError(f"the required field {name!r} is not stored")
        if problem is not None:
            raise UnmadeError(made, f"its {anew[0]!r}: {problem}") from problem
        return made

    def _make_anew(
        self, made: Any, fields: Mapping[str, Any], names: Iterable[str]
    ) -> Exception | None:
        """Gives an instance what its class makes of the attributes with these names, which are no
        data; returns the error of a constructor that fails."""
        fresh = blank(self.cls)
        try:
            fresh.__init__(**{name: fields[name] for name, one in self._fields.items() if one.init})
            for name in names:
                if hasattr(fresh, name):
                    object.__setattr__(made, name, getattr(fresh, name))
        except Exception as error:
            return error
        return None


def blank(cls: Any) -> Any:
    """Returns an instance of a class, without running its own code.

    Raises:
        TypeError: Python makes none: it is abstract, or derives from a class that C made, as dict.
    """
    if issubclass(cls, BaseException):  # of which each kind that is built in has its own
        base = next(base for base in cls.__mro__ if base.__module__ == "builtins")
        return base.__new__(cls)
    return object.__new__(cls)


class EnumKind(Kind):
    """A member of an enum. Marked, so that it is recognised even if its class is missing."""

    def fields(self, value: Any) -> dict[str, Any]:
        return {"name": value.name, "value": value.value, MEMBER: True}

    def build(self, fields: dict[str, Any]) -> Any:
        try:
            return self.cls(fields["value"])
        except RecursionError:
            raise
        except Exception as error:  # of its `_missing_`, too
            members: Mapping[Any, Any] = vars(self.cls)["_member_map_"]
            named = members.get(fields.get("name"))  # its value is equal to none
            if named is not None:
                return named
            raise MisfitError(f"the enum has no member {fields.get('name')!r} any more") from error


class TupleKind(Kind):
    """A named tuple."""

    def __init__(self, tag: str, cls: Any) -> None:
        super().__init__(tag, cls)
        self._names: tuple[str, ...] = cls._fields
        self._defaults: Mapping[str, Any] = cls._field_defaults

    def fields(self, value: Any) -> dict[str, Any]:
        return dict(value._asdict())

    def build(self, fields: dict[str, Any]) -> Any:
        fields = {**self._defaults, **fields}
        if fields.keys() != set(self._names):
            strange = sorted(fields.keys() ^ set(self._names))
            raise MisfitError(f"the class has other fields: {strange[0]!r}")
        return tuple.__new__(self.cls, [fields[name] for name in self._names])


def is_delta_snapshot(plain: Any) -> bool:
    """Returns True if a stored value is the whole of a channel that is stored as deltas."""
    return type(plain) is dict and plain.get(TAG) == DELTA_SNAPSHOT


def kind_of(tag: str, cls: type) -> Kind:
    """Returns the kind of a class that a user registers.

    Raises:
        TypeError: it cannot be taken apart into fields.
    """
    if isinstance(cls, type):
        if issubclass(cls, BaseModel) or dataclasses.is_dataclass(cls):
            try:
                blank(cls)
            except TypeError as error:
                raise TypeError(f"no instance of {cls!r} can be made again: {error}") from error
            return ModelKind(tag, cls) if issubclass(cls, BaseModel) else DataclassKind(tag, cls)
        if issubclass(cls, Enum):
            return EnumKind(tag, cls)
        if issubclass(cls, tuple) and hasattr(cls, "_fields"):
            return TupleKind(tag, cls)
    raise TypeError(
        f"{cls!r} is not a pydantic model, dataclass, enum or named tuple; for others give a "
        "serializer: PerdureSaver(…, serde=JsonPlusSerializer(allowed_msgpack_modules=[…]))"
    )


def may_register(cls: type) -> bool:
    """Returns True if `kind_of` takes the class."""
    try:
        kind_of("", cls)
    except TypeError:
        return False
    return True


def own_name(cls: type) -> str:
    """Under which a class is registered where the user gives no name."""
    return f"{cls.__module__}.{cls.__qualname__}"


class Kinds:
    """The allowlist: which classes may be stored and rebuilt, and under which names."""

    def __init__(self, kinds: Iterable[Kind] = ()) -> None:
        self.by_type: dict[type, Kind] = {}
        self.by_tag: dict[str, Kind] = {}
        self.quick: dict[str, Callable[[dict[str, Any]], Any]] = {}
        for kind in kinds:
            self._add(kind)

    def _add(self, kind: Kind) -> None:
        known = self.by_tag.get(kind.tag)
        if kind.tag in RESERVED or (known is not None and known.cls is not kind.cls):
            other = "" if known is None else f" (it is that of {own_name(known.cls)})"
            raise ValueError(f"the name {kind.tag!r} of {own_name(kind.cls)} is taken{other}")
        self.by_tag[kind.tag] = kind
        if isinstance(kind, ModelKind):
            self.quick[kind.tag] = kind.quick
        self.by_type.setdefault(kind.cls, kind)

    def with_types(self, types: Iterable[type] | Mapping[str, type]) -> Kinds:
        """These and more. A mapping gives names: the first of a class is written, all are read."""
        named = types.items() if isinstance(types, Mapping) else [(own_name(t), t) for t in types]
        made = Kinds(self.by_tag.values())
        made.by_type = dict(self.by_type)
        fresh: set[type] = set()
        for tag, cls in named:
            if isabstract(cls):  # no object is of it, but of classes that derive from it
                continue
            kind = kind_of(tag, cls)
            if cls not in fresh:
                made.by_type.pop(cls, None)
                fresh.add(cls)
            made._add(kind)
        return made
