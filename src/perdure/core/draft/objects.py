"""Drafts of objects: attributes are fields; methods and properties of the class work on them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Any

from perdure.core.draft.place import Place, Proxy, place_of
from perdure.core.types.late_fields import private_default
from perdure.core.types.objects import ObjectNode
from perdure.core.values.plain_values import same
from perdure.errors import SchemaError

_LIBRARIES = ("pydantic", "msgspec", "builtins", "typing", "abc")

_FORWARDED = (
    "__str__", "__len__", "__iter__", "__contains__", "__getitem__", "__setitem__", "__bool__",
    "__lt__", "__le__", "__gt__", "__ge__", "__call__", "__int__", "__float__", "__add__",
    "__sub__", "__format__", "__reversed__", "__index__",
)  # fmt: skip
"""Python looks these up on the type, so the proxy's type must have those of the user's class."""


class DraftObject(Proxy):
    """Looks like an instance of the user's class."""

    __slots__ = ()

    @property
    def __class__(self) -> Any:
        return _face(place_of(self)).cls

    @__class__.setter
    def __class__(self, value: Any) -> None:
        raise TypeError("the class of a draft cannot change")

    def __getattr__(self, name: str) -> Any:
        place = place_of(self)
        face = _face(place)
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
                "it is not a stored field", target=place.text(name),
                hint=f"declare it in {face.name}, as perdure.Ephemeral if it need not be stored",
            )  # fmt: skip
        if place.is_own(value, name):
            return
        own = place.rearranged(value, name)
        if own is not None:
            own[:] = value
            return
        place.session.put(place, name, place.take_over(name, value))

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

    def __eq__(self, other: object) -> Any:
        mine = place_of(self)
        if isinstance(other, DraftObject):
            theirs = place_of(other)
            return _face(mine).cls is _face(theirs).cls and same(mine.plain, theirs.plain)
        if not isinstance(other, _face(mine).cls):
            return NotImplemented
        return mine.typed() == other

    __hash__ = None  # type: ignore[assignment]  # a draft changes

    def __dir__(self) -> Iterator[str]:
        face = _face(place_of(self))
        return iter({*dir(face.cls), *face.fields, *face.live})


def _face(place: Place) -> Any:
    node = place.node
    assert isinstance(node, ObjectNode)
    return node.face


def _class_attribute(proxy: DraftObject, cls: type, name: str) -> Any:
    """A method, property or class attribute, bound to the proxy where it is the user's own."""
    place = place_of(proxy)
    owner = next((one for one in cls.__mro__ if name in vars(one)), None)
    if owner is None:
        private = getattr(cls, "__private_attributes__", {}).get(name)
        if private is not None:
            return private_default(private)
        raise AttributeError(f"{place.text()} ({cls.__qualname__}) has no attribute {name!r}")
    attribute = vars(owner)[name]
    if isinstance(attribute, functools.cached_property):
        return attribute.func(proxy)
    if owner.__module__.split(".")[0] in _LIBRARIES and callable(attribute):
        return getattr(place.detach(), name)  # the library's own code wants a real instance
    bind = getattr(type(attribute), "__get__", None)
    return attribute if bind is None else bind(attribute, proxy, cls)


def _forward(name: str) -> Any:
    def forwarded(self: DraftObject, *args: Any) -> Any:
        return _class_attribute(self, _face(place_of(self)).cls, name)(*args)

    forwarded.__name__ = name
    return forwarded


@functools.cache
def _proxy_class(cls: type) -> type[DraftObject]:
    body: dict[str, Any] = {"__slots__": ()}
    for name in _FORWARDED:
        owner = next((one for one in cls.__mro__ if name in vars(one)), object)
        if owner.__module__.split(".")[0] not in _LIBRARIES:
            body[name] = _forward(name)
    fields = getattr(cls, "__dataclass_fields__", None)
    if fields is not None:
        body["__dataclass_fields__"] = fields  # dataclasses.fields, asdict, replace
    return type(f"Draft{cls.__name__}", (DraftObject,), body)


def kind_of_object(place: Place) -> type[DraftObject]:
    """What the proxy of an object is: a type of its own for each class."""
    return _proxy_class(_face(place).cls)
