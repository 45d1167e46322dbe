"""Values of no declared type that are sent or shown: signals, answers, the data of questions."""

from __future__ import annotations

from typing import Any

from perdure.core.schema.schema import Schema
from perdure.core.schema.taken_values import take_untyped
from perdure.core.values.plain_values import Plain
from perdure.engine.journal.values import fitting
from perdure.errors import Unstorable


def take_any(value: Any, root: str) -> Plain:
    """Returns the plain data of a value that is sent; by its schema, if it has one.

    Raises:
        Unstorable: it is not plain data; names its path; or it is too large.
    """
    return fitting(_take_any(value, root), root)


def _take_any(value: Any, root: str) -> Plain:
    try:
        return take_untyped(value, root)
    except Unstorable:
        if isinstance(value, list | dict | tuple | set | frozenset):
            raise
        return Schema(type(value), id=root).take(value, (), aliases_refused=False)
