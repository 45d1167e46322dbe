"""Drafts of objects: attributes are fields; methods and properties of the class work on them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any, NoReturn

from perdure.core.draft.place import Place, Proxy, place_of, seen_as
from perdure.core.draft.taking import rearranged, take_over
from perdure.core.types.objects import ObjectNode
from perdure.core.types.private_attributes import private_default
from perdure.errors import SchemaError

_LIBRARIES = ("pydantic", "msgspec", "builtins", "typing", "abc")

_IN_C = (GetSetDescriptorType, MemberDescriptorType)


class _Looks(type):
    """The type of the types of drafts, for methods that ask `type(self)` for their own class."""

    __perdure_kind__: Any

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls.__perdure_kind__, name)

    def __instancecheck__(cls, instance: Any) -> bool:
        if cls.__perdure_kind__ is None:
            return super().__instancecheck__(instance)
        return isinstance(instance, cls.__perdure_kind__)


class DraftObject(Proxy, metaclass=_Looks):
    """A draft that looks like an instance of the user's class."""

    __slots__ = ()

    __class__ = seen_as(lambda proxy: _face(place_of(proxy)).cls)

    def __getattr__(self, name: str) -> Any:
        place = self._perdure
        face = place.node.face  # type: ignore[attr-defined]
        if name in face.fields or (face.keeps_extra and name in place.plain):
            if name in place.plain:
                return place.read(name)
            return place.session.missing(place, name)
        if name in face.live:
            return place.session.live(place, name)
        place.session.check_open()
        return _class_attribute(self, face.cls, name)

    def __setattr__(self, name: str, value: Any) -> None:
        place = place_of(self)
        face = _face(place)
        if name in face.live:
            place.session.put_live(place, name, value)
            return
        is_field = name in face.fields
        if not is_field:
            attribute = inspect.getattr_static(face.cls, name, None)
            if isinstance(attribute, property):
                attribute.__set__(self, value)
                return
        place.session.begin(place)
        if not is_field and (name.startswith("_") or name in face.derived):
            raise SchemaError(
                "it is not a stored field",
                target=place.text(name),
                hint=f"declare it in {face.name}, as perdure.Ephemeral if it need not be stored",
            )
        if place.is_own(value, name):
            return
        own = rearranged(place, value, name)
        if own is not None:
            own[:] = value
            return
        place.session.put(place, name, take_over(place, name, value))

    def __delattr__(self, name: str) -> None:
        place = place_of(self)
        face = _face(place)
        place.session.begin(place)
        if name not in place.plain:
            raise AttributeError(name)
        field = face.fields.get(name)
        if field is not None and field.default is None and not field.late:
            raise SchemaError("a required field cannot be deleted", target=place.text(name))
        place.session.drop(place, name)

    def __dir__(self) -> Iterator[str]:
        face = _face(place_of(self))
        return iter({*dir(face.cls), *face.fields, *face.live})


def _face(place: Place) -> Any:
    node = place.node
    assert isinstance(node, ObjectNode)
    return node.face


def _class_attribute(proxy: DraftObject, cls: type, name: str) -> Any:
    """Returns a method, property or class attribute, bound to the proxy where it is the user's
    own."""
    place = place_of(proxy)
    owner = _owner(cls, name)
    if owner is None:
        private = getattr(cls, "__private_attributes__", {}).get(name)
        if private is not None:
            return private_default(private)
        last_resort = _owner(cls, "__getattr__")
        if last_resort is not None and not _of_library(last_resort):
            return vars(last_resort)["__getattr__"](proxy, name)
        raise AttributeError(f"{place.text()} ({cls.__qualname__}) has no attribute {name!r}")
    attribute = vars(owner)[name]
    if isinstance(attribute, functools.cached_property):
        return attribute.func(proxy)
    bind = getattr(type(attribute), "__get__", None)
    if isinstance(attribute, _IN_C) or (
        _of_library(owner) and (callable(attribute) or hasattr(type(attribute), "__set__"))
    ):
        found = getattr(place.detach(), name)  # the library's own code wants a real instance
        return _Shown(found) if type(found) is dict else found
    return attribute if bind is None else bind(attribute, proxy, cls)


class _Shown(dict[str, Any]):
    """The `__dict__` that a draft shows: a copy. A write into it would be lost, so it is
    refused."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("this is a copy of what is in a draft: set the attributes of the draft")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = _refuse
    setdefault = update = _refuse

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


def _owner(cls: type, name: str) -> Any:
    return next((one for one in cls.__mro__ if name in vars(one)), None)


def _of_library(owner: type) -> bool:
    return owner.__module__.split(".")[0] in _LIBRARIES


def _forward(name: str, from_library: bool) -> Any:
    def forwarded(self: DraftObject, *args: Any, **kwargs: Any) -> Any:
        place = place_of(self)
        place.session.check_open()
        if from_library:
            copy = Place.typed if name in _COMPARING else Place.detach
            theirs = (copy(place_of(one)) if isinstance(one, Proxy) else one for one in args)
            return getattr(copy(place), name)(*theirs, **kwargs)
        return _class_attribute(self, _face(place).cls, name)(*args, **kwargs)

    forwarded.__name__ = name
    return forwarded


_COMPARING = frozenset(f"__{one}__" for one in ("eq", "ne", "lt", "le", "gt", "ge", "hash", "str"))
"""They give out no part of the instance that they are asked of."""

_OWN = frozenset(
    (
        *vars(Proxy),
        *vars(DraftObject),
        *(
            f"__{one}__"
            for one in (
                "init",
                "del",
                "getattribute",
                "getstate",
                "setstate",
                "reduce",
                "annotate",
                "annotate_func",
            )
        ),
    )
)
"""The draft's own attributes, whatever the user's class defines."""


@functools.cache
def kind_of_object(cls: type) -> type[DraftObject]:
    """Returns the class for proxies of a class's objects. Python looks special methods up on the
    type, so it has those of the class."""
    body: dict[str, Any] = {
        "__slots__": (),
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "__perdure_kind__": cls,
    }
    for owner in cls.__mro__[:-1]:
        for name, attribute in vars(owner).copy().items():  # another thread may set one
            special = name.startswith("__") and name.endswith("__") and name not in _OWN
            if not special or name in body:
                continue
            if attribute is None:  # as `__hash__ = None`: there is no such method
                body[name] = None
            elif callable(attribute):
                body[name] = _forward(name, _of_library(owner))
    made: Any = _Looks(cls.__name__, (DraftObject,), body)
    return made  # type: ignore[no-any-return]
