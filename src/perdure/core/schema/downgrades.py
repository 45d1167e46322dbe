"""States in the form of the major version before: what a program writes that goes on beside
programs of that version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from perdure.core.arguments.checks import mapping
from perdure.core.arguments.names import shown
from perdure.core.schema.schema_arguments import whole_version
from perdure.core.schema.taken_values import first_difference, take_at
from perdure.core.types.nodes import AnyNode, Node, Walker, isolate
from perdure.core.types.objects import alike
from perdure.core.types.registry import Registry
from perdure.core.values.plain_values import Path, Plain, format_path, same
from perdure.errors import SchemaError, UnknownZone
from perdure.missing import MISSING

Version = tuple[int, int]
Downgrade = Callable[[dict[str, Any]], dict[str, Any]]


class Declared(Protocol):
    """A schema, as far as states are put into its older form."""

    id: str
    version: Version

    @property
    def downgrades(self) -> Mapping[int, Downgrade]: ...

    @property
    def registry(self) -> Registry: ...

    @property
    def root(self) -> Node: ...

    def build(self, plain: Plain) -> Any: ...

    def migrate(self, plain: Plain, stored: Version) -> Plain: ...


def check_downgrades(downgrades: Mapping[int, Downgrade]) -> dict[int, Downgrade]:
    """Returns the downgrades by the major version that each starts from.

    Raises:
        TypeError: they have another form.
    """
    made = mapping(downgrades, "downgrades must be {major: function}")
    for major, function in made.items():
        if type(major) is not int or not callable(function):
            raise TypeError(
                "downgrades must be {major: function}, from that major version to the one before, "
                f"not {{{shown(major)}: {shown(function)}}}"
            )
    return made


def check_writes(
    writes: int | Version | None,
    version: Version,
    migrations: Mapping[int, Any],
    downgrades: Mapping[int, Any],
) -> Version | None:
    """Returns the version under which states are written; None where it is the program's own.

    Raises:
        TypeError: it is no version. ValueError: it is not the major version before, or there is no
            way there, or back.
    """
    if writes is None:
        return None
    said, (major, _) = whole_version(writes), version
    if said[0] != major - 1:
        raise ValueError(
            f"writes={shown(writes)} must be the major version before {major}: "
            f"writes={major - 1}; go from version to version, one deploy after the other"
        )
    for name, functions, start in (
        ("migrations", migrations, major - 1),
        ("downgrades", downgrades, major),
    ):
        if start not in functions:
            raise ValueError(
                f"writes={shown(writes)} needs the way there and back: "
                f"perdure.Schema(…, version={major}, migrations={{{major - 1}: up}}, "
                f"downgrades={{{major}: down}}, writes={major - 1}); {name} lacks {start}"
            )
    return said


def lowered(schema: Declared, plain: Plain) -> Plain:
    """Returns a state in the form of the major version before; `plain` is not changed.

    Raises:
        SchemaError: the downgrade failed, or gives what cannot be stored.
    """
    major = schema.version[0]
    try:
        return take_at(schema.registry.any, schema.downgrades[major](isolate(plain)), ())
    except (UnknownZone, MemoryError):
        raise
    except Exception as error:
        raise SchemaError(
            f"the downgrade from major version {major} failed: {error}",
            target=f"schema {schema.id!r}",
        ) from error


def as_written(schema: Declared, plain: Plain, stored: Plain, version: Version) -> Plain:
    """Returns a state as it is written under the version before, whose programs read it there.
    What they read is what comes back. Costs O(state).

    Args:
        plain: in the program's own form.
        stored: the one that is there now, in the other form; MISSING if there is none. All that is
            stored in it and not changed has to stay.
        version: the one that it is written under.

    Raises:
        SchemaError: it would come back otherwise, or something that is stored would be lost; names
            the path. Or one of the two functions failed.
    """
    if stored is not MISSING:
        lost = _lost(stored, lowered(schema, schema.migrate(stored, version)))
        if lost is not None:
            raise SchemaError(
                f"version {version[0]} has stored this, and it does not come back when it is "
                "migrated and downgraded: a write would lose it",
                target=format_path(lost),
                hint=_hint(schema),
            )
    made = lowered(schema, plain)
    back = schema.migrate(made, version)
    given, found = _shown(schema, plain), _shown(schema, back)
    if not alike(schema.root, given, found):
        raise SchemaError(
            f"written under version {version[0]} it would come back otherwise",
            target=format_path(first_difference(given, found, ())),
            hint=_hint(schema),
        )
    return made


def _hint(schema: Declared) -> str:
    major = schema.version[0]
    return (
        f"nothing was written: downgrades={{{major}: …}} and migrations={{{major - 1}: …}} must be "
        "the inverse of each other; or leave such a change to the deploy without writes="
    )


def _shown(schema: Declared, plain: Plain) -> Plain:
    """Returns what the types show of a state: with the defaults that need not be stored."""
    root = schema.root
    return plain if isinstance(root, AnyNode) else root.plain(schema.build(plain), (), Walker())


def _lost(stored: Plain, kept: Plain, at: Path = ()) -> Path | None:
    """Returns the first place of a state whose value is another one, or gone; None where all is
    kept. Further keys lose nothing."""
    if type(stored) is dict and type(kept) is dict:
        pairs = [(key, one, kept.get(key, MISSING)) for key, one in stored.items()]
    elif type(stored) is list and type(kept) is list and len(stored) == len(kept):
        pairs = [(index, *pair) for index, pair in enumerate(zip(stored, kept, strict=True))]
    else:
        return None if same(stored, kept) else at
    for key, one, other in pairs:
        if (lost := _lost(one, other, (*at, key))) is not None:
            return lost
    return None
