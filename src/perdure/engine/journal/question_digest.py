"""The identity of a question on replay: its words, and the permitted answers.

An answer approves exactly the question that was asked. A question with a key is identified by the
key.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

from msgspec.structs import replace

from perdure.core.format.records import WaitBegan
from perdure.core.schema.value_digest import shorten
from perdure.core.values.plain_values import Plain, take
from perdure.engine.journal.call_identity import QUESTION, SCHEMA
from perdure.system.late_imports import NotLoadedError, loading
from perdure.system.user_errors import check_own

SHOWN = 200
"""The length of a type's description that is shown along with a question."""


def digests_of(question: str, schema: Plain) -> dict[str, str]:
    """Returns the parts of a question that must be the same on replay: its words, and the permitted
    answers."""
    return {QUESTION: shorten(question), SCHEMA: shorten(_meaning(schema))}


def with_digests(record: WaitBegan) -> WaitBegan:
    """Returns the record of a wait with the digests that older versions left out: it has their
    question."""
    question, schema = record.question, record.schema
    if question is None or QUESTION in record.args:
        return record
    preview = record.preview.replace(in_short(question), in_full(question, schema), 1)
    return replace(record, args={**record.args, **digests_of(question, schema)}, preview=preview)


def in_short(question: str) -> str:
    return f"an answer to {question!r}"


def in_full(question: str, schema: Plain) -> str:
    """Returns a question with its type, except for the usual yes or no."""
    meaning = _meaning(schema)
    if meaning == {"type": "boolean"}:
        return in_short(question)
    said = json.dumps(meaning, ensure_ascii=False, default=str)
    return f"{in_short(question)} of type {said:.{SHOWN}}"


def json_schema(kind: Any) -> Plain:
    """Returns the JSON schema of a type, for those who answer; {} if it has none."""
    if kind is bool:  # most are, and each replay comes by
        return {"type": "boolean"}
    for made in (_kept_schema, _json_schema):  # not all are keys of a dict
        try:
            return made(kind)
        except NotLoadedError:  # says nothing about the type
            raise
        except Exception as error:  # also what its own code raises; that is not kept
            check_own(error, partial(made, kind))
    return {}


def _json_schema(kind: Any) -> Plain:
    with loading:
        from pydantic import TypeAdapter

    return take(TypeAdapter(kind).json_schema())


_kept_schema = lru_cache(256)(_json_schema)

_NESTED = ("items", "additionalProperties", "propertyNames", "not")
_SEVERAL = ("anyOf", "oneOf", "allOf", "prefixItems")


def _meaning(schema: Plain) -> Plain:
    """Returns the parts of a JSON schema that change the meaning of an answer: kinds, names and
    choices. Titles, names of classes, bounds and patterns do not: an answer is checked against the
    current type anyway."""
    return _meant(schema, schema.get("$defs", {}) if isinstance(schema, dict) else {}, ())


def _meant(schema: Plain, known: Any, inside: Sequence[str]) -> Plain:
    if not isinstance(schema, dict):
        return schema
    ref = str(schema.get("$ref", "")).rpartition("/")[2]
    if ref in inside:
        return {"again": len(inside) - list(inside).index(ref)}
    if ref and isinstance(known, dict) and ref in known:
        return _meant(known[ref], known, (*inside, ref))
    meant: dict[Any, Plain] = {key: schema[key] for key in ("type", "format") if key in schema}
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(choices, list):  # one of one is both, by the version of pydantic
        meant["enum"] = sorted(choices, key=repr)
    for key in _NESTED:
        if key in schema:
            meant[key] = _meant(schema[key], known, inside)
    for key in _SEVERAL:
        if isinstance(schema.get(key), list):
            meant[key] = [_meant(one, known, inside) for one in schema[key]]
    fields = schema.get("properties")
    if isinstance(fields, dict):
        meant["properties"] = {name: _meant(one, known, inside) for name, one in fields.items()}
    return meant
