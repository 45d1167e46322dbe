"""Drafts of dicts, and of TypedDicts."""

from __future__ import annotations

from collections.abc import (
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    MutableMapping,
    ValuesView,
)
from typing import Any, ClassVar

from perdure.core.draft.place import Proxy, detached, place_of, seen_as
from perdure.core.draft.taking import rearranged, take_over
from perdure.core.types.kept_whole import check_member
from perdure.core.types.nodes import DictNode, Walker
from perdure.core.types.objects import ObjectNode
from perdure.core.values.plain_values import stored
from perdure.errors import SchemaError
from perdure.missing import MISSING


class _View:
    """The parts of `keys`, `values` and `items` (`kind`) that a dict's view has and a mapping's has
    not."""

    __slots__ = ()
    kind: ClassVar[str]
    _mapping: Any

    def __reversed__(self) -> Iterator[Any]:
        return reversed(list(self))  # type: ignore[call-overload]

    def __repr__(self) -> str:
        return repr(getattr(place_of(self._mapping).typed(), self.kind)())


class _Keys(_View, KeysView[Any]):
    __slots__ = ()
    kind = "keys"


class _Values(_View, ValuesView[Any]):
    __slots__ = ()
    kind = "values"


class _Items(_View, ItemsView[Any, Any]):
    __slots__ = ()
    kind = "items"


class DraftDict(Proxy, MutableMapping[Any, Any]):
    """A draft that looks like a dict. For a TypedDict it shows the keys that the type declares."""

    __slots__ = ()
    __perdure_kind__ = dict
    __class__ = seen_as(lambda proxy: dict)

    def _key(self, key: Any) -> Any:
        """Returns the plain key for a user's key: the key that is there, if one is equal."""
        place = place_of(self)
        node = place.node
        if type(key) is str and (not isinstance(node, DictNode) or node.texts_stay):
            return key
        path, walker = place.last_path(), Walker(root=place.session.root_name)
        if isinstance(node, DictNode):
            return stored(place.plain, node.stored_key(key, path, walker))
        return stored(place.plain, walker.key(key, path))

    def _new_key(self, key: Any) -> Any:
        """Returns the plain key for a user's key that may be added to the dict."""
        plain, place = self._key(key), place_of(self)
        if type(key) is not str and isinstance(place.node, DictNode) and plain not in place.plain:
            check_member(place.node.key, key, plain, place.last_path(), place.session.root_name)
        return plain

    def _known(self, key: Any) -> Any:
        """Returns the plain key if the dict has it, else MISSING."""
        place = place_of(self)
        place.session.check_open()
        hash(key)
        try:
            key = self._key(key)
        except SchemaError:
            return MISSING
        shown = place.node.child(key) is not None
        return key if shown and key in place.plain else MISSING

    def __getitem__(self, key: Any) -> Any:
        known = self._known(key)
        if known is MISSING:
            raise KeyError(key)
        return place_of(self).read(known)

    def __contains__(self, key: object) -> bool:
        return self._known(key) is not MISSING

    def __iter__(self) -> Iterator[Any]:
        place = place_of(self)
        place.session.check_open()
        node = place.node
        if isinstance(node, ObjectNode):
            return iter([key for key in place.plain if key in node.fields])
        if isinstance(node, DictNode) and not node.key.as_is:
            return (place.build(node.key, key) for key in place.plain)
        keys: Iterator[Any] = iter(place.plain)
        return keys

    def __reversed__(self) -> Iterator[Any]:
        yield from reversed(list(self))

    def __len__(self) -> int:
        place = place_of(self)
        place.session.check_open()
        node = place.node
        if isinstance(node, ObjectNode):
            return sum(key in node.fields for key in place.plain)
        return len(place.plain)

    def __setitem__(self, key: Any, value: Any) -> None:
        place = place_of(self)
        place.session.begin(place)
        key = self._new_key(key)
        if place.is_own(value, key):
            return
        own = rearranged(place, value, key)
        if own is not None:
            own[:] = value
            return
        place.session.put(place, key, take_over(place, key, value))

    def __delitem__(self, key: Any) -> None:
        place = place_of(self)
        place.session.begin(place)
        known = self._known(key)
        if known is MISSING:
            raise KeyError(key)
        node = place.node
        if isinstance(node, ObjectNode) and node.fields[known].required_key:
            raise SchemaError("a required key cannot be deleted", target=place.text(known))
        place.session.drop(place, known)

    def pop(self, key: Any, default: Any = MISSING) -> Any:
        place = place_of(self)
        place.session.begin(place)
        if key not in self:
            if default is MISSING:
                raise KeyError(key)
            return default
        value = detached(self[key], goes=True)
        del self[key]
        return value

    def popitem(self) -> tuple[Any, Any]:
        place = place_of(self)
        place.session.begin(place)
        key = next(
            reversed(list(self))
            if isinstance(place.node, ObjectNode)
            else iter([next(reversed(place.plain))] if place.plain else []),
            MISSING,
        )
        if key is MISSING:
            raise KeyError("popitem(): dictionary is empty")
        if isinstance(place.node, DictNode):
            key = place.node.typed_key(key)
        return key, self.pop(key)

    def clear(self) -> None:
        place_of(self).session.begin(place_of(self))
        for key in reversed(list(self)):
            del self[key]

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, other: Any = (), /, **more: Any) -> None:
        place_of(self).session.begin(place_of(self))
        if isinstance(other, Mapping):
            pairs: Iterable[Any] = [(key, other[key]) for key in other]
        elif hasattr(other, "keys"):
            pairs = [(key, other[key]) for key in other.keys()]  # noqa: SIM118
        else:
            pairs = other
        for key, value in pairs:
            self[key] = value
        for key, value in more.items():
            self[key] = value

    def __ior__(self, other: Any) -> Any:
        self.update(other)
        return self

    def __or__(self, other: Any) -> Any:
        return place_of(self).detach() | detached(other)

    def __ror__(self, other: Any) -> Any:
        return detached(other) | place_of(self).detach()

    def keys(self) -> Any:
        return _Keys(self)

    def values(self) -> Any:
        return _Values(self)

    def items(self) -> Any:
        return _Items(self)

    def copy(self) -> dict[Any, Any]:
        """Returns a detached copy. It is deep, because a part of a state cannot stand elsewhere,
        too."""
        copied: dict[Any, Any] = place_of(self).detach()
        return copied

    def __eq__(self, other: object) -> Any:
        if not isinstance(other, Mapping):
            return NotImplemented
        if len(self) != len(other):
            return False
        return all(key in other and self[key] == other[key] for key in self)

    __hash__ = None  # type: ignore[assignment]
