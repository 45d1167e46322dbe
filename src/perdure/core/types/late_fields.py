"""Fields of dataclasses that the constructor does not take (`init=False`), or takes and drops.

They are stored like other fields, and set on an instance that was made without them.
`__post_init__` computes some of them from the others; some hold later values (`derived_fields`).
"""

from __future__ import annotations

import dataclasses
from typing import Any

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


def equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except Exception as error:
        check_own(error, lambda: bool(a == b))
        return False
