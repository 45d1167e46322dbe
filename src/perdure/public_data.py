"""Public data, as pydantic sees it: structs that it validates, dumps to JSON and describes, so that
a web framework can return them.

The fields are those of the struct, and times are datetimes: a field ``at_micros`` is shown as the
property ``at``. JSON lacks most kinds of values that a state may hold; what it lacks is written as
text and lists, by `as_json`, and stays so when it is read again.
"""

from __future__ import annotations

import base64
import math
import sys
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from enum import Enum
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from perdure.missing import MISSING

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler

MICROS = "_micros"
"""The end of the name of a field with a time, as the store's clock says it."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COMMIT_ID = b"\x01"
"""The first byte of the id of a commit whose hash is SHA-256."""
ID_BYTES = 33
SHA256 = "sha256:"


def to_micros(at: datetime) -> int:
    """Returns the microseconds since 1970 of an aware datetime."""
    return (at - EPOCH) // timedelta(microseconds=1)


def from_micros(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def id_text(commit_id: bytes) -> str:
    """Returns a commit id as people read it: the algorithm's name, then the digest in hex."""
    return f"{SHA256}{commit_id[1:].hex()}" if commit_id[:1] == COMMIT_ID else commit_id.hex()


class PublicData:
    """The base of what public calls return, where that is data; beside `Struct`."""

    __slots__ = ()

    kind_field: ClassVar[str] = ""
    """The name under which the class's own name is shown, where a field has one of several."""
    hidden_fields: ClassVar[frozenset[str]] = frozenset()
    """Fields for the library alone, all with defaults."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> Any:
        """Asked by pydantic, which is not imported otherwise."""
        core_schema = _schemas()
        hints = _shown_hints(cls)
        required = _required(cls)
        fields = {
            name: core_schema.typed_dict_field(
                handler.generate_schema(_with_json(hint)), required=name in required
            )
            for name, hint in hints.items()
        }
        shown = core_schema.typed_dict_schema(fields, cls_name=cls.__name__)
        given = core_schema.no_info_after_validator_function(lambda held: _made(cls, held), shown)
        kept = core_schema.union_schema(
            [core_schema.is_instance_schema(cls), given], mode="left_to_right"
        )
        return core_schema.json_or_python_schema(
            json_schema=given,
            python_schema=kept,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda data: _shown(data, hints), return_schema=shown
            ),
        )


def _schemas() -> Any:
    """Returns pydantic's makers of schemas: whoever asks for one has them."""
    return sys.modules["pydantic_core.core_schema"]


def _shown_hints(cls: Any) -> dict[str, Any]:
    """The types of what is shown of a class, by name."""
    own = get_type_hints(cls, include_extras=True)
    hints: dict[str, Any] = {}
    if cls.kind_field:
        hints[cls.kind_field] = Literal[cls.__name__]
    for name in cls.__struct_fields__:
        if name in cls.hidden_fields:
            continue
        if name.endswith(MICROS):
            name = name.removesuffix(MICROS)
            hints[name] = get_type_hints(getattr(cls, name).fget)["return"]
        else:
            hints[name] = own[name]
    return hints


def _required(cls: Any) -> set[str]:
    fields = cls.__struct_fields__
    return {
        name.removesuffix(MICROS) for name in fields[: len(fields) - len(cls.__struct_defaults__)]
    }


def _shown(data: PublicData, names: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: type(data).__name__ if name == data.kind_field else getattr(data, name)
        for name in names
    }


def _made(cls: Any, held: dict[str, Any]) -> Any:
    given: dict[str, Any] = {}
    for name, value in held.items():
        if name + MICROS in cls.__struct_fields__:
            given[name + MICROS] = 0 if value is None else to_micros(value)
        elif name != cls.kind_field:
            given[name] = value
    return cls(**given)


# -- values that JSON lacks ------------------------------------------------------------------------


def as_json(value: Any) -> Any:
    """Returns a plain value of what JSON has: text for times, numbers that are no floats and bytes
    (in base64), lists for tuples and sets, null for NaN, the infinities and what is missing."""
    kind = type(value)
    if kind is dict or isinstance(value, Mapping):
        return {key if type(key) is str else _key(key): as_json(one) for key, one in value.items()}
    if kind in (list, tuple):
        return [as_json(one) for one in value]
    if kind in (set, frozenset):
        return [as_json(one) for one in sorted(value, key=repr)]
    if kind is bytes:
        return base64.b64encode(value).decode()
    if kind is float:
        return value if math.isfinite(value) else None
    if kind is str:
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if kind in (bool, int):
        return value
    if isinstance(value, datetime | date | time):
        return _moment(value)
    if kind is timedelta:
        return value.total_seconds()
    if isinstance(value, Enum):
        return as_json(value.value)
    return None if value is None or value is MISSING else str(value)


def _key(key: Any) -> str:
    held = as_json(key)
    return held if type(held) is str else str(held)


def _moment(value: datetime | date | time) -> str:
    try:
        return value.isoformat()
    except Exception:  # of a zone that this machine lacks, only the clock on its wall is known
        return value.replace(tzinfo=None).isoformat()  # type: ignore[call-arg]


class _Plain:
    """Marks what may be any plain value."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        core_schema = _schemas()
        return core_schema.any_schema(
            serialization=core_schema.plain_serializer_function_ser_schema(
                as_json, when_used="json"
            )
        )


class _Aware:
    """Marks times: one without a zone names no moment."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        core_schema = _schemas()
        return core_schema.datetime_schema(tz_constraint="aware")


class _Bytes:
    """Marks bytes: ids of commits are shown as people read them, others in base64."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        core_schema = _schemas()
        text = core_schema.no_info_after_validator_function(_bytes_of, core_schema.str_schema())
        return core_schema.json_or_python_schema(
            json_schema=text,
            python_schema=core_schema.union_schema(
                [core_schema.bytes_schema(strict=True), text], mode="left_to_right"
            ),
            serialization=core_schema.plain_serializer_function_ser_schema(
                _bytes_text, return_schema=core_schema.str_schema(), when_used="json"
            ),
        )


def _bytes_text(held: bytes) -> str:
    if held[:1] == COMMIT_ID and len(held) == ID_BYTES:
        return id_text(held)
    return base64.b64encode(held).decode()


def _bytes_of(text: str) -> bytes:
    if text.startswith(SHA256):
        return COMMIT_ID + bytes.fromhex(text.removeprefix(SHA256))
    return base64.b64decode(text, validate=True)


def _with_json(hint: Any) -> Any:
    """Returns a type with a mark wherever JSON lacks what it may hold."""
    if hint is Any or (isinstance(hint, type) and issubclass(hint, BaseException)):
        return Annotated[Any, _Plain()]
    if hint is bytes:
        return Annotated[bytes, _Bytes()]
    if hint is datetime:
        return Annotated[datetime, _Aware()]
    origin, args = get_origin(hint), get_args(hint)
    if origin is None or origin is Literal:
        return hint
    marked = tuple(_with_json(one) for one in args)
    return Union[marked] if origin in (Union, UnionType) else origin[marked]  # noqa: UP007
