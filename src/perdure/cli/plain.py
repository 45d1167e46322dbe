"""States and commits as JSON, and values read back from it.

Values that JSON lacks are written as objects with one key that starts with ``$``; see `TAGS_HELP`.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from msgspec import Struct

from perdure.cli import terminal
from perdure.core.values import zones
from perdure.core.values.plain_values import format_path
from perdure.missing import MISSING
from perdure.model import Change, Commit, RunInfo, id_text

TAGS_HELP = (
    "JSON has fewer kinds of values than a state. The others are objects with one key: "
    '{"$datetime": "2026-08-12T14:03:22+02:00"}, (with a named zone: '
    '…[Europe/Berlin]), {"$date": …}, {"$time": …}, '
    '{"$timedelta": [days, seconds, microseconds]}, {"$decimal": "1.10"}, {"$uuid": …}, '
    '{"$bytes": base64}, {"$tuple": […]}, {"$set": […]}, {"$frozenset": […]}, '
    '{"$float": "nan"} (inf, -inf), {"$int": "0x…"} for more than 4,000 digits, '
    '{"$map": [[key, value], …]} for a dict with keys that are '
    "not text, or with a single key that starts with $."
)

INT_BITS_MAX = 13_000
"""Of longer ones Python refuses to write or read the decimal digits: it takes too long."""

_WRITERS: dict[type, Callable[[Any], Any]] = {
    dt.datetime: lambda v: {"$datetime": _zoned(v)},
    dt.date: lambda v: {"$date": v.isoformat()},
    dt.time: lambda v: {"$time": _zoned(v)},
    dt.timedelta: lambda v: {"$timedelta": [v.days, v.seconds, v.microseconds]},
    Decimal: lambda v: {"$decimal": str(v)},
    UUID: lambda v: {"$uuid": str(v)},
    bytes: lambda v: {"$bytes": base64.b64encode(v).decode()},
    tuple: lambda v: {"$tuple": [to_json(item) for item in v]},
    set: lambda v: {"$set": [to_json(item) for item in sorted(v, key=repr)]},
    frozenset: lambda v: {"$frozenset": [to_json(item) for item in sorted(v, key=repr)]},
}

_READERS: dict[str, Callable[[Any], Any]] = {
    "$datetime": lambda v: _read_zoned(dt.datetime, _text(v)),
    "$date": lambda v: dt.date.fromisoformat(_text(v)),
    "$time": lambda v: _read_zoned(dt.time, _text(v)),
    "$timedelta": lambda v: dt.timedelta(*_list(v)),
    "$decimal": lambda v: Decimal(_text(v)),
    "$uuid": lambda v: UUID(_text(v)),
    "$bytes": lambda v: base64.b64decode(_text(v), validate=True),
    "$tuple": lambda v: tuple(from_json(item) for item in _list(v)),
    "$set": lambda v: {from_json(item) for item in _list(v)},
    "$frozenset": lambda v: frozenset(from_json(item) for item in _list(v)),
    "$int": lambda v: int(_text(v), 16),
    "$float": lambda v: float({"nan": "nan", "inf": "inf", "-inf": "-inf"}[v]),
    "$map": lambda v: {from_json(key): from_json(item) for key, item in map(_list, _list(v))},
}


def _zoned(value: dt.datetime | dt.time) -> str:
    """Returns ISO 8601, with the zone's name appended as in RFC 9557, if it has one."""
    key = None if value.tzinfo is None else zones.key_of(value.tzinfo)
    zone = "" if key is None else f"[{key}]"
    return zones.wall_clock(value) + zone + ("[fold=1]" if value.fold else "")


def _read_zoned(kind: Any, words: str) -> Any:
    words, *suffixes = words.split("[")
    value = kind.fromisoformat(words)
    for suffix in suffixes:
        name = suffix.removesuffix("]")
        if name == "fold=1":
            value = value.replace(fold=1)
        else:
            value = value.replace(tzinfo=ZoneInfo(name))  # ours to refuse: it is typed in here
    return value


def _text(held: Any) -> str:
    """Returns a text. A number would have lost what the tag keeps: 1.10 is 1.1."""
    if type(held) is not str:
        raise TypeError("not a text")
    return held


def _list(held: Any) -> list[Any]:
    """Returns a list. Of a text, each letter would be an item."""
    if type(held) is not list:
        raise TypeError("not a list")
    return held


def to_json(value: Any) -> Any:
    """Returns a plain value in the form that `json` can write without loss."""
    kind = type(value)
    if kind is dict:
        tag_like = len(value) == 1 and next(iter(value), "") in _READERS
        if tag_like or not all(type(key) is str for key in value):
            return {"$map": [[to_json(key), to_json(item)] for key, item in value.items()]}
        return {key: to_json(item) for key, item in value.items()}
    if kind is list:
        return [to_json(item) for item in value]
    if kind is int and value.bit_length() > INT_BITS_MAX:
        return {"$int": hex(value)}
    if kind is float and not math.isfinite(value):
        return {"$float": str(value)}
    write = _WRITERS.get(kind)
    return write(value) if write else value


def from_json(value: Any) -> Any:
    """Returns the plain value of a result of `to_json`.

    Raises:
        ValueError: a tag holds something invalid.
    """
    if type(value) is list:
        return [from_json(item) for item in value]
    if type(value) is not dict:
        return value
    if len(value) == 1:
        tag, held = next(iter(value.items()))
        if tag in _READERS:
            try:
                return _READERS[tag](held)
            except (TypeError, ValueError, LookupError, ArithmeticError) as error:
                raise ValueError(f"{tag} cannot hold {held!r:.60}") from error
    return {key: from_json(item) for key, item in value.items()}


def dumps(value: Any, *, indent: int | None = None) -> str:
    """Returns JSON text: readable where stdout can show it, escaped where not."""
    made = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    encoding = getattr(terminal.stdout(), "encoding", None) or "utf-8"
    try:
        made.encode(encoding)
    except (UnicodeEncodeError, LookupError):  # a lone surrogate, or a terminal without Unicode
        made = json.dumps(value, allow_nan=False, indent=indent)
    return made if made.isprintable() else "".join(map(_escaped, made))


def _escaped(character: str) -> str:
    """Returns a character escaped: JSON itself escapes neither upper control characters, nor marks
    of direction."""
    if character.isprintable() or character == "\n":
        return character
    return json.dumps(character)[1:-1]


def ascii_dumps(value: Any) -> str:
    """Returns JSON text on one line, for files: the same bytes whatever the terminal or locale."""
    return json.dumps(value, allow_nan=False)


def put(value: Any) -> None:
    """Prints one JSON document on stdout."""
    terminal.put(dumps(value))


def put_all(values: Iterable[Any]) -> None:
    """Prints a JSON array on stdout, one element a line, as they come."""
    separator = "[\n"
    for value in values:
        terminal.put(separator + dumps(value), end="")
        separator = ",\n"
    terminal.put("[]" if separator == "[\n" else "\n]")


def time_json(at: dt.datetime) -> str:
    return at.isoformat()


def of(thing: Struct) -> dict[str, Any]:
    """Returns flat data of the library as a JSON object, empty fields included."""
    made: dict[str, Any] = {}
    for name in thing.__struct_fields__:
        if name.endswith("_micros"):
            name = name.removesuffix("_micros")
            at = getattr(thing, name)
            made[name] = None if at is None else time_json(at)
        else:
            made[name] = _field(getattr(thing, name))
    return made


def _field(value: Any) -> Any:
    if isinstance(value, Mapping):
        return to_json(dict(value))
    if isinstance(value, tuple):  # of names, numbers or versions: nothing that needs a tag
        return [to_json(item) for item in value]
    return to_json(value)


def commit_json(commit: Commit) -> dict[str, Any]:
    cause = {name: value for name, value in of(commit.cause).items() if value not in (None, "", [])}
    return {
        "seq": commit.seq,
        "id": id_text(commit.id),
        "prev": id_text(commit.prev) if commit.prev else None,
        "parents": list(commit.parents),
        "branch": commit.branch,
        "at": time_json(commit.at),
        "cause": cause,
        "executor": commit.executor,
        "epoch": commit.epoch,
        "schema": schema_json(commit.schema_id, commit.schema_version),
        "delta": [_op_json(op) for op in commit.delta],
        "records": [to_json(dict(record)) for record in commit.records],
        "size": commit.size,
        **({"trimmed": True} if commit.trimmed else {}),
        **({"damaged": commit.damaged} if commit.damaged else {}),
    }


def schema_json(schema_id: str, version: tuple[int, int]) -> dict[str, Any]:
    return {"id": schema_id, "version": f"{version[0]}.{version[1]}"}


def _op_json(op: Any) -> dict[str, Any]:
    kind = type(op).__name__
    rest = {name: to_json(getattr(op, name)) for name in op.__struct_fields__ if name != "path"}
    path = [to_json(key) for key in op.path]
    return {"op": kind, "path": path, "at": format_path(op.path), **rest}


def change_json(change: Change) -> dict[str, Any]:
    made: dict[str, Any] = {"path": change.path, "kind": change.kind}
    for name in ("before", "after"):
        if (value := getattr(change, name)) is not MISSING:
            made[name] = to_json(value)
    return made


def run_json(run: RunInfo) -> dict[str, Any]:
    made = of(run)
    del made["agent_no"]
    return made
