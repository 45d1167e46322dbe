"""The identity of a question on replay: its words, and the permitted answers.

An answer approves exactly the question that was asked. A question with a key is identified by the
key.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from perdure.core.format.records import WaitBegan
from perdure.core.schema.value_digest import shorten
from perdure.core.values.plain_values import Plain
from perdure.engine.journal.call_identity import DATA, QUESTION, SCHEMA

ASKS = "an answer to "
"""With this begins what a run waits for that asks."""

SHOWN = 200
"""The length of a type's description that is shown along with a question."""


def digests_of(question: str, schema: Plain) -> dict[str, str]:
    """Returns the parts of a question that must be the same on replay: its words, and the permitted
    answers."""
    return {QUESTION: shorten(question), SCHEMA: shorten(_meaning(schema))}


def digest_of_data(data: Plain) -> dict[str, str]:
    """Returns the part of a question that is shown with it, which must be the same, too."""
    return {} if data is None else {DATA: shorten(data)}


def digest_shown(question: str, schema: Plain, data: Plain) -> str:
    """Returns the digest of all that a person sees of a question."""
    return shorten([question, schema, data])


def with_digests(record: WaitBegan) -> WaitBegan:
    """Returns the record of a wait with the digests that older versions left out: it has their
    question."""
    question, schema = record.question, record.schema
    if question is None or QUESTION in record.args:
        return record
    preview = record.preview.replace(in_short(question), in_full(question, schema), 1)
    return replace(record, args={**record.args, **digests_of(question, schema)}, preview=preview)


def in_short(question: str) -> str:
    return f"{ASKS}{question!r}"


def in_full(question: str, schema: Plain) -> str:
    """Returns a question with its type, except for the usual yes or no."""
    meaning = _meaning(schema)
    if meaning == {"type": "boolean"}:
        return in_short(question)
    said = json.dumps(meaning, ensure_ascii=False, default=str)
    return f"{in_short(question)} of type {said:.{SHOWN}}"


def data_in_short(data: Plain) -> str:
    """Returns what a question shows, behind its words."""
    return "" if data is None else f" about {data!r:.{SHOWN}}"


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
