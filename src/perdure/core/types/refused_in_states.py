"""Types that no state may declare, though values of them can be made and looked at."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_origin

from perdure.core.types.annotations import Bare
from perdure.errors import SchemaError

SECRETS = frozenset({"Secret", "SecretStr", "SecretBytes"})


def refuse_in_states(annotations: Iterable[Bare]) -> None:
    """Refuses a type, also deep inside of a state's, whose values would not come back, or should
    not be in a log.

    Args:
        annotations: all that the state's type is made of; see `Registry`.

    Raises:
        SchemaError: says what to declare instead.
    """
    for bare in annotations:
        _refuse(bare)


def _refuse(bare: Bare) -> None:
    origin = get_origin(bare.type) or bare.type
    name = getattr(origin, "__name__", "")
    if name in SECRETS and _is_pydantics(origin):
        raise SchemaError(
            f"a {name} hides its value, and a log would keep it in the clear",
            target=name,
            hint="store the name under which the secret is found elsewhere, or mark the field "
            "perdure.Ephemeral",
        )
    marks = [type(mark).__name__ for mark in bare.metadata if _is_pydantics(type(mark))]
    if (name == "Json" and _is_pydantics(origin)) or "Json" in marks or _is_json(bare):
        raise SchemaError(
            "Json[…] reads a text, and what it makes of that is none: it could not be read again",
            target="Json",
            hint="declare the type inside it, and parse the text before it comes in, as a "
            "validator with mode='before' does",
        )


def _is_json(bare: Bare) -> bool:
    """True for the bare class as a mark: pydantic takes both."""
    return any(isinstance(one, type) and one.__name__ == "Json" for one in bare.metadata)


def _is_pydantics(kind: Any) -> bool:
    return str(getattr(kind, "__module__", "")).startswith("pydantic")
