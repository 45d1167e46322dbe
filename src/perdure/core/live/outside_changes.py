"""Quick looks at a live object: may it have been changed outside `edit`?

They are made where nobody asked for them, so that they must cost next to nothing: what they suspect
is looked at in full by `drift`, and what they miss at the end of a run is in no field.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec

from perdure.core.live.drift import Drift, drift_of
from perdure.core.types.classes import is_pydantic
from perdure.core.types.nodes import Node
from perdure.core.types.objects import ObjectNode
from perdure.core.values.plain_values import SCALARS, Plain, same
from perdure.missing import MISSING

FIELDS_MAX = 64
"""A state with more fields, or keys, is only counted."""

_AS_THEY_ARE = (bytes, dt.datetime, dt.date, dt.time, dt.timedelta, Decimal, UUID)


def outside_changes(node: Node, typed: Any, plain: Plain, *, whole: bool) -> list[Drift] | None:
    """Returns the differences between a live object and the plain truth, in fields; None if a quick
    look sees none.

    Args:
        whole: looks at all of the state; else at its own fields. Costs O(state), or O(fields).
    """
    if not (_anywhere(typed, plain) if whole else _at_the_root(node, typed, plain)):
        return None
    return drift_of(node, typed, plain, deep=False)


def _at_the_root(node: Node, typed: Any, plain: Plain) -> bool:
    """True if a field of the state, or the number of items that it holds, seems to have been
    changed. Costs O(fields), whatever they hold."""
    if type(plain) is not dict:
        return _differ(typed, plain)
    few = plain.items() if len(plain) <= FIELDS_MAX else ()
    if type(typed) is dict:
        if len(typed) != len(plain):
            return True
        for name, log in few:
            memory = typed.get(name, MISSING)
            if memory is not log and _differ(memory, log):
                return True
    elif isinstance(node := node.pick_typed(typed), ObjectNode):
        get, fields = node.face.get, node.face.fields
        for name, log in few:
            memory = get(typed, name) if name in fields else log
            if memory is not log and _differ(memory, log):
                return True
    return False


def _differ(memory: Any, log: Any) -> bool:
    if type(log) in SCALARS:
        return not same(memory.value if isinstance(memory, Enum) else memory, log)
    return type(memory) is type(log) and len(memory) != len(log)


def _anywhere(typed: Any, plain: Plain) -> bool:
    """True if it cannot be said at once that nothing was changed. Costs O(state), in loops that run
    in C."""
    try:
        if is_pydantic(type(typed)) and hasattr(typed, "model_dump"):
            shown = typed.model_dump(warnings=False)
        else:
            shown = msgspec.to_builtins(typed, builtin_types=_AS_THEY_ARE)
        return bool(shown != plain)
    except Exception:  # what cannot be shown so is looked at place by place
        return True
