"""The classes that a state is made of: one face for each family, so that other code treats all
alike.

Families are pydantic models and dataclasses, standard dataclasses, msgspec Structs, TypedDicts.
Pydantic is recognised by what it leaves on its classes, so nothing here imports it.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_origin

import msgspec
from msgspec import Struct

from perdure.core.types.aliases import aliases_of, led_inside
from perdure.core.types.annotations import EphemeralMark, is_judged, of_key, unwrap
from perdure.core.types.hints import all_hints, hints_of, of_itself
from perdure.core.types.late_fields import equal, init_only
from perdure.core.types.private_attributes import private_default
from perdure.core.types.pydantic_hooks import asks_around, looks_around
from perdure.core.types.slots import slots_of
from perdure.core.types.thawed_validators import thawed
from perdure.core.types.type_arguments import TypeArguments
from perdure.errors import SchemaError
from perdure.missing import MISSING
from perdure.system.cached import cached
from perdure.system.late_imports import loading


class Field(Struct):
    """One field of a class.

    Attributes:
        live: True if kept in memory only (Ephemeral, or excluded from serialization).
        default: makes the default; None where the field is required.
        default_is_fixed: True if it is the same each time, so that values can be compared with it.
        late: True if the constructor does not take it (`init=False`): it is set on the instance.
            Where nothing is stored, the class itself computes it.
    """

    name: str
    annotation: Any
    live: bool = False
    default: Callable[[], Any] | None = None
    default_is_fixed: bool = False
    required_key: bool = True
    validated: bool = False
    late: bool = False


def _constant(value: Any) -> Callable[[], Any]:
    # Libraries copy mutable defaults for each instance, and so must we.
    if isinstance(value, list | dict | set):
        return lambda: type(value)(value)
    return lambda: value


class Face:
    """The functions that read, write, clone and check instances of one class."""

    config: Mapping[str, Any] | None = None  # pydantic's, if the class has one of its own
    forbids = False
    tag: tuple[str, Any] | None = None
    keeps_extra = False
    is_dict = False
    leads_inside: Mapping[str, str] = {}  # keys that hold, further inside, a field's value
    opaque_input = False  # a validator may see, and want, keys that the class does not have
    checks_whole = False  # has code that sees several fields: an edit makes an instance to ask it
    has_private = False  # attributes that are not stored, and that it does not say so of
    forgotten: frozenset[str] = frozenset()  # private attributes that live in memory only
    makes_instances = True  # by a constructor that the library wrote, and that refuses nothing
    frozen = False  # a default of that class may stand at several places: it is what it is

    def __init__(self, annotation: Any) -> None:
        self.annotation = annotation
        self.cls: Any = get_origin(annotation) or annotation
        self.renames: dict[str, str] = {}
        self.aliases: dict[str, str] = {}
        self.arguments = TypeArguments(annotation)
        self.fields: dict[str, Field] = {}
        self.live: dict[str, Field] = {}
        self.derived: frozenset[str] = frozenset()
        for one in self.read_fields():
            if one.live and one.default is None:
                raise SchemaError(
                    f"{self.name}.{one.name} is never stored and has no default",
                    target=self.name,
                    hint="give it one: it is what the field has after rehydration",
                )
            (self.live if one.live else self.fields)[one.name] = one
        own = self.fields | self.live  # none is an alias of another field, too
        further = [one for one in self.aliases.items() if one[0] not in own]
        self.aliases = {alias: name for alias, name in further if name in self.fields}
        self.type = dict if self.is_dict else self.cls
        """That of its instances."""

    @cached
    def late(self) -> tuple[str, ...]:
        """The fields that are set on an instance after it was made without them."""
        return tuple(name for name, field in self.fields.items() if field.late)

    @property
    def name(self) -> str:
        return str(getattr(self.cls, "__qualname__", self.cls))

    def read_fields(self) -> list[Field]:
        raise NotImplementedError

    def hints(self) -> dict[str, Any]:
        hints = all_hints(self.cls)
        return {name: self.arguments.of(name, hint) for name, hint in hints.items()}

    @cached
    def looks_inside(self) -> bool:
        """True if the class validates more than the one field that is set."""
        return self.checks_whole or any(field.validated for field in self.fields.values())

    def derives(self, value: Any) -> bool:
        """True if it is of the class, or of one that derives from it."""
        return not self.is_dict and isinstance(value, self.cls)

    def get(self, value: Any, name: str) -> Any:
        """Returns a field's value, or MISSING. Never calls the user's `__getattr__`."""
        try:
            return object.__getattribute__(value, name)
        except AttributeError:
            return MISSING

    def put(self, value: Any, name: str, item: Any) -> None:
        object.__setattr__(value, name, item)
        self.forget_caches(value)

    def drop(self, value: Any, name: str) -> None:
        """Removes an attribute that is not a field of the class."""
        value.__dict__.pop(name, None)

    def extras(self, value: Any) -> dict[str, Any]:
        """Returns what an instance has beside its fields, and keeps when it is stored."""
        return {}

    def strays(self, value: Any) -> dict[str, Any]:
        """Returns what an instance has beside its fields and would lose when it is stored."""
        if self._slots_beside:
            slots = {name: self.get(value, name) for name in self._slots_beside}
            found = {name: item for name, item in slots.items() if item is not MISSING}
            if found:
                return found
        kept = getattr(value, "__dict__", None)
        if not kept or kept.keys() <= self._declared:
            return {}
        return {name: item for name, item in kept.items() if not self.knows(name)}

    @cached
    def _slots_beside(self) -> tuple[str, ...]:
        """Slots of the class that hold no field."""
        return tuple(name for name in slots_of(self.cls) if not self.knows(name))

    def knows(self, name: str) -> bool:
        made_by = "__orig_class__"  # which typing sets on what `Page[int](…)` makes
        return name in self._declared or self._cached(name) or name == made_by

    @cached
    def _declared(self) -> frozenset[str]:
        """The attributes that the class itself declares for an instance."""
        return self.derived.union(self.fields, self.live)

    def private(self, value: Any) -> dict[str, Any]:
        """Returns private attributes that differ from their defaults."""
        return {}

    def _cached(self, name: str) -> bool:
        return isinstance(inspect.getattr_static(self.cls, name, None), functools.cached_property)

    def forget_caches(self, value: Any) -> None:
        """Drops cached properties, which were computed from the old fields."""
        kept = getattr(value, "__dict__", None)
        if kept and not kept.keys() <= self._declared:
            for name in [name for name in kept.keys() - self._declared if self._cached(name)]:
                del kept[name]

    def clone(self, value: Any) -> Any:
        """Returns a shallow copy, made without running the user's code."""
        fresh = object.__new__(self.cls)
        for name in (*self.fields, *self.live, *self.derived):
            item = self.get(value, name)
            if item is not MISSING:
                object.__setattr__(fresh, name, item)
        return fresh


class DataclassFace(Face):
    def read_fields(self) -> list[Field]:
        hints = self.hints()
        found = []
        own = dataclasses.fields(self.cls)
        self.frozen = self.cls.__dataclass_params__.frozen
        self.makes_instances = self.cls.__dataclass_params__.init
        self.config = getattr(self.cls, "__pydantic_config__", None)
        self.checks_whole = hasattr(self.cls, "__post_init__") or _is_made_by_hand(self.cls)
        for name, one in init_only(self.cls).items():
            if one.default is dataclasses.MISSING:
                raise SchemaError(
                    f"{self.name}.{name} is an InitVar without a default: it is never stored, and "
                    "without it no instance can be made again",
                    target=self.name,
                    hint="give it a default, or make it a field",
                )
        made_by_class = set()
        for one in own:
            annotation = hints[one.name]
            default, fixed = self._default(one)
            live = unwrap(annotation).ephemeral
            if live and not one.init and default is None:
                made_by_class.add(one.name)  # it comes back without being stored
                continue
            needed, late = one.init, not one.init
            found.append(Field(one.name, annotation, live, default, fixed, needed, late=late))
        self.derived = frozenset(made_by_class)
        return found

    def _default(self, one: Any) -> tuple[Callable[[], Any] | None, bool]:
        if one.default is not dataclasses.MISSING:
            return _constant(one.default), True
        if one.default_factory is not dataclasses.MISSING:
            return one.default_factory, one.default_factory in _FIXED_FACTORIES
        return None, False


def _is_made_by_hand(cls: type) -> bool:
    """True if code that `dataclass` did not write runs where an instance is made of its parts."""
    methods = (getattr(cls, name) for name in ("__new__", "__init__", "__setattr__"))
    codes = [getattr(one, "__code__", None) for one in methods]
    return any(code is not None and code.co_filename != "<string>" for code in codes)


_FIXED_FACTORIES = (list, dict, set, tuple, frozenset, str, int)


class StructFace(Face):
    def read_fields(self) -> list[Field]:
        config = self.cls.__struct_config__
        if config.array_like:
            raise SchemaError(
                f"{self.name} is an array_like Struct", target=self.name, hint="leave it out"
            )
        self.forbids = config.forbid_unknown_fields
        self.frozen = config.frozen
        if config.tag is not None:
            self.tag = (config.tag_field, config.tag)
        self.checks_whole = hasattr(self.cls, "__post_init__")
        hints = self.hints()
        found = []
        for one in msgspec.structs.fields(self.cls):
            if one.encode_name != one.name:
                self.renames[one.name] = one.encode_name
                self.aliases[one.encode_name] = one.name
            default, fixed = None, False
            if one.default is not msgspec.NODEFAULT:
                default, fixed = _constant(one.default), True
            elif one.default_factory is not msgspec.NODEFAULT:
                default, fixed = one.default_factory, one.default_factory in _FIXED_FACTORIES
            live = unwrap(hints[one.name]).ephemeral
            found.append(Field(one.name, hints[one.name], live, default, fixed))
        return found

    def put(self, value: Any, name: str, item: Any) -> None:
        msgspec.structs.force_setattr(value, name, item)
        self.forget_caches(value)

    def clone(self, value: Any) -> Any:
        return value.__copy__()


class TypedDictFace(Face):
    is_dict = True

    def read_fields(self) -> list[Field]:
        hints = self.hints()
        self.config = getattr(self.cls, "__pydantic_config__", None)
        required = self.cls.__required_keys__
        # `from __future__ import annotations` hides these from the class: the hints show them.
        found = []
        for name, hint in hints.items():
            annotation, said = of_key(hint)
            if unwrap(annotation).ephemeral:
                raise SchemaError(
                    f"{self.name}.{name} is Ephemeral, which a TypedDict cannot have",
                    target=self.name,
                    hint="a TypedDict has no defaults; use a dataclass",
                )
            needed = name in required if said is None else said
            found.append(Field(name, annotation, required_key=needed))
        return found

    def get(self, value: Any, name: str) -> Any:
        return value.get(name, MISSING)

    def put(self, value: Any, name: str, item: Any) -> None:
        value[name] = item

    def drop(self, value: Any, name: str) -> None:
        value.pop(name, None)

    def strays(self, value: Any) -> dict[str, Any]:
        return {name: item for name, item in value.items() if name not in self.fields}

    def clone(self, value: Any) -> Any:
        return dict(value)


class PydanticFace(Face):
    """A BaseModel or a pydantic dataclass."""

    def read_fields(self) -> list[Field]:
        cls = self.cls
        self.is_model = hasattr(cls, "model_fields")
        if not getattr(cls, "__pydantic_complete__", True):
            self._complete()
        config = getattr(cls, "model_config", None) or getattr(cls, "__pydantic_config__", None)
        self.config = config or {}
        self.forbids = self.config.get("extra") == "forbid"
        params = getattr(cls, "__dataclass_params__", None)
        self.frozen = bool(self.config.get("frozen")) or getattr(params, "frozen", False)
        self.keeps_extra = self.is_model and self.config.get("extra") == "allow"
        decorators = cls.__pydantic_decorators__
        roots = decorators.root_validators.values()  # deprecated, and still in use
        models = [*decorators.model_validators.values(), *roots]
        self.opaque_input = any(one.info.mode != "after" for one in models)
        validators = [*decorators.field_validators.values(), *decorators.validators.values()]
        self.checks_whole = bool(models) or looks_around(cls, validators)
        validated = {name for one in validators for name in one.info.fields}
        self._thawed: Any = None
        self._read_private()
        fields = cls.__pydantic_fields__
        self.aliases, self.leads_inside = aliases_of(fields), led_inside(fields)
        return [self._field(name, info, validated) for name, info in fields.items()]

    def _read_private(self) -> None:
        names = getattr(self.cls, "__private_attributes__", None)
        if not names:
            return
        hints = hints_of(self.cls)
        self.forgotten = frozenset(
            name for name in names if name in hints and unwrap(hints[name]).ephemeral
        )
        self.has_private = not self.forgotten.issuperset(names)

    def _complete(self) -> None:
        if self.is_model:
            self.cls.model_rebuild()
        else:
            with loading:
                import pydantic

            pydantic.dataclasses.rebuild_dataclass(self.cls)

    def _field(self, name: str, info: Any, validated: set[str]) -> Field:
        # A validator that looks at other fields cannot run alone: the class is validated as a
        # whole.
        metadata = [mark for mark in info.metadata if not asks_around(mark)]
        annotation = self.arguments.of(name, of_itself(self.cls, info.annotation))
        if info.discriminator is not None:
            with loading:
                import pydantic

            metadata.append(pydantic.Field(discriminator=info.discriminator))
        for mark in metadata:
            annotation = Annotated[annotation, mark]
        live = bool(info.exclude) or any(isinstance(mark, EphemeralMark) for mark in metadata)
        default = None
        if not info.is_required():
            default = functools.partial(self._default, info)
        fixed = info.default_factory is None or info.default_factory in _FIXED_FACTORIES
        if getattr(info, "init", None) is False and not live:
            raise SchemaError(
                f"{self.name}.{name} has init=False, which pydantic does not restore",
                target=self.name,
                hint="let the constructor take it, or mark it perdure.Ephemeral",
            )
        has_own = bool({name, "*"} & validated) or is_judged(annotation)
        return Field(name, annotation, live, default, fixed, validated=has_own)

    @staticmethod
    def _default(info: Any) -> Any:
        try:
            return info.get_default(call_default_factory=True, validated_data={})
        except (TypeError, KeyError):  # a factory that reads the other fields
            return MISSING

    def put(self, value: Any, name: str, item: Any) -> None:
        extra = value.__pydantic_extra__ if self.is_model else None
        if name not in self.fields and name not in self.live and extra is not None:
            extra[name] = item
        elif self.is_model or not hasattr(self.cls, "__slots__"):
            value.__dict__[name] = item
        else:
            object.__setattr__(value, name, item)
        if self.is_model:
            value.__pydantic_fields_set__.add(name)
        self.forget_caches(value)

    def drop(self, value: Any, name: str) -> None:
        if self.is_model and value.__pydantic_extra__:
            value.__pydantic_extra__.pop(name, None)

    def get(self, value: Any, name: str) -> Any:
        if self.is_model and name in value.__dict__:  # as an attribute, a deprecated one warns
            return value.__dict__[name]
        try:
            return object.__getattribute__(value, name)
        except AttributeError:
            if self.keeps_extra and value.__pydantic_extra__:
                return value.__pydantic_extra__.get(name, MISSING)
            return MISSING

    def extras(self, value: Any) -> dict[str, Any]:
        return dict(value.__pydantic_extra__ or {}) if self.keeps_extra else {}

    def private(self, value: Any) -> dict[str, Any]:
        if not self.is_model or value.__pydantic_private__ is None:
            return {}
        found = {}
        for name, item in value.__pydantic_private__.items():
            info = self.cls.__private_attributes__.get(name)
            default = MISSING if info is None else private_default(info)
            if default is not item and not equal(default, item):
                found[name] = item
        return found

    def clone(self, value: Any) -> Any:
        if not self.is_model:
            return super().clone(value)
        fresh = self.cls.__new__(self.cls)
        kept, extra, private = vars(value), value.__pydantic_extra__, value.__pydantic_private__
        object.__setattr__(fresh, "__dict__", dict(kept))
        object.__setattr__(fresh, "__pydantic_extra__", None if extra is None else dict(extra))
        object.__setattr__(fresh, "__pydantic_private__", None if private is None else {**private})
        object.__setattr__(fresh, "__pydantic_fields_set__", set(value.__pydantic_fields_set__))
        self.forget_caches(fresh)
        return fresh

    def check(self, clone: Any, changed: list[str]) -> None:
        """Runs the validators of fields of a clone, which may change it.

        Raises:
            Exception: whatever they raise.
        """
        if self._thawed is None:
            self._thawed = thawed(self.cls, self.config or {})
        for name in changed:
            self._thawed.validate_assignment(clone, name, self.get(clone, name))


def is_pydantic(cls: Any) -> bool:
    """True if pydantic made the class. Pydantic is not imported for this."""
    return isinstance(cls, type) and hasattr(cls, "__pydantic_fields__")
