"""The library that validates a type: as a whole, or in pieces where it would not read all of it as
it is meant."""

from __future__ import annotations

import sys
from collections import abc
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import partial
from typing import Any, get_args, get_origin

import msgspec

from perdure.core.types.annotations import Bare, unwrap
from perdure.core.types.classes import is_pydantic
from perdure.core.types.forms import is_union
from perdure.core.types.late_fields import made_in_parts
from perdure.core.types.parts import Parts, hints_of_tuple
from perdure.core.types.revisiting import Revisiting
from perdure.core.types.validation import Engine, MsgspecEngine, PydanticEngine
from perdure.core.values.plain_values import SCALARS
from perdure.system.user_errors import check_own

_EITHER = (abc.Sequence, abc.Set)


def engine_for(annotation: Any, found: Parts) -> Engine:
    """Returns pydantic's engine for types that mention pydantic, msgspec's for the rest."""
    engine: Engine
    bares, faces = found.annotations, found.faces.values()
    if any(map(is_of_pydantic, bares)):
        dicts = any(one.is_dict for one in faces)
        unions = any(map(_is_of_several_objects, bares))
        engine = Revisiting(dicts, unions) if dicts or unions else PydanticEngine()
        # Pydantic knows nothing of Structs, and drops what no constructor takes.
        apart = any(is_struct(one) or has_late_fields(one) for one in bares)
        engine.piecewise = apart or _pydantic_misreads(found)
    else:
        engine = MsgspecEngine()
        apart = any(has_late_fields(one) or keeps_either(one) for one in bares)
        engine.piecewise = apart or _msgspec_misreads(found) or not engine.supports(annotation)
    return engine


def _pydantic_misreads(found: Parts) -> bool:
    """True if pydantic may take a type variable for something else than it stands for: one of a
    base for anything, say, where the class is not its own."""
    classes = (one for one in found.faces.values() if not hasattr(one.cls, "model_fields"))
    arguments = [*(one.arguments for one in classes), *(one for _, one in found.tuples)]
    return any(one.exist for one in arguments) or any(one.beyond for one in found.annotations)


def _msgspec_misreads(found: Parts) -> bool:
    """True if msgspec would; it is asked what it sees in each generic class."""
    if any(one.misread for one in found.annotations):
        return True
    classes = (one for one in found.faces.values() if one.arguments.exist)
    tuples = (kind for kind, one in found.tuples if one.exist)
    hints = [*((one.annotation, one.hints()) for one in classes)]
    hints += [(kind, hints_of_tuple(kind)) for kind in tuples]
    return not all(_sees(kind, own) for kind, own in hints)


def _sees(annotation: Any, hints: Mapping[str, Any]) -> bool:
    """True if msgspec is known to see just these annotations in a class."""
    ask = getattr(sys.modules.get("msgspec._utils"), "get_class_annotations", None)
    if ask is None:
        return False
    try:
        seen = ask(annotation)
    except Exception as error:  # it does not know such a class
        check_own(error, partial(ask, annotation))
        return False
    return all(name in seen and seen[name] == hint for name, hint in hints.items())


def is_of_pydantic(bare: Bare) -> bool:
    """True if only pydantic can validate it."""
    if any(type(mark).__module__.startswith("pydantic") for mark in bare.metadata):
        return True
    origin = get_origin(bare.type) or bare.type
    return isinstance(origin, type) and (
        is_pydantic(origin)
        or hasattr(origin, "__get_pydantic_core_schema__")
        or origin.__module__.startswith("pydantic")
    )


def is_struct(bare: Bare) -> bool:
    origin = get_origin(bare.type) or bare.type
    return isinstance(origin, type) and issubclass(origin, msgspec.Struct)


def has_late_fields(bare: Bare) -> bool:
    """True if it is a standard dataclass that no library restores as it was; see `Field.late`."""
    origin = get_origin(bare.type) or bare.type
    if not isinstance(origin, type) or is_pydantic(origin) or not is_dataclass(origin):
        return False
    return made_in_parts(origin)


def keeps_either(bare: Bare) -> bool:
    """True if values of several kinds are kept as they are there; msgspec turns them into one
    kind."""
    return get_origin(bare.type) in _EITHER or bare.type in _EITHER


def _is_of_several_objects(bare: Bare) -> bool:
    """True if it may be a union of several classes."""
    members = [unwrap(one).type for one in get_args(bare.type)] if is_union(bare.type) else []
    return sum(one not in SCALARS for one in members) > 1
