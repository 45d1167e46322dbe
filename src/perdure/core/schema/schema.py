"""State schemas: the type of a state, its version, and its rules."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar, overload

from perdure.core.arguments.checks import flag, iterable
from perdure.core.live.append_plan import TypedPlan, appended
from perdure.core.live.drift import Drift, drift_of
from perdure.core.live.ephemeral import changed_items
from perdure.core.live.typed import Planner
from perdure.core.schema.downgrades import check_downgrades, check_writes
from perdure.core.schema.invariants import Invariant, check_made, invariant, transitions
from perdure.core.schema.json_documents import Document
from perdure.core.schema.refusals import not_minor, of_stored
from perdure.core.schema.schema_arguments import (
    check_id,
    check_migrations,
    check_type,
    whole_version,
)
from perdure.core.schema.taken_values import take_at
from perdure.core.types.annotations import Ephemeral, EphemeralMark
from perdure.core.types.json_schemas import json_schema_of
from perdure.core.types.moved_objects import is_of_a_move
from perdure.core.types.nodes import AnyNode, Node, isolate
from perdure.core.types.normal_form import completed, longer_named_tuples, normalised
from perdure.core.types.objects import UNKNOWN_KEYS, in_stored_order
from perdure.core.types.read_values import read
from perdure.core.types.refused_in_states import refuse_in_states
from perdure.core.types.registry import Registry
from perdure.core.types.renamed_fields import first_renamed
from perdure.core.types.unions import UnionNode
from perdure.core.types.unknown_fields import keep_unknown, unknown
from perdure.core.values.ops import Append, Op
from perdure.core.values.plain_values import Path, Plain, format_path
from perdure.errors import PerdureError, SchemaError, UnknownZone
from perdure.missing import MISSING
from perdure.system.cached import cached

__all__ = [
    "ROOT",
    "Drift",
    "Ephemeral",
    "EphemeralMark",
    "Schema",
    "TypedPlan",
    "invariant",
    "transitions",
]

T = TypeVar("T")

Migration = Callable[[dict[str, Any]], dict[str, Any]]

ROOT: Any = object()
"""Stands for the schema's own type where an annotation is asked for."""


class Schema(Generic[T]):
    """The type of a state, its version, its migrations and its invariants.

    Args:
        type: a pydantic model or dataclass, a dataclass, a TypedDict, a msgspec Struct, or a
            container of such; ``dict`` for a state without a type.
        id: names the schema in the log; the class's name by default.
        version: major and minor, or the major alone. A new minor version only adds fields that
            have defaults; anything else is a new major version and needs a migration.
        migrations: ``{1: fn}`` turns plain states of major version 1 into those of 2.
        downgrades: ``{2: fn}`` turns plain states of major version 2 back into those of 1, for
            `writes`.
        writes: the version before, ``1`` or ``(1, 3)``, while its programs run beside this one: an
            agent that it wrote, or a new one, stays of that version. A write costs O(state) then,
            and is refused if its state would not come back as it was.
        invariants: functions ``(after)`` or ``(before, after)`` that return False or raise to
            refuse a commit; see `invariant` and `transitions`.

    Raises:
        TypeError, ValueError: an argument is invalid; nothing is written under such a schema.
    """

    document: Document | None = None
    """The JSON Schema document that declares the state, if one does."""

    @overload
    def __init__(
        self,
        type: type[T],
        *,
        id: str | None = None,
        version: int | tuple[int, int] = (1, 0),
        migrations: Mapping[int, Migration] = {},
        downgrades: Mapping[int, Migration] = {},
        writes: int | tuple[int, int] | None = None,
        invariants: Sequence[Callable[..., Any]] = (),
    ) -> None: ...

    @overload
    def __init__(
        self: Schema[Any],
        type: Any = dict,
        *,
        id: str | None = None,
        version: int | tuple[int, int] = (1, 0),
        migrations: Mapping[int, Migration] = {},
        downgrades: Mapping[int, Migration] = {},
        writes: int | tuple[int, int] | None = None,
        invariants: Sequence[Callable[..., Any]] = (),
    ) -> None: ...

    def __init__(
        self,
        type: Any = dict,
        *,
        id: str | None = None,
        version: int | tuple[int, int] = (1, 0),
        migrations: Mapping[int, Migration] = {},
        downgrades: Mapping[int, Migration] = {},
        writes: int | tuple[int, int] | None = None,
        invariants: Sequence[Callable[..., Any]] = (),
    ) -> None:
        check_type(type)
        self.type = type
        self.id = check_id(id) if id is not None else _name(type)
        self.version = whole_version(version)
        self.migrations = check_migrations(migrations)
        self.downgrades = check_downgrades(downgrades)
        self.writes = check_writes(writes, self.version, self.migrations, self.downgrades)
        self.invariants = [Invariant(one) for one in iterable(invariants, "invariants")]

    @staticmethod
    def from_json_schema(
        document: dict[str, Any],
        *,
        id: str,
        version: int | tuple[int, int] = (1, 0),
        migrations: Mapping[int, Migration] = {},
        downgrades: Mapping[int, Migration] = {},
        writes: int | tuple[int, int] | None = None,
        invariants: Sequence[Callable[..., Any]] = (),
    ) -> Schema[Any]:
        """Returns the schema of states that a JSON Schema document declares: dicts (lists, if the
        document's `type` is "array") of what JSON has.

        The `jsonschema` library checks each whole state: as the agent is created, at each write,
        and as it is read. A write costs O(state) so.

        Args:
            document: the JSON Schema, of the dialect that its `$schema` names, else of 2020-12. Its
                references lead to places in it; nothing is fetched. `format` is an annotation.
            id, version, migrations, downgrades, writes, invariants: as of `Schema`. Any change of
                the document that refuses what it allowed is a new major version.

        Raises:
            TypeError, ValueError: an argument is invalid. SchemaError: the document is no valid
                JSON Schema, or refers to what it has not. ImportError: the library is missing; says
                how to install it.
        """
        declared = Document(document)
        made: Schema[Any] = Schema(
            declared.type,
            id=id,
            version=version,
            migrations=migrations,
            downgrades=downgrades,
            writes=writes,
            invariants=invariants,
        )
        made.document = declared
        return made

    def json_schema(self, *, exact: bool = True) -> dict[str, Any]:
        """Returns the JSON Schema (2020-12) of the states' JSON form, as a dict: of what is stored,
        so a field that has a default may be missing, and one of a newer program may be there. The
        document itself where one declares the state.

        Args:
            exact: of what `perdure state` writes, with ``{"$decimal": "1.10"}`` for what JSON
                lacks. False: of the form with texts, lists and null for that.

        Raises:
            TypeError: `exact` is not a bool. SchemaError: states may not be of the type.
        """
        flag(exact, "exact=")
        if self.document is not None:
            return self.document.content
        _ = self.is_declared
        return json_schema_of(self.root, self.id, exact=exact)

    @staticmethod
    def of(spec: Any) -> Schema[Any]:
        """Returns the schema that a caller means: a schema as it is, a type's, or that of a dict
        for None."""
        if isinstance(spec, Schema):
            return spec
        return Schema(dict, id="dict") if spec is None else Schema(spec)

    def __repr__(self) -> str:
        return f"Schema({self.id!r}, version={self.version})"

    @cached
    def registry(self) -> Registry:
        """The nodes of the type. Made when first used, so that forward references can be
        resolved."""
        return Registry(self.type)

    @cached
    def root(self) -> Node:
        root = self.registry.root
        for one in self.invariants:
            one.check_places(root)
        return root

    def empty(self) -> Any:
        """Returns what the type makes without values. Raises what it raises if it needs some."""
        return {} if self.type is dict else self.type()

    @cached
    def is_declared(self) -> bool:
        """True: states may be of the type.

        Raises:
            SchemaError: they may not; it says what to declare instead.
        """
        _ = self.root
        self.registry.make_all()
        refuse_in_states(self.registry.annotations)
        return True

    def take(
        self, value: Any, path: Path = (), annotation: Any = ROOT, *, aliases_refused: bool
    ) -> Plain:
        """Returns a user's value as a fresh plain tree, in the form in which it will come back
        (I12).

        Args:
            value: typed or plain; a dict passes where an object belongs.
            path: where it will stand.
            annotation: the type of that place (or its node); by default looked up by the path.
            aliases_refused: True refuses a container that stands in it twice.

        Raises:
            SchemaError: it does not fit the type. Unstorable: it would not come back as it is.
            SharedValue: a container at two places, or a part of the state itself.
        """
        if annotation is ROOT:
            annotation = self.node_at(path)
        node = annotation if isinstance(annotation, Node) else self.registry.node(annotation, None)
        plain = take_at(node, value, path, {} if aliases_refused else None)
        if self.document is not None and not path and node is self.root:
            self.document.check(plain)
        return plain

    def node_at(self, path: Path) -> Node:
        """Returns the node of a path, as far as the types alone determine it.

        Raises:
            SchemaError: the type has no such place.
        """
        node = self.root
        for depth, key in enumerate(path):
            options = node.options if isinstance(node, UnionNode) else [node]
            found = [child for one in options if (child := one.child(key)) is not None]
            if not found:
                raise SchemaError("there is no such field", target=format_path(path[: depth + 1]))
            node = found[0]
        return node

    def build(self, plain: Plain, *, tolerate_unknown: bool = True) -> T:
        """Returns the whole typed value, validated; it shares nothing with `plain`.

        Args:
            tolerate_unknown: ignore fields that the class does not know (a newer minor version
                wrote them), even where the class forbids them.

        Raises:
            SchemaError: it does not fit; names each path.
        """
        root = self.root
        if self.type is dict and type(plain) is not dict:
            raise SchemaError(f"the state is a {type(plain).__name__}, not a dict", target="state")
        if not tolerate_unknown:
            found = next(unknown(root, plain), None)
            if found is not None:
                raise SchemaError("there is no such field", target=format_path(found))
        if self.document is not None:
            self.document.check(plain)
        built: T = root.build(plain)
        return built

    def read(self, plain: Plain) -> T:
        """As `build`, for a value that is in no state: stored again, it keeps what a newer program
        stored in it."""
        return read(self.build, self.root, plain)

    def build_stored(self, plain: Plain, agent: str, seq: int, version: tuple[int, int]) -> T:
        """Returns the typed value of a state that is in the log, under that version; see `build`.
        Where the type does not accept it, or fields seem to be renamed, the error names the commit:
        the log is healthy, and the remedy is in the program, or in the newer one that wrote it."""
        before = UNKNOWN_KEYS.met
        try:
            built = self.build(plain)
        except SchemaError as error:
            raise of_stored(self, error, agent, seq, whole_version(version)) from error
        if UNKNOWN_KEYS.met is not before:
            self.refuse_renamed(plain, agent, seq, version)
        return built

    def refuse_renamed(self, plain: Plain, agent: str, seq: int, version: tuple[int, int]) -> None:
        """Refuses a state, in this program's form, in which fields seem to be renamed. O(state).

        Args:
            seq: of the commit that it is of; 0 if it is in no commit yet.
            version: the one that the state is stored under. Of what a newer program stored, this
                one need not know all fields.

        Raises:
            SchemaError: names the first object, its fields, and both ways out.
        """
        found = None if version > self.version else first_renamed(self.root, plain)
        if found is None:
            return
        major = self.version[0]
        if version[0] < major:
            hint = f"let the migration rename it: {found.declared(major)}"
        else:
            names = ", ".join(map(repr, found.stored))
            line = found.declared(major + 1)
            hint = f"call the field {names} again, or rename it by a new major version: {line}"
        error = SchemaError(found.problem, target=format_path(found.path), hint=hint)
        raise of_stored(self, error, agent, seq, version)

    def migrate(self, plain: Plain, stored: tuple[int, int]) -> Plain:
        """Returns the state in the form of this program's major version; `plain` is not changed.

        Raises:
            SchemaError: a newer program wrote it, a migration is missing, or one failed.
        """
        major = stored[0]
        if major > self.version[0]:
            raise SchemaError(
                f"version {stored[0]}.{stored[1]} was written by a newer program; "
                f"this one has {self.version[0]}.{self.version[1]}",
                target=f"schema {self.id!r}",
                hint="deploy the newer program here, too",
            )
        for step in range(major, self.version[0]):
            function = self.migrations.get(step)
            if function is None:
                raise SchemaError(
                    f"no migration from major version {step} to {step + 1}",
                    target=f"schema {self.id!r}",
                    hint=f"Schema(…, migrations={{{step}: fn}})",
                )
            try:
                plain = take_at(self.registry.any, function(isolate(plain)), ())
            except (UnknownZone, MemoryError):
                raise
            except Exception as error:
                raise SchemaError(
                    f"the migration from major version {step} failed: {error}",
                    target=f"schema {self.id!r}",
                ) from error
        return plain

    @cached
    def keeps_live(self) -> bool:
        """True if a class of it has fields, or private attributes, that live in memory only."""
        return any(face.live or face.forgotten for face in self.registry.faces.values())

    @cached
    def fills_unions(self) -> bool:
        """True if what `complete` fills in may be of one class of a union, and stay where another
        program puts fields of another one."""
        return self.registry.fills_in and self.registry.has_unions

    def complete(self, plain: Plain, version: tuple[int, int] = (0, 0)) -> Plain:
        """`plain`, with the fields that it lacks and that may be others each time, by defaults or
        code: until a write stores them, they follow from nothing. The same where it lacks none, or
        does not fit. `version`: the one that it is stored under, if any."""
        try:
            if not self.registry.fills_in:
                return plain
            return completed(self.root, plain, by_newer=version > self.version)
        except PerdureError:
            return plain

    def normal(self, plain: Plain, version: tuple[int, int]) -> Plain:
        """Returns `plain` as this program's types store it: what they make of it as they read it is
        there. The same if it is so, does not fit, or is changed by each look. Costs O(state).

        Raises:
            SchemaError: programs of that version, under which it is stored, could not read it any
                more, and this version is only a further minor one; or a hook puts objects
                elsewhere, and what a newer program stored in one of them would be lost.
        """
        if isinstance(self.root, AnyNode) or self.root.stable(plain):
            return plain
        try:
            normal = normalised(self.root, plain, (), "state")[1]
        except PerdureError as error:
            if is_of_a_move(error):
                raise  # a value that is saved over it would lose that, without a word
            return plain
        if normal is not plain and version < self.version and version[0] == self.version[0]:
            found = next(longer_named_tuples(self.root, plain, normal), None)
            if found is not None:
                raise not_minor(self, *found, version)
        return normal

    def plan(
        self,
        typed: T,
        plain: Plain,
        ops: list[Op],
        inverses: list[Op],
        *,
        root_name: str = "state",
        by_place: bool = False,
    ) -> TypedPlan:
        """Checks what ops touch, and prepares the same change of the live typed object.

        Where validation normalises a value, `ops`, `inverses` and `plain` are brought in step; a
        field that a validator of the class computes gets an op of its own at the end.

        Args:
            typed: the live object, as before the ops; left unchanged until `TypedPlan.apply`.
            plain: the plain tree, with all ops applied.
            inverses: of each op, computed before it (`ops.invert`).
            by_place: the ops come of a comparison, item by item: one that is changed inside may be
                another object, and its Ephemeral fields get their defaults.

        Raises:
            SchemaError: the new state does not fit, with its path.
            Drifted: the live object was changed outside `edit` at a touched path.
        """
        if self.document is not None:
            self.document.check(plain, root_name)
        if len(ops) == 1 and type(ops[0]) is Append and not by_place:
            simple = appended(self.root, typed, plain, ops[0], root_name)
            if simple is not None:
                return simple
        plan = Planner(self.root, typed, plain, ops, inverses, root_name).run()
        if by_place:
            plan.unsure, plan.node = changed_items(plain, ops), self.root
        return plan

    def check_invariants(self, before: Any, after: Any, touched: Sequence[Path]) -> None:
        """Runs the invariants that concern the touched paths.

        Args:
            before: the state that was; None at creation, MISSING where it does not fit the type:
                invariants get None then.
            after: the state to be; a draft or a view will do, because it is only read.

        Raises:
            SchemaError: one does not hold; names it.
        """
        for one in self.invariants:
            if one.concerns(touched):
                one.check(None if before is MISSING else before, after)

    def check_migrated(
        self, stored: Plain, before: Any, after: Any, touched: Sequence[Path]
    ) -> None:
        """Runs the invariants on what a migration, or the types, make of a stored state; see
        `check_made`."""
        check_made(self.invariants, stored, before, after, touched)

    def drift(self, typed: T, plain: Plain) -> list[Drift]:
        """Returns every difference between the live object and the plain truth. Costs O(state)."""
        return drift_of(self.root, typed, plain)

    def merge_unknown(self, old_plain: Plain, new_plain: Plain) -> Plain:
        """Returns `new_plain`, with the keys of `old_plain` that the classes at their places do not
        know.

        For whole values that this program saves over what a newer one wrote; see `keep_unknown`.
        The fields of objects come in the order in which they are stored.

        Raises:
            SchemaError: items of a list cannot be matched.
        """
        merged = keep_unknown(self.root, old_plain, new_plain)
        return in_stored_order(self.root, old_plain, merged)


def _name(type_: Any) -> str:
    name = getattr(type_, "__name__", None)
    plain = typing.get_origin(type_) is None and isinstance(name, str)
    return name if plain and name is not None else str(type_)
