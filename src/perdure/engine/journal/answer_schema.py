"""The JSON schema of an answer: made for those who answer, and a first look at what they say."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache, partial
from itertools import chain, count, repeat
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from perdure.core.types.faces import face_of
from perdure.core.types.registry import Registry
from perdure.core.values.plain_values import Path, Plain, format_path, take
from perdure.errors import SchemaError
from perdure.system import stack_room
from perdure.system.late_imports import NotLoadedError, loading
from perdure.system.user_errors import check_own

if TYPE_CHECKING:
    from perdure.engine.journal.questions import Question

NAMES = "propertyNames"
"""JSON Schema's word for the permitted names; beside "properties", for all that a class is taken in
by: its own, which "properties" shows, and its aliases."""


def answer_schema(kind: Any) -> Plain:
    """Returns the JSON schema of a type, for those who answer; {} if it has none. It shows fields
    under their own names, which a run always takes, and only those that it takes."""
    if kind is bool:
        return json_schema(kind)
    return _made(kind, _kept_answers, _answers) or _made(kind, _by_msgspec)


def json_schema(kind: Any) -> Plain:
    """Returns the JSON schema that a question of this type is known by on replay; {} for a type
    that pydantic does not know, or if it is not installed."""
    if kind is bool:  # most are, and each replay comes by
        return {"type": "boolean"}
    return _made(kind, _kept_schema, _json_schema)  # not all are keys of a dict


def _made(kind: Any, *makers: Callable[[Any], Plain]) -> Plain:
    for make in makers:
        try:
            return make(kind)
        except NotLoadedError:  # says nothing about the type
            raise
        except Exception as error:  # also what its own code raises; that is not kept
            check_own(error, partial(make, kind))
    return {}


def _json_schema(kind: Any) -> Plain:
    with loading:
        from pydantic import TypeAdapter

    return take(TypeAdapter(kind).json_schema())


def _answers(kind: Any) -> Plain:
    with loading:
        from pydantic import TypeAdapter
        from pydantic.json_schema import GenerateJsonSchema

    class Naming(GenerateJsonSchema):
        def model_schema(self, schema: Any) -> Any:
            return _named(super().model_schema(schema), schema["cls"])

        def dataclass_schema(self, schema: Any) -> Any:
            return _named(super().dataclass_schema(schema), schema["cls"])

        def typed_dict_schema(self, schema: Any) -> Any:
            return _named(super().typed_dict_schema(schema), schema.get("cls"))

    return take(TypeAdapter(kind).json_schema(by_alias=False, schema_generator=Naming))


_kept_schema = lru_cache(256)(_json_schema)
_kept_answers = lru_cache(256)(_answers)


def _by_msgspec(kind: Any) -> Plain:
    """It knows Structs, and the TypedDicts of each Python."""
    schema = msgspec.json.schema(kind)
    classes = Registry(kind).faces
    for name, one in schema.get("$defs", {}).items():
        named = [cls for cls in classes if cls.__name__ == name]
        if len(named) == 1:
            _named(one, named[0])
    return take(schema)


def _named(schema: dict[str, Any], cls: Any) -> dict[str, Any]:
    """Returns the schema of a class, with the names that a run takes a value of it by."""
    try:
        face = face_of(cls)
    except SchemaError:  # is said where a value of it comes in
        return schema
    if face is None or face.opaque_input or "properties" not in schema:
        return schema
    own = {shown: name for name, shown in face.renames.items()}  # msgspec shows the others
    taken = [*face.fields, *([face.tag[0]] if face.tag else [])]
    fields = {own.get(name, name): one for name, one in schema["properties"].items()}
    schema["properties"] = {
        name: one
        for name, one in fields.items()
        if name in taken or (face.keeps_extra and name not in face.live)
    }
    if "required" in schema:
        needed = [own.get(name, name) for name in schema["required"]]
        schema["required"] = [name for name in needed if name in schema["properties"]]
    if not face.keeps_extra:
        schema[NAMES] = {"enum": [*taken, *face.aliases]}
    return schema


_TYPES: Mapping[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float, Decimal),
    "string": (str, bytes, dt.datetime, dt.date, dt.time, dt.timedelta, Decimal, UUID),
    "array": (list, tuple, set, frozenset),
    "object": (dict,),
    "null": (type(None),),
}
"""The types for JSON Schema's words: also plain values that JSON has no kind of its own for."""


def check_answer(question: Question, answer: Plain) -> None:
    """A first look whether an answer is of the kind that was asked for; the run looks closely.

    Raises:
        SchemaError: it is not.
    """
    schema = question.schema
    wanted = schema.get("type")
    target = f"run {question.run}, {question.place}"
    kinds = _kinds(schema)
    wrong_bool = isinstance(answer, bool) and bool not in kinds
    if kinds and (not isinstance(answer, kinds) or wrong_bool):
        raise SchemaError(
            f"{question.question!r} wants a {wanted}, not {answer!r:.100}", target=target
        )
    allowed = schema.get("enum")
    if isinstance(allowed, list) and answer not in allowed:
        raise SchemaError(
            f"{question.question!r} wants one of {allowed}, not {answer!r:.100}", target=target
        )
    try:
        stray = _stray(schema, answer)
    except RecursionError:  # of the caller's depth
        stray = stack_room.afresh(_stray, schema, answer)
    if stray is not None:
        at, names = stray
        raise SchemaError(
            f"what {question.question!r} asks for declares no such field: "
            f"{format_path(at, 'answer')}",
            target=target,
            hint=f"it would be lost; there are: {', '.join(map(str, names)) or 'none'}",
        )


def _kinds(schema: Mapping[Any, Any]) -> tuple[type, ...]:
    word = schema.get("type")
    return _TYPES.get(word, ()) if isinstance(word, str) else ()


Stray = tuple[Path, Sequence[Any]]
"""The place of a name that is not declared, and the declared ones there."""


def _stray(schema: Mapping[Any, Any], answer: Plain) -> Stray | None:
    return _Names(schema.get("$defs")).stray(schema, answer, ())


class _Names:
    """The names in an answer, by a JSON schema with these definitions."""

    def __init__(self, definitions: Any) -> None:
        self._definitions = definitions if isinstance(definitions, dict) else {}
        self._known: dict[tuple[str, Path], Stray | None] = {}
        """By definition and place: asked again below each alternative, it would take a power of
        the depth."""

    def stray(self, schema: Any, value: Plain, at: Path) -> Stray | None:
        """Returns the first name that the schema surely has no place for; None if there is none."""
        if not isinstance(schema, dict):
            return None
        ref = str(schema.get("$ref", "")).rpartition("/")[2]
        if ref:
            if (ref, at) not in self._known:
                self._known[ref, at] = None  # of a definition that leads to itself
                self._known[ref, at] = self.stray(self._definitions.get(ref), value, at)
            return self._known[ref, at]
        for word in ("anyOf", "oneOf"):
            options = schema.get(word)
            if isinstance(options, list):
                return self._in_all(options, value, at)
        if isinstance(value, dict):
            return self._in_object(schema, value, at)
        if isinstance(value, list | tuple):
            first = schema.get("prefixItems")
            kinds = first if isinstance(first, list) else []
            every = repeat(schema.get("items"))
            parts = zip(chain(kinds, every), value, count(), strict=False)
            return self._first((kind, item, (*at, index)) for kind, item, index in parts)
        return None

    def _in_all(self, options: Sequence[Any], value: Plain, at: Path) -> Stray | None:
        """Returns a stray name by the nearest of several schemas, if each has one."""
        found = []
        for one in options:
            kinds = _kinds(one) if isinstance(one, dict) else ()
            if kinds and not isinstance(value, kinds):
                continue
            stray = self.stray(one, value, at)
            if stray is None:
                return None
            found.append(stray)
        return max(found, key=lambda one: len(one[0]), default=None)

    def _in_object(
        self, schema: Mapping[Any, Any], value: Mapping[Any, Plain], at: Path
    ) -> Stray | None:
        fields = schema.get("properties")
        if not isinstance(fields, dict):
            every = schema.get("additionalProperties")
            return self._first((every, item, (*at, key)) for key, item in value.items())
        names = schema.get(NAMES)
        known = names.get("enum") if isinstance(names, dict) else None
        if isinstance(known, list):  # else a class may be taken by more names than it shows
            for key in value:
                if key not in known:
                    return (*at, key), list(fields)
        return self._first((fields.get(key), item, (*at, key)) for key, item in value.items())

    def _first(self, parts: Iterable[tuple[Any, Plain, Path]]) -> Stray | None:
        return next((found for one in parts if (found := self.stray(*one)) is not None), None)
