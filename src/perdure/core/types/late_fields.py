"""Fields of dataclasses that the constructor does not take (`init=False`), or takes and drops.

They are stored like other fields, and set on an instance that was made without them.
`__post_init__` computes some of them from the others; some hold later values. An edit recomputes
the first kind, and must not reset the second.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from perdure.missing import MISSING
from perdure.system.user_errors import check_own


def init_only(cls: Any) -> dict[str, Any]:
    """Returns the arguments that the constructor of a dataclass takes and no field keeps."""
    fields = getattr(cls, "__dataclass_fields__", {})
    kind = getattr(dataclasses, "_FIELD_INITVAR", None)
    return {name: one for name, one in fields.items() if one._field_type is kind}


def made_in_parts(cls: Any) -> bool:
    """True if a dataclass has parts that validators of libraries do not restore: fields that its
    constructor does not take, or arguments that no field keeps."""
    own = dataclasses.fields(cls)
    return bool(init_only(cls)) or any(not one.init for one in own)


def kept(face: Any, value: Any, clone: Any, changed: list[str]) -> dict[str, Any]:
    """Returns the late fields that keep their values when the class's own validation runs on a
    clone.

    Args:
        value: the instance before the edit; `clone`: with the changes.
        changed: the fields that the edit changes.
    """
    derived = made_of_others(face, value)
    found = {
        name: face.get(clone, name) for name in face.late if name in changed or name not in derived
    }
    return {name: item for name, item in found.items() if item is not MISSING}


def made_of_others(face: Any, value: Any) -> set[str]:
    """Returns the late fields that hold what the class makes of the other fields of an instance."""
    again = _made_anew(face, value)
    if again is None:
        return set()
    return {name for name in face.late if equal(face.get(again, name), face.get(value, name))}


def made_anew(face: Any, value: Any, names: Iterable[str]) -> dict[str, Any]:
    """Returns what the class makes of other fields of an instance, for those late ones; nothing
    where it refuses the instance."""
    again = _made_anew(face, value)
    found = {name: face.get(again, name) for name in names} if again is not None else {}
    return {name: item for name, item in found.items() if item is not MISSING}


def _made_anew(face: Any, value: Any) -> Any:
    if not face.late or not face.checks_whole:
        return None
    try:
        return face.check(face.clone(value), [])
    except Exception as error:  # nobody knows what it would make of them
        check_own(error, lambda: face.check(face.clone(value), []))
        return None


def equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except Exception as error:
        check_own(error, lambda: bool(a == b))
        return False
