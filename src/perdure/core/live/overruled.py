"""Refuses an edit that the class itself would overrule at each reading: with what is stored under a
key that it does not declare, and that its validator looks for."""

from __future__ import annotations

from perdure.core.live.ground import Ground
from perdure.core.live.shadow import ObjectShadow
from perdure.core.types.objects import alike
from perdure.core.values.plain_values import Path, Plain, format_path
from perdure.errors import PerdureError, SchemaError
from perdure.missing import MISSING


def refuse_overruled(
    ground: Ground, shadow: ObjectShadow, plain: dict[str, Plain], final: Path
) -> None:
    """Checks that the fields of an object which an edit set are read as they were written.

    Args:
        plain: the object with the edit, as it would be stored.

    Raises:
        SchemaError: one is not, and would be without a key that the class does not declare.
    """
    node = shadow.node
    extras = node.face.extras(shadow.value)  # these everybody sees, and may set
    unknown = sorted(plain.keys() - node.fields.keys() - extras.keys())
    written = [name for name in shadow.changes if name in plain and name in node.fields]
    seen = _read(ground, shadow, plain, final) if unknown and written else {}
    for name in written:
        child = node.child(name)
        if child is None or name not in seen or alike(child, seen[name], plain[name]):
            continue
        for key in unknown:
            rest = {one: value for one, value in plain.items() if one != key}
            try:
                without = _read(ground, shadow, rest, final)
            except PerdureError:  # it needs that key
                continue
            if name in without and alike(child, without[name], plain[name]):
                raise SchemaError(
                    f"is {seen[name]!r:.60} at each reading, whatever is set: a validator of "
                    f"{node.face.cls.__name__} reads {key!r}, which is stored, and not declared",
                    target=format_path((*shadow.path, name), ground.name),
                    hint=f"take {key!r} away with a migration: perdure.Schema(…, version=2, "
                    f"migrations={{1: …}}); or declare {key!r} as a field",
                )


def _read(
    ground: Ground, shadow: ObjectShadow, plain: dict[str, Plain], final: Path
) -> dict[str, Plain]:
    """Returns the fields of the object that is built from `plain`, as plain data."""
    node = shadow.node
    value = node.build(plain, shadow.path, ground.name)
    fields = {name: node.face.get(value, name) for name in node.fields}
    there = {name: one for name, one in fields.items() if one is not MISSING}
    return ground.fields_taken(node, there, final)
