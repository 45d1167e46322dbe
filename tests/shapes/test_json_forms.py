"""What `perdure state` writes of a state, and what a web framework shows of it, fits its JSON
Schema."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

import perdure
from perdure.cli.plain import to_json
from perdure.public_data import as_json
from tests.shapes.json_forms import documents, look_at, types_named
from tests.shapes.wider import RECURSIVE


@pytest.mark.filterwarnings("ignore:.*`ReadOnly` qualifier:UserWarning")  # pydantic's
def test_each_shape_fits_its_json_schema() -> None:
    with perdure.open("memory://") as store:
        counts = Counter(look_at(store, seed) for seed in range(400))
    assert counts[True] > 200, counts
    assert counts[False] < 40, counts  # of types that take anything


def test_what_holds_itself_is_described_too() -> None:
    for kind, make in RECURSIVE:
        schema: Any = perdure.Schema(list[kind], id="nested")  # type: ignore[valid-type]
        exact, text = documents(schema)
        assert [*types_named(exact)]
        for seed in range(20):
            plain = schema.take([make(random.Random(seed))], aliases_refused=False)
            for form, document in ((to_json(plain), exact), (as_json(plain), text)):
                jsonschema.validate(json.loads(json.dumps(form)), document)
