"""Parts of an object that are no data, such as a lock or a client: its class makes them.

LangGraph's own savers store `model_dump()`, which has no excluded fields and no private attributes,
and the fields of dataclasses, and read them with the constructor. Here the rest is stored as long
as it is data. Of an object whose lock is left out, the constructor runs when it is read, and gives
the lock and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from perdure.core.values.plain_values import Plain
from perdure.errors import Unstorable

ANEW = "@anew"
"""The key of the names that were left out."""

SLOTS = tuple(
    BaseModel.__dict__[name]
    for name in (
        "__dict__",
        "__pydantic_fields_set__",
        "__pydantic_extra__",
        "__pydantic_private__",
    )
)
"""Of any model: a `RootModel` hides some of them, and would have them among its fields."""


class NoDataError(Unstorable):
    """No class that is registered could make it data."""


class LiveParts:
    """Which parts of one class may be left out: what is stored beside its fields, under the key
    `beside`, and excluded fields."""

    def __init__(
        self,
        fields: Mapping[str, FieldInfo],
        private: Mapping[str, Any],
        *,
        beside: str = "@private",
    ) -> None:
        self._beside = beside
        self._names = {name for name, item in fields.items() if item.exclude}.union(private)
        self._made: set[str] = set()  # those that the class is known to make

    def encode_others(
        self,
        fields: dict[str, Any],
        refusal: NoDataError,
        encode: Callable[[Any, str], Plain],
        build: Callable[[dict[str, Plain]], Any],
    ) -> dict[str, Plain]:
        """Returns the fields, encoded, without the parts that are no data.

        Raises:
            NoDataError: `refusal`, if there are no such parts.
            Unstorable: another field cannot be stored, or a part that the class does not make.
        """
        beside = fields.get(self._beside, {})
        left = {
            name
            for name, item in {**fields, **beside}.items()
            if (name in self._names or name in beside) and _is_no_data(item, name, encode)
        }
        if not left:
            raise refusal

        def others() -> dict[str, Plain]:
            kept = {name: item for name, item in beside.items() if name not in left}
            rest = {**fields, self._beside: kept, ANEW: sorted(left)}
            return {name: encode(item, name) for name, item in rest.items() if name not in left}

        found = others()
        if not self._made.issuperset(left):
            with suppress(ValueError):  # it cannot be made at all
                made = build(found)
                private = getattr(made, "__pydantic_private__", None) or ()
                self._made |= {name for name in left if name in private or hasattr(made, name)}
            left &= self._made
            return others()
        return found


def make_anew(
    made: BaseModel, fields: dict[str, Any], private: dict[str, Any], names: Collection[str]
) -> Exception | None:
    """Adds the private attributes to a model that has its fields, and the parts with these names,
    as its constructor makes them, or, where that refuses the fields, its `model_post_init`. Returns
    the error where that fails, too: then it has none of these parts."""
    own, given, extra = (slot.__get__(made) for slot in SLOTS[:3])
    cls = type(made)
    aliases = {name: item.validation_alias for name, item in cls.model_fields.items()}
    named = {name: alias for name, alias in aliases.items() if isinstance(alias, str)}
    problem: Exception | None = None
    try:
        cls.__init__(made, **{named.get(name, name): item for name, item in fields.items()})
    except Exception:
        _set(made, dict(own), set(given), extra, None)
        try:
            made.model_post_init(None)
        except Exception as error:
            problem = error
    fresh = {} if problem else vars(made) | (made.__pydantic_private__ or {})
    for name in fresh.keys() & names:
        (private if name in cls.__private_attributes__ else own)[name] = fresh[name]
    _set(made, own, given, extra, None)
    set_private(made, private if cls.__private_attributes__ else None)
    return problem


def set_private(made: BaseModel, private: dict[str, Any] | None) -> None:
    """Sets the private attributes of a model: those of a `RootModel` are in its `__dict__`."""
    if private:
        object.__setattr__(made, "__pydantic_private__", private)
    else:
        SLOTS[3].__set__(made, private)


def _set(made: BaseModel, *values: Any) -> None:
    for slot, value in zip(SLOTS, values, strict=True):
        slot.__set__(made, value)


def _is_no_data(item: Any, name: str, encode: Callable[[Any, str], Plain]) -> bool:
    try:
        encode(item, name)
    except NoDataError:
        return True
    except Unstorable:
        return False
    return False
