"""Differences between the live typed object and the plain truth: changes made outside `edit`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from perdure.core.types.nodes import AnyNode, ListNode, Node, TupleNode, Walker
from perdure.core.types.objects import ObjectNode, is_default, part_of, same_order
from perdure.core.types.private_attributes import as_good
from perdure.core.values.plain_values import SCALARS, Path, Plain, format_path, mark, same
from perdure.errors import PerdureError
from perdure.missing import MISSING
from perdure.public_data import PublicData

CHANGED = "changed in memory only"
NOT_LOGGED = "in memory only"
GONE = "missing in memory"
REORDERED = "its keys differ, or their order does, in memory only"
STRAY = "not in the schema: a rehydration would not bring it back"
PRIVATE = "a private attribute: a rehydration would bring back its default"


class Drift(PublicData, Struct, frozen=True):
    """One path where memory and log differ.

    Attributes:
        path: e.g. ``state.messages[3].content``.
        in_memory: the live value there, perhaps `MISSING`; of a dict that only differs in the order
            of its keys, these.
        in_log: the same of the plain value there.
        reason: in words.
    """

    path: str
    in_memory: Any
    in_log: Any
    reason: str


def drift_of(
    node: Node, typed: Any, plain: Plain, at: Path = (), *, deep: bool = True, root: str = "state"
) -> list[Drift]:
    """Every difference that a rehydration would drop. What a class itself makes of the plain data
    comes back, though it is not in the log: a field that a newer version adds and fills in."""
    found = list(compare(node, typed, plain, at, deep=deep, root=root))
    if not found:
        return found
    fresh = node.build(plain, at, root)
    made = {one.path: one.in_memory for one in compare(node, fresh, plain, at, root=root)}
    return [
        one for one in found if one.path not in made or not as_good(one.in_memory, made[one.path])
    ]


def compare(
    node: Node, typed: Any, plain: Plain, at: Path = (), *, deep: bool = True, root: str = "state"
) -> Iterator[Drift]:
    """Yields every difference, path by path. `deep`: also what storing would leave out."""

    def drift(path: Path, memory: Any, log: Any, reason: str) -> Drift:
        return Drift(format_path(path, root), memory, log, reason)

    node = node.pick_typed(typed)
    if isinstance(node, ObjectNode) and type(plain) is dict and type(typed) is node.face.type:
        for name, memory, log, reason in _object(node, typed, plain, at, deep):
            if reason:
                yield drift((*at, name), memory, log, reason)
            elif memory is not log or type(log) not in SCALARS:  # texts are mostly shared
                child = node.child(name)
                assert child is not None
                yield from compare(child, memory, log, (*at, name), deep=deep, root=root)
        if node.face.is_dict:
            ours, theirs = ([key for key in one if key in node.fields] for one in (typed, plain))
            if ours != theirs and {*ours} == {*theirs}:
                yield drift(at, ours, theirs, REORDERED)
        return
    if isinstance(node, AnyNode) and same(typed, plain) and same_order(node, typed, plain):
        return
    if type(typed) is list and type(plain) is list:
        item = part_of(node, 0)
        for index in range(max(len(typed), len(plain))):
            memory = typed[index] if index < len(typed) else MISSING
            log = plain[index] if index < len(plain) else MISSING
            yield from _item(item, memory, log, (*at, index), deep, root)
        return
    if type(typed) is dict and type(plain) is dict:
        yield from _dict(node, typed, plain, at, deep, root)
        return
    try:
        taken = node.plain(typed, at, Walker(root=root))
    except PerdureError as error:
        yield drift(at, typed, plain, error.problem)
    else:
        if same(taken, plain):
            return
        if not _in_parts(node, typed, plain):
            yield drift(at, typed, plain, CHANGED)
            return
        for index, (memory, log) in enumerate(zip(typed, plain, strict=True)):
            yield from _item(part_of(node, index), memory, log, (*at, index), deep, root)


def _in_parts(node: Node, typed: Any, plain: Plain) -> bool:
    """True if both are tuples of as many items, of which the type says what they are."""
    if not isinstance(typed, tuple) or type(plain) is not tuple or len(typed) != len(plain):
        return False
    return isinstance(node, TupleNode | ListNode)


def _item(node: Node, memory: Any, log: Any, at: Path, deep: bool, root: str) -> Iterator[Drift]:
    if log is MISSING:
        yield Drift(format_path(at, root), memory, log, NOT_LOGGED)
    elif memory is MISSING:
        yield Drift(format_path(at, root), memory, log, GONE)
    else:
        yield from compare(node, memory, log, at, deep=deep, root=root)


def _dict(
    node: Node, typed: dict[Any, Any], plain: dict[Any, Any], at: Path, deep: bool, root: str
) -> Iterator[Drift]:
    met: dict[Any, None] = {}
    make_key = getattr(node, "plain_key", None)
    for key, memory in typed.items():
        try:
            plain_key = key if make_key is None else make_key(key, at, Walker(root=root))
        except PerdureError as error:
            yield Drift(format_path((*at, key), root), memory, MISSING, error.problem)
            continue
        met[plain_key] = None
        log = plain.get(plain_key, MISSING)
        yield from _item(part_of(node, key), memory, log, (*at, plain_key), deep, root)
    for key, log in plain.items():
        if key not in met:
            yield Drift(format_path((*at, key), root), MISSING, log, GONE)
    if met.keys() == plain.keys() and [*map(mark, met)] != [*map(mark, plain)]:
        yield Drift(format_path(at, root), [*typed], [*plain], REORDERED)


def _object(
    node: ObjectNode, typed: Any, plain: dict[Any, Any], at: Path, deep: bool
) -> Iterator[tuple[str, Any, Any, str]]:
    """Yields (name, in memory, in log, why). An empty why means: look further down."""
    face = node.face
    for name, field in face.fields.items():
        memory = face.get(typed, name)
        log = plain.get(name, MISSING)
        if memory is MISSING:
            if log is not MISSING:
                yield name, memory, log, GONE
        elif log is not MISSING:
            yield name, memory, log, ""
        elif field.late:
            continue  # the class makes it, where nothing is stored
        elif field.default is None or (
            field.default_is_fixed and not _is_default(node, name, memory)
        ):
            yield name, memory, log, NOT_LOGGED
    extras = face.extras(typed)
    for name, memory in extras.items():
        log = plain.get(name, MISSING)
        yield name, memory, log, "" if log is not MISSING else NOT_LOGGED
    if face.keeps_extra:
        for name, log in plain.items():
            if name not in face.fields and name not in extras and name not in face.live:
                yield name, MISSING, log, GONE
    if deep:
        yield from _beside(node, typed)


def _beside(node: ObjectNode, typed: Any) -> Iterator[tuple[str, Any, Any, str]]:
    face = node.face
    for name, memory in face.strays(typed).items():
        yield name, memory, MISSING, STRAY
    for name, memory in face.private(typed).items():
        if name not in face.forgotten:
            yield name, memory, MISSING, PRIVATE


def _is_default(node: ObjectNode, name: str, memory: Any) -> bool:
    child = node.child(name)
    try:
        return child is not None and is_default(node, name, child.plain(memory, (), Walker()))
    except PerdureError:
        return False
