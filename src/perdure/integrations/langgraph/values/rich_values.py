"""Rich values as plain ones and back: a message becomes a map of its fields, with its kind's name.

``HumanMessage(content="Hi", id="1")`` is stored as ``{"@": "HumanMessage", "content": "Hi", "id":
"1"}``. A value that is not data is refused with its path, before anything is written.
"""

from __future__ import annotations

import datetime as dt
import re
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any
from uuid import UUID

from langgraph.checkpoint.serde.base import SerializerProtocol

from perdure.core.values.plain_values import (
    DEPTH_MAX,
    SCALARS,
    Path,
    Plain,
    check_zone,
    format_path,
)
from perdure.errors import SchemaError, Unstorable
from perdure.integrations.langgraph.values.arrays import ARRAY, ARRAYS, is_array
from perdure.integrations.langgraph.values.class_code import MisfitError, UnmadeError
from perdure.integrations.langgraph.values.foreign_serializers import loads
from perdure.integrations.langgraph.values.kinds import (
    TAG,
    Kind,
    Kinds,
    may_register,
    own_name,
)
from perdure.integrations.langgraph.values.live_parts import NoDataError
from perdure.integrations.langgraph.values.plain_subclasses import NOT_PLAIN, plain_key, plain_of
from perdure.integrations.langgraph.values.thread_names import plain_name
from perdure.integrations.langgraph.values.unnamed import (
    MET,
    Data,
    Member,
    data_of,
    say_absent,
    say_answered,
    say_misfit,
    say_unmade,
)
from perdure.system import stack_room

_AS_IS = frozenset({type(None), bool, int, float, str, bytes})
_TEXT = frozenset({str})
_MISFITS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, OSError, re.error)
_KEYS = (str, int, float, bytes, dt.datetime, dt.date, dt.time, dt.timedelta, Decimal, UUID)
"""Dict keys that are stored as they are; others make the dict a list of pairs."""


class Coder:
    """Encodes and decodes with one allowlist. Safe to share between threads.

    Args:
        exotic: LangGraph's serializer for values of unknown kinds; None: they are refused.
        strict: refuse classes that are not registered, also where their fields could be kept.
    """

    def __init__(
        self, kinds: Kinds, exotic: SerializerProtocol | None = None, *, strict: bool = True
    ) -> None:
        self.kinds = kinds
        self.exotic = exotic
        self.strict = strict

    def allowing(
        self, names: Collection[tuple[str, ...]], exotic: SerializerProtocol | None
    ) -> Coder:
        """The same with more types: those of these (module, name) that are loaded and can be.
        This one, where it knows all of them."""
        found = []
        for module, name, *_ in names:
            cls = vars(sys.modules.get(module, object)).get(name)
            if isinstance(cls, type) and cls not in self.kinds.by_type and may_register(cls):
                found.append(cls)
        if not found and exotic is self.exotic:
            return self
        return Coder(self.kinds.with_types(found), exotic, strict=self.strict)

    def encode(self, value: Any, at: Path = (), root: str = "state") -> Plain:
        """A plain copy of a value.

        Raises:
            Unstorable: with its path, e.g. ``state.messages[3].when``.
        """
        kind = type(value)
        if kind in _AS_IS:
            return value
        if len(at) > DEPTH_MAX:
            raise Unstorable(
                f"nested more than {DEPTH_MAX} levels deep, or inside itself",
                target=format_path(at[:8], root) + "…",
                hint="flatten it, or store an id",
            )
        if kind is list:  # of what is stored as it is, here and below, without a call for each
            return [
                item if type(item) in _AS_IS else self.encode(item, (*at, index), root)
                for index, item in enumerate(value)
            ]
        if kind is dict:
            return self._encode_dict(value, at, root)
        known = self.kinds.by_type.get(kind)
        if kind is set or kind is frozenset:
            if all(type(item) in SCALARS and item == item for item in value):
                for item in value:
                    _check_zone(item, (*at, item), root)
                return kind(value)
        elif kind is tuple:
            return tuple(self.encode(item, (*at, index), root) for index, item in enumerate(value))
        elif kind in SCALARS:
            _check_zone(value, at, root)
            return value
        if known is None:
            return self._encode_stranger(value, at, root)
        return self._encode_known(known, value, at, root)

    def _encode_known(self, known: Kind, value: Any, at: Path, root: str) -> Plain:
        taken = known.fields(value)
        try:
            fields = {
                name: item if type(item) in _AS_IS else self.encode(item, (*at, name), root)
                for name, item in taken.items()
            }
        except NoDataError as refusal:
            fields = known.live.encode_others(
                taken,
                refusal,
                lambda item, name: self.encode(item, (*at, name), root),
                lambda plain: known.build(self._decode_items(plain, None)),
            )
        if TAG in fields:
            raise Unstorable(
                f"a field named {TAG!r}",
                target=format_path((*at, TAG), root),
                hint="rename it: that name tells the kind of a stored value",
            )
        return {TAG: known.tag, **fields}

    def encode_items(self, value: Mapping[Any, Any], at: Path, root: str = "state") -> Plain:
        """A map of plain copies by name, where any name may stand: what `decode_items` reads.

        Raises:
            Unstorable: as `encode`.
        """
        for key in value:
            if type(key) is not str:
                if isinstance(key, str):  # a name, be it that of an enum's member
                    named = {plain_name(name): item for name, item in value.items()}
                    return self.encode_items(named, at, root)
                _check_zone(key, (*at, key), root)
        return {
            key: item if type(item) in _AS_IS else self.encode(item, (*at, key), root)
            for key, item in value.items()
        }

    def _encode_dict(self, value: dict[Any, Any], at: Path, root: str) -> Plain:
        try:
            usual = _TEXT.issuperset(map(type, value))
            if TAG not in value and (
                usual or all(type(key) in _KEYS and key == key for key in value)
            ):
                return self.encode_items(value, at, root)
            keys = value if usual else {_key(key): item for key, item in value.items()}
            if not usual and _TEXT.issuperset(map(type, keys)):
                return self._encode_dict(keys, at, root)
            pairs = [
                [self.encode(key, (*at, key), root), self.encode(item, (*at, key), root)]
                for key, item in keys.items()
            ]
        except RuntimeError as error:
            if type(error) is not RuntimeError:  # e.g. no stack is left
                raise
            raise Unstorable(
                "it changed while it was read",
                target=format_path(at, root),
                hint="pass a copy that no other code changes",
            ) from error
        return {TAG: "dict", "items": pairs}

    def _encode_stranger(self, value: Any, at: Path, root: str) -> Plain:
        if isinstance(value, BaseException):
            return self._encode_error(value, at, root)
        if type(value) is Data and hasattr(value, "tag"):
            return {TAG: value.tag, **self.encode_items({**value, **value.beside}, at, root)}
        if isinstance(value, Member) and hasattr(value, "tag"):
            return {TAG: value.tag, **self.encode_items(value.stored, at, root)}
        plain = plain_of(value)
        if plain is not NOT_PLAIN:
            return self.encode(plain, at, root)
        if is_array(value):
            return self._encode_known(ARRAYS, value, at, root)
        if not self.strict:
            known = MET.kind_of(type(value))
            if known is not None and known.tag not in self.kinds.by_tag:
                return self._encode_known(known, value, at, root)
        if self.exotic is not None:
            return self._encode_exotic(value, at, root)
        raise refused(value, format_path(at, root))

    def _encode_error(self, value: BaseException, at: Path, root: str) -> Plain:
        """Returns the words of an error, as LangGraph stores that of a task; the fields of one that
        is a dataclass."""
        known = None if self.strict else MET.kind_of(type(value))
        if known is not None and known.tag not in self.kinds.by_tag:
            with suppress(Unstorable):
                return self._encode_known(known, value, at, root)
        return repr(value)

    def _encode_exotic(self, value: Any, at: Path, root: str) -> Plain:
        assert self.exotic is not None
        try:
            kind, data = self.exotic.dumps_typed(value)
            back = own_name(type(loads(self.exotic, kind, bytes(data))))
            if back != own_name(type(value)):
                raise TypeError(f"it would come back as a {back}")
        except Exception as error:
            raise refused(value, format_path(at, root), str(error)) from error
        return {TAG: "serde", "of": own_name(type(value)), "type": kind, "data": bytes(data)}

    def decode(self, plain: Plain, root: str = "state", built: Built | None = None) -> Any:
        """Returns the value, fresh: it shares nothing with `plain`, nor with values that `built`
        did not build.

        Raises:
            SchemaError: a value cannot be rebuilt; names its path.
        """
        return self._decode_rooted(plain, (), root, built)

    def _decode_rooted(self, plain: Plain, at: Path, root: str, built: Built | None) -> Any:
        try:
            return self._decode(plain, built)
        except _UnreadableError as error:
            target = format_path((*at, *reversed(error.path)), root)
            raise SchemaError(error.problem, target=target, hint=error.hint) from error.__cause__
        except RecursionError:
            return self._decode_afresh(plain, at, root)
        except _MISFITS as error:
            raise SchemaError(
                f"the stored data is not a value of its kind: {error}",
                target=format_path(at, root),
                hint="it was not written by PerdureSaver; look at it with `perdure state`",
            ) from error

    def _decode_afresh(self, plain: Plain, at: Path, root: str) -> Any:
        """Decodes for callers deep in the stack. What they built before may be incomplete: nothing
        of it is shared."""
        try:
            return stack_room.afresh(self._decode_rooted, plain, at, root, None)
        except RecursionError as error:
            stack_room.pass_on(error)
            raise SchemaError(
                f"the stored data is not a value of its kind: {error}",
                target=format_path(at, root),
                hint="it was not written by PerdureSaver; look at it with `perdure state`",
            ) from error

    def decode_items(
        self, plain: Mapping[Any, Plain], root: str, built: Built | None = None
    ) -> dict[Any, Any]:
        """The values of a map of ours by their names, fresh. No name is a mark, also not `TAG`.

        Raises:
            SchemaError: as `decode`.
        """
        made = dict(plain)
        for key, item in plain.items():
            if type(item) not in _AS_IS:
                made[key] = self._decode_rooted(item, (key,), root, built)
        return made

    def _decode(self, plain: Plain, built: Built | None) -> Any:
        kind = type(plain)
        if kind in _AS_IS:
            return plain
        if kind is list:
            return self._decode_list(plain, built)
        if kind is dict:
            tag = plain.get(TAG)
            if tag is None:
                return self._decode_items(plain, built)
            if built is None:
                return self._build(tag, plain, built)
            return built.get(plain) or built.keep(plain, self._build(tag, plain, built))
        if kind is tuple:
            return tuple(self._decode(item, built) for item in plain)
        return set(plain) if kind is set else plain

    def _decode_list(self, plain: list[Plain], built: Built | None) -> list[Any]:
        made: list[Any] = [] if built is None else built.front_of(plain)
        rest = plain if not made else plain[len(made) :]
        sharable, quick = True, self.kinds.quick
        try:
            for item in rest:
                kind = type(item)
                if kind in _AS_IS:
                    made.append(item)
                    continue
                if kind is not dict or TAG not in item:
                    sharable = False
                elif built is None and (build := quick.get(item[TAG])) is not None:
                    one = build(item)
                    if one is not None:
                        made.append(one)
                        continue
                made.append(self._decode(item, built))
        except _UnreadableError as error:
            error.path.append(len(made))
            raise
        if built is not None and sharable:
            built.keep_list(plain, made)
        return made

    def _decode_items(self, plain: dict[Any, Any], built: Built | None) -> dict[Any, Any]:
        made = plain.copy()
        for key, item in plain.items():
            if type(item) in _AS_IS:
                continue
            try:
                made[key] = self._decode(item, built)
            except _UnreadableError as error:
                error.path.append(key)
                raise
        return made

    def _build(self, tag: str, plain: dict[Any, Any], built: Built | None) -> Any:
        known = self.kinds.by_tag.get(tag)
        if known is None and tag == "dict":
            pairs = self._decode(plain["items"], built)
            try:
                return {key: item for key, item in pairs}  # noqa: C416
            except TypeError as error:
                return _without(tag, error)
        if known is None and tag == "serde":
            return self._decode_exotic(plain)
        if known is None:
            return self._build_unnamed(tag, plain, built)
        fields = self._decode_items(plain, built)
        del fields[TAG]
        try:
            made = known.build(fields)
        except MisfitError as error:
            raise _UnreadableError(
                f"a stored {tag} does not fit its class: {error}",
                "give the field a default, or bring the class back under its old name",
            ) from error
        except (UnmadeError, TypeError) as error:
            return _without(tag, error)
        say_answered(tag, fields, made)
        return made

    def _build_unnamed(self, tag: str, plain: dict[str, Any], built: Built | None) -> Any:
        """An object of a class that is not registered; its data, where it cannot be built."""
        if tag == ARRAY:
            return ARRAYS.build(plain)
        if self.strict:
            raise _UnreadableError(
                f"a {tag} cannot be read: its type is not registered",
                f"PerdureSaver(…, types=[{tag.rpartition('.')[2]}]) registers it; where the class "
                f"was renamed or moved: types={{{tag!r}: NewName}}",
            )
        fields = self._decode_items(plain, built)
        del fields[TAG]
        known = MET.kind_named(tag)
        if known is None:
            say_absent(tag)
            return data_of(tag, fields)
        try:
            made = known.build(dict(fields))
        except MisfitError as error:
            say_misfit(tag, error)
            return data_of(tag, fields)
        except UnmadeError as error:
            return _without(tag, error)
        say_answered(tag, fields, made)
        return made

    def _decode_exotic(self, plain: dict[Any, Any]) -> Any:
        if self.exotic is None:
            raise _UnreadableError(
                "it was stored with LangGraph's serializer, and none is given",
                "PerdureSaver(…, serde=JsonPlusSerializer(allowed_msgpack_modules=[…]))",
            )
        try:
            value = loads(self.exotic, plain["type"], plain["data"])
            if own_name(type(value)) != plain["of"]:
                raise ValueError(f"it gives a {own_name(type(value))} for a {plain['of']}")
            return value
        except Exception as error:
            raise _UnreadableError(
                f"LangGraph's serializer cannot read it: {error}",
                "allow its type: JsonPlusSerializer(allowed_msgpack_modules=[…])",
            ) from error


def _without(tag: str, error: Exception) -> Any:
    """Returns an object without what its class does not make.

    Raises:
        _UnreadableError: it cannot hold something, which is of another class than it was, or stands
            for an enum's member, and is not hashable.
    """
    if isinstance(error, UnmadeError):
        say_unmade(tag, error)
        return error.made
    if "unhashable" not in str(error):
        raise error
    raise _UnreadableError(
        f"a stored {tag} cannot hold what it held: {error}",
        "make that class hashable; where it is missing, import its module, or register it: "
        "PerdureSaver(…, types=[…])",
    ) from error


def refused(value: Any, target: str, why: str = "") -> Unstorable:
    """For a value that cannot be stored."""
    cls = type(value)
    error = Unstorable if may_register(cls) else NoDataError
    why = why or ("it is not data" if error is NoDataError else "its type is not registered")
    problem = f"a {own_name(cls)} cannot be stored: {why}"
    return error(problem, target=target, hint=way_in(cls))


def way_in(cls: type) -> str:
    """Returns a hint on how values of a class can be stored."""
    if may_register(cls):
        return f"PerdureSaver(…, types=[{cls.__qualname__}]) registers it"
    if hasattr(cls, "get_secret_value"):
        return "as plain text everybody could read it: keep it outside of the graph's state"
    return (
        "keep it outside of the graph's state, or store its parts: a dict, a dataclass, a "
        "pydantic model"
    )


def _key(key: Any) -> Any:
    return key if isinstance(key, Member) else plain_key(key)


def _check_zone(value: Any, at: Path, root: str) -> None:
    if type(value) is dt.datetime or type(value) is dt.time:
        check_zone(value, at, root)


class Built:
    """Objects that were built already, by the plain maps that they are built from.

    Several states of one thread, decoded together, share their messages. `forget` whatever a change
    is about to alter in place.
    """

    def __init__(self) -> None:
        self.made: dict[int, tuple[Plain, Any]] = {}
        self._lists: dict[int, tuple[Plain, list[Any]]] = {}

    def get(self, plain: Plain) -> Any:
        found = self.made.get(id(plain))
        return None if found is None else found[1]

    def keep(self, plain: Plain, made: Any) -> Any:
        self.made[id(plain)] = plain, made  # with the plain one, so that its id stays its own
        return made

    def keep_list(self, plain: Plain, made: list[Any]) -> None:
        """Keeps a list of objects and scalars, so that a list that begins with the same is not
        built again."""
        self._lists[id(plain)] = plain, list(made)

    def front_of(self, plain: Plain) -> list[Any]:
        """Returns the part of a list that was built already, in a new list."""
        found = self._lists.get(id(plain))
        return [] if found is None else list(found[1])

    def forget(self, plain: Plain) -> None:
        self.made.pop(id(plain), None)
        self._lists.pop(id(plain), None)


class _UnreadableError(Exception):
    """Found on the way; the path grows on the way back."""

    def __init__(self, problem: str, hint: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint
        self.path: list[Any] = []
