"""States of shapes by chance, stored with other names of some fields than their classes have.

The notes of `Grown` are renamed in what is stored, as by a program whose classes call them so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pydantic

import perdure
from perdure.core.types.nodes import isolate
from perdure.errors import PerdureError, SchemaError
from perdure.store import Store
from tests.shapes.grown import Grown
from tests.shapes.ways import same

NEW, OLD = "note_", "was_"


def with_names(plain: Any, new: str, old: str) -> Any:
    """Returns a plain value whose keys that begin with the `old` words begin with the `new`."""
    if type(plain) is dict:
        return {
            key.replace(old, new, 1) if type(key) is str else key: with_names(item, new, old)
            for key, item in plain.items()
        }
    if type(plain) in (list, tuple):
        return type(plain)(with_names(one, new, old) for one in plain)
    return plain


def names(plain: Any) -> Iterator[str]:
    """Yields the names of the notes in a plain value."""
    if type(plain) is dict:
        yield from (key for key in plain if type(key) is str and key.startswith(NEW))
    if type(plain) in (dict, list, tuple):
        for one in plain.values() if type(plain) is dict else plain:
            yield from names(one)


def run_seed(store: Store, seed: int) -> str:
    """Stores a shape under other names, and reads it. Returns what came of it: "found", "kept"
    (nothing was renamed), "unsure" (its class may keep the other name, or be another one), or ""
    where its library, or Perdure, refuses the shape."""
    try:
        kind, make = Grown(seed).maker()
        schema: Any = perdure.Schema(dict[str, kind], id="shape")  # type: ignore[valid-type]
        value = {"a": make(Grown(seed + 1).rng), "b": make(Grown(seed + 2).rng)}
        first = store.agent(f"whole-{seed}", schema, initial=value)
        first.checkpoint("made")
    except (
        PerdureError,
        pydantic.PydanticUserError,
        pydantic.errors.PydanticSchemaGenerationError,
    ):
        return ""
    plain, agent = isolate(first.at(1).plain), f"renamed-{seed}"
    other = with_names(plain, OLD, NEW)
    free: Any = perdure.Schema(dict, id="shape")
    store.agent(agent, free, initial=other).checkpoint("made")
    sure = [name for name in names(plain) if name in surely_lacked(schema)]
    found = _is_found(store, agent, schema)
    if not schema.registry.has_unions:
        assert found is bool(sure), (seed, kind, plain)
    assert sure or not found, (seed, kind, plain)
    same(other, store.agent(agent, free).state, "as plain data")
    assert not store.agent(agent, free).verify().damages
    _check_migrated(store, agent, schema, first.state)
    return "found" if found else "unsure" if [*names(plain)] else "kept"


def surely_lacked(schema: Any) -> set[str]:
    """Returns the names of the notes without which an object would be read with a default."""
    faces = schema.registry.faces.values()
    return {
        name
        for face in faces
        if not face.is_dict and not face.keeps_extra
        for name in face.fields
        if name.startswith(NEW)
    }


def _is_found(store: Store, agent: str, schema: Any) -> bool:
    mine = store.agent(agent, schema)

    def refused(call: Callable[[], Any]) -> str:
        try:
            call()
        except SchemaError as error:
            return error.problem
        return ""

    problem = refused(lambda: mine.state)
    if not problem:
        return False
    assert f"'{OLD}" in problem and f"'{NEW}" in problem, problem
    assert refused(lambda: mine.checkpoint("again")) == problem
    assert refused(lambda: mine.update(lambda draft: draft.clear())) == problem
    assert mine.seq == 2, "nothing was written"
    return True


def _check_migrated(store: Store, agent: str, schema: Any, expected: Any) -> None:
    """A migration that renames them all gives the values as they were."""
    migrated: Any = perdure.Schema(
        schema.type, id="shape", version=2, migrations={1: lambda old: with_names(old, NEW, OLD)}
    )
    same(expected, store.agent(agent, migrated).state, "migrated")
