"""The JSON forms of values by chance fit the JSON Schemas of their types."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema  # type: ignore[import-untyped]

import perdure
from perdure.cli.plain import to_json
from perdure.errors import PerdureError
from perdure.public_data import as_json
from perdure.store import Store
from tests.shapes.ways import shape_of


def documents(schema: Any) -> tuple[Any, Any]:
    """Returns the JSON Schemas of both forms, checked: by their own rules, and to be JSON."""
    found = schema.json_schema(), schema.json_schema(exact=False)
    for one in found:
        jsonschema.Draft202012Validator.check_schema(one)
        assert json.loads(json.dumps(one, allow_nan=False)) == one
    return found


def look_at(store: Store, seed: int) -> bool | None:
    """Stores a shape, and compares the JSON forms of what is stored with its schema. Returns None
    where the shape is refused; True if the schema would refuse another kind in its place."""
    shape = shape_of(seed)
    if shape is None:
        return None
    schema: Any = perdure.Schema(dict[str, shape.kind], id="shape")  # type: ignore[name-defined]
    try:
        exact, text = documents(schema)
        agent = store.agent(f"json-{seed}", schema, initial={"one": shape.value})
        agent.checkpoint("made")
    except PerdureError:
        return None
    plain = agent.at(1).plain
    for form, document in ((to_json(plain), exact), (as_json(plain), text)):
        form = json.loads(json.dumps(form, allow_nan=False))
        problems = list(jsonschema.Draft202012Validator(document).iter_errors(form))
        assert not problems, (seed, shape.kind, problems[0])
    rule = jsonschema.Draft202012Validator(exact)
    others: list[Any] = [5, "no", None, [], {}]
    return any(not rule.is_valid({"one": other}) for other in others)


def types_named(document: Any) -> Iterator[str]:
    """Yields the types that a JSON Schema names, wherever."""
    if isinstance(document, dict):
        said = document.get("type")
        yield from [said] if isinstance(said, str) else said or []
        document = list(document.values())
    for one in document if isinstance(document, list) else ():
        yield from types_named(one)
