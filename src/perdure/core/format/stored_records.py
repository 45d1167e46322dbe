"""Records as they are stored and read back: maps with their kind under ``t``, checked each way."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from msgspec import UNSET, Struct, convert
from msgspec.structs import asdict, force_setattr

from perdure.core.format.left_behind import WentBack
from perdure.core.format.record_parts import Error, StartedChild
from perdure.core.format.records import SHAPES, WRITTEN, Finished, Other, Record
from perdure.core.values.plain_values import Plain


def plain_of(record: Record) -> dict[str, Any]:
    """A record as it is stored: what it has not is not there."""
    names, read, absent, lists, nested = WRITTEN[record.t]
    plain: dict[str, Any] = {}
    for name, value, empty in zip(names, read(record), absent, strict=True):
        if value is not empty:  # a loop: one of C's makes more objects than it saves
            plain[name] = value
    for name in lists:  # which of them are empty is known once they are written
        if not plain.get(name, True):
            del plain[name]
    for name in nested:
        if name in plain:
            plain[name] = _flat(plain[name])
    return plain


def _flat(value: Any) -> Any:
    if isinstance(value, Struct):
        fields = asdict(value).items()
        return {name: _flat(one) if type(one) is list else one for name, one in fields}
    return [
        asdict(one) if isinstance(one, Struct) else list(one) if type(one) is tuple else one
        for one in value
    ]


def written(records: Sequence[Any]) -> list[dict[str, Any]]:
    """Records as they are stored, typed ones or maps; each can be read again.

    Raises:
        ValueError, TypeError: one does not have the shape of its kind.
    """
    said = []
    shape: type[Record] | None
    for record in records:
        if isinstance(record, Record):
            plain, shape = plain_of(record), SHAPES[record.t]
        elif type(record) is dict and type(kind := record.get("t")) is str:
            plain, shape = record, SHAPES.get(kind)
        else:
            raise TypeError(_NO_RECORD)
        if shape is not None:
            read = convert(plain, shape)
            if shape is Finished:
                _check_end(read)
        said.append(plain)
    return said


def read_records(records: Sequence[Any]) -> tuple[tuple[dict[str, Plain], ...], tuple[Record, ...]]:
    """Returns the records of a payload, plain and typed: with the fields of their kinds. The typed
    ones share arguments and errors with the plain ones.

    Raises:
        ValueError, TypeError: one does not have the shape of its kind.
    """
    typed: list[Record] = []
    for record in records:  # each read of a log comes by: nothing is called that need not be
        if type(record) is not dict or type(kind := record.get("t")) is not str:
            raise TypeError(_NO_RECORD)
        shape = SHAPES.get(kind)
        if shape is None:
            typed.append(_of_others(record))
            continue
        read = convert(record, shape)
        if shape is Finished:
            _check_end(read)
        if read.args:
            force_setattr(read, "args", record["args"])
        if read.error is not None:
            force_setattr(read, "error", record["error"])
        if read.value is UNSET:
            force_setattr(read, "value", None)
        typed.append(read)
    return tuple(records), tuple(typed)


_NO_RECORD = "a record must be a map with its kind under 't'"


def _check_end(read: Record) -> None:
    if isinstance(read, Finished) and read.status == "failed":
        convert(read.value, Error)


def _of_others(record: dict[Any, Any]) -> Other:
    read: dict[str, Any] = {}
    for name, kind in (("run", str), ("child", StartedChild), ("again", WentBack)):
        with suppress(ValueError, TypeError):
            if name in record:
                read[name] = convert(record[name], kind)
    return Other(t=record["t"], **read)
