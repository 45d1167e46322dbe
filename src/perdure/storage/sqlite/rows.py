"""Rows as model objects, and the reverse; and running statements by their names."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterable, Sequence
from itertools import chain, product
from operator import gt, lt
from typing import Any

import apsw
import msgspec
from msgspec.structs import astuple

from perdure.core.values import codec
from perdure.missing import MISSING
from perdure.model import Checkpoint, Message, RunInfo
from perdure.storage.appending import Ref
from perdure.storage.cells import checkpoint_of, value_of
from perdure.storage.port import StoredCommit
from perdure.storage.sqlite.faults import MisplacedError, NoTextError
from perdure.storage.sqlite.guards import EACH, GUARDS, check_missing
from perdure.storage.sqlite.statements import statements
from perdure.storage.sqlite.trees import Trees

SEQ_BITS = 36
SEQ_MAX = (1 << SEQ_BITS) - 1
NO_MAX = (1 << 63 - SEQ_BITS) - 1
_BYTES = frozenset((bytes,))
SURROGATES = range(0xD800, 0xE000)
"""Code points that no text in a database has."""

_sql = statements()


def run(db: apsw.Connection, name: str, values: Any = ()) -> list[Any]:
    """Executes a named statement; returns all its rows.

    Raises:
        MisplacedError: there may be more of them.
        NoTextError: a text among them is not valid.
    """
    try:
        rows = db.execute(_sql[name], values).fetchall()
    except UnicodeDecodeError as error:
        raise NoTextError(str(error)) from error
    guard = EACH.get(name) if rows else GUARDS.get(name)
    if guard is not None:
        trees: Trees | None = getattr(db, "trees", None)
        if trees is not None:
            guard.check(db, trees, values, rows)
    return rows


def each(db: apsw.Connection, name: str, values: Any) -> Iterable[Any]:
    """Executes a named statement; yields its rows as they are asked for. Raises NoTextError, as
    `run`."""
    try:
        yield from db.execute(_sql[name], values)
    except UnicodeDecodeError as error:
        raise NoTextError(str(error)) from error


def do(db: apsw.Connection, name: str, values: Any) -> None:
    """Executes a named statement that has no rows."""
    db.execute(_sql[name], values)


def place(no: int, seq: int) -> int:
    """Returns the key of a commit or snapshot: one b-tree, clustered by agent."""
    return (no << SEQ_BITS) | seq


def span(no: int) -> tuple[int, int]:
    """Returns the first and last key of an agent."""
    return place(no, 0), place(no, SEQ_MAX)


def behind(prefix: str) -> str | bytes:
    """Returns the least value of a column of texts that sorts after all that begin with a prefix;
    if no text does, a blob, which sorts after every text."""
    while prefix:
        last = ord(prefix[-1]) + 1
        if last <= sys.maxunicode:
            return prefix[:-1] + chr(last if last not in SURROGATES else SURROGATES.stop)
        prefix = prefix[:-1]
    return b""


def pack_ids(ids: Any) -> bytes:
    return struct.pack(f">{len(ids)}q", *ids)


def unpack_ids(packed: bytes) -> tuple[int, ...]:
    """Returns ids. Raises MisplacedError if the bytes are not ids."""
    try:
        return struct.unpack(f">{len(packed) // 8}q", packed)
    except (struct.error, TypeError) as error:
        raise MisplacedError from error


def to_commits(rows: list[Any], first: int, last: int, *, down: bool) -> list[StoredCommit]:
    """Returns commits of one agent, between two keys, in their order.

    Raises:
        MisplacedError: the rows are not such commits.
    """
    if rows:
        keys, headers, payloads, _ = zip(*rows, strict=True)  # no instruction for each
        low, high = (keys[-1], keys[0]) if down else (keys[0], keys[-1])
        if low < first or high > last or not all(map(gt if down else lt, keys, keys[1:])):
            raise MisplacedError
        if not _BYTES.issuperset(map(type, chain(headers, payloads))):
            raise MisplacedError
    return [StoredCommit(at & SEQ_MAX, head, body, bool(snap)) for at, head, body, snap in rows]


def ids_json(ids: Iterable[int]) -> str:
    """Returns ids as one parameter of a statement."""
    return f"[{','.join(map(str, ids))}]"


def find_key(db: apsw.Connection, no: int, key: str) -> tuple[int, bytes] | None:
    rows = run(db, "find_key", (no, key))
    if not rows:
        return None
    ((seq, asked, *found),) = rows
    if found != [no, key] or type(seq) is not int or type(asked) is not bytes:
        raise MisplacedError
    return seq, asked


def find_keys(db: apsw.Connection, no: int, keys: Sequence[str]) -> dict[str, int]:
    """See `ManyKeys.keys`."""
    if all(key.isascii() and key.isprintable() for key in keys):
        found: dict[str, int] = dict(run(db, "find_keys", (no, json.dumps(keys))))
        for key in keys:
            if key not in found:
                check_missing(db, "keys", no, key)
        return found
    each_found = {key: find_key(db, no, key) for key in keys}  # no JSON holds a NUL
    return {key: one[0] for key, one in each_found.items() if one is not None}


def find_ref(db: apsw.Connection, no: int, name: str) -> Ref | None:
    rows = run(db, "find_ref", (no, name))
    if not rows:
        return None
    row = rows[0]
    if row[0] != name or row[8] != no:  # SQLite takes what comes next for what it looked for
        raise MisplacedError
    return to_ref(row)


def _kinds(*columns: type | tuple[type, ...]) -> frozenset[tuple[type, ...]]:
    """Returns all possible types of a row's columns."""
    each = [column if isinstance(column, tuple) else (column,) for column in columns]
    return frozenset(product(*each))


_NONE = type(None)
RUN_COLUMNS = 22
_REF = _kinds(str, str, int, int, int, (int, _NONE), (str, _NONE), (bytes, _NONE), int)
_RUN_BEGIN = str, str, int, str, str, str, str, int, int, str
_RUN = _kinds(*_RUN_BEGIN, bytes, (str, _NONE), int, str, int, int, str, str, str, int, int, int)
_MESSAGE = _kinds(str, str, str, str, str, (bytes, _NONE), str, int, int)


def _refuse_others(row: Any, kinds: frozenset[tuple[type, ...]]) -> None:
    """Raises MisplacedError if it is a row of another table."""
    if tuple(map(type, row)) not in kinds:
        raise MisplacedError


def to_ref(row: Any) -> Ref:
    """Returns the name in a row. Raises MisplacedError if it is not one."""
    if tuple(map(type, row)) not in _REF:
        raise MisplacedError
    name, kind, seq, deleted, epoch, held, holder, data, _ = row
    checkpoint = checkpoint_of(data, name, seq) if data else None
    return Ref(name, kind, seq, bool(deleted), epoch, held, holder, checkpoint)


def from_checkpoint(checkpoint: Checkpoint) -> bytes:
    return msgspec.msgpack.encode(checkpoint)


def to_run(row: Any) -> RunInfo:
    """Returns the run in a row. Raises MisplacedError if it is not one."""
    _refuse_others(row[:RUN_COLUMNS], _RUN)
    values = list(row[:RUN_COLUMNS])
    values[10] = value_of(values[10], values[1])
    return RunInfo(*values)


def from_run(row: RunInfo, no: int) -> tuple[Any, ...]:
    values = list(astuple(row))
    values[2], values[10] = no, codec.encode(row.result)
    return tuple(values)


def to_message(row: Any) -> Message:
    """Returns the message in a row. Its value is MISSING if it was taken out.

    Raises:
        MisplacedError: it is not a message.
    """
    _refuse_others(row, _MESSAGE)
    values = list(row)
    values[5] = MISSING if values[5] is None else value_of(values[5], values[1])
    return Message(*values)
