"""The face of a class: which family it is of, and what keeps its instances out of any state."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, get_origin

import msgspec

from perdure.core.types.classes import (
    DataclassFace,
    Face,
    PydanticFace,
    StructFace,
    TypedDictFace,
    is_pydantic,
)
from perdure.core.types.slots import content_of
from perdure.errors import PerdureError, SchemaError
from perdure.system.user_errors import check_own


def face_of(annotation: Any) -> Face | None:
    """Returns the face of an annotation that names a class with fields; None for any other.

    Raises:
        SchemaError: instances of that class cannot be stored completely; or Python, or the library
            of the class, cannot tell what its fields are.
    """
    try:
        face = _face_of(annotation)
    except (PerdureError, RecursionError):
        raise
    except Exception as error:  # whatever a library raises of a class that it does not understand
        check_own(error, partial(_face_of, annotation))
        name = getattr(get_origin(annotation) or annotation, "__qualname__", str(annotation))
        problem = next(iter(str(error).splitlines()), "")
        raise SchemaError(
            f"the fields of {name} are not known: {type(error).__name__}: {problem}",
            target=name,
            hint="declare them with types that its library knows, or mark them perdure.Ephemeral",
        ) from error
    if face is not None and not face.is_dict and not isinstance(face, StructFace):
        base = content_of(face.cls)
        if base is not None:
            raise SchemaError(
                f"a {face.name} is also a {base.__name__}, whose content no field shows",
                target=face.name,
                hint=f"declare a field for the {base.__name__}",
            )
    return face


def _face_of(annotation: Any) -> Face | None:
    cls = get_origin(annotation) or annotation
    if not isinstance(cls, type):
        return None
    if is_pydantic(annotation) or is_pydantic(cls):
        return PydanticFace(annotation)
    if issubclass(cls, dict) and hasattr(cls, "__required_keys__"):  # typing_extensions' too
        return TypedDictFace(annotation)
    if issubclass(cls, msgspec.Struct):
        return StructFace(annotation)
    if dataclasses.is_dataclass(cls):
        return DataclassFace(annotation)
    return None
