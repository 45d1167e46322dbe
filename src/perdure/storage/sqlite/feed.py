"""The feed over all agents, read from the existing tables: nothing is written for it.

Finding a log's end is one descent of the b-tree of commits, so comparing all ends with those in the
cursor costs microseconds per agent, and no commit pays for the feed. The cursor holds those ends,
and what tells another store, or an older copy of this one: the id of one commit, and a sum of the
agents' numbers and names.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

import apsw
import msgspec
from msgspec import Struct

from perdure.core.format import chain
from perdure.storage.cursors import foreign_cursor
from perdure.storage.port import Fed, Feed, StoredCommit
from perdure.storage.sqlite.rows import SEQ_MAX, each, place, run, span

ID_BYTES = 8
END_BYTES, OTHERS_BYTES = 9, 80
"""Of a cursor before it is packed, at most: for each agent, and for all else."""

PURGED = 2
"""The value of `agents.deleted` if only the last commit is left."""

OVER = SEQ_MAX
"""Behind every commit. Earlier versions take it for the end of a log to which nothing comes."""


class _Cursor(Struct, array_like=True, forbid_unknown_fields=True):
    """A feed's cursor. `ends`: the last seq that was fed of agents 1, 2, …, OVER once it was fed
    that one is purged; `latest`: the agent that was fed last, and `check` the beginning of its last
    commit's id; `names`: the sum that tells agents 1, 2, … from those of other stores, 0 in cursors
    of earlier versions."""

    ends: list[int]
    latest: int
    check: bytes
    names: int = 0


_cursor = msgspec.msgpack.Decoder(_Cursor).decode


class Feeder:
    """Reads the feed of one store, on any of its reading connections.

    If nobody has committed since a connection last found nothing behind a cursor, there is still
    nothing: that is known without a look at any agent. A cursor that it gave itself is not compared
    with the agents' names.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._given = ""
        self._quiet: WeakKeyDictionary[apsw.Connection, tuple[int, str]] = WeakKeyDictionary()

    def read(self, db: apsw.Connection, text: str, limit: int) -> Feed:
        """See `Backend.feed`."""
        version = db.pragma("data_version")  # before the look: what comes after shows next time
        if text and self._quiet.get(db) == (version, text):
            return Feed([], text)
        last = run(db, "last_agent")[0][0] or 0
        cursor = _parse(text, self._url, last) if text else _Cursor([], 0, b"")
        if text:
            _check(db, self._url, cursor, names_too=text != self._given)
        entries: list[Fed] = []
        for row in _in_turn(db, cursor.latest):
            _take(db, row, cursor, limit - len(entries), entries)
            if len(entries) >= limit:
                break
        if not entries:
            self._quiet[db] = (version, text)
            return Feed([], text)
        last = entries[-1]
        cursor.latest = last.no
        cursor.check = chain.commit_id(last.commit.header)[:ID_BYTES]
        self._given = _format(cursor)
        return Feed(entries, self._given)


def _in_turn(db: apsw.Connection, latest: int) -> Iterator[Any]:
    """Yields agents and their logs' ends, starting after the one that was fed last: a busy one must
    not starve the others."""
    yield from each(db, "list_heads", (latest + 1, SEQ_MAX))
    yield from each(db, "list_heads", (1, latest))


def _take(db: apsw.Connection, row: Any, cursor: _Cursor, room: int, entries: list[Fed]) -> None:
    no, name, incarnation, deleted, last = row
    if no > len(cursor.ends):  # these come in order, whoever was fed last
        cursor.ends += [0] * (no - len(cursor.ends))
        cursor.names += _sum(no, name, incarnation)
    fed = cursor.ends[no - 1]
    if last is None or fed == OVER:
        return
    first = place(no, fed + 1)
    if first > last:
        if deleted != PURGED:
            return
        first = last
    for at, header, payload, snapshotted in run(db, "read_up", (first, last, room)):
        commit = StoredCommit(at & SEQ_MAX, header, payload, bool(snapshotted))
        entries.append(Fed(no, name, incarnation, commit))
        cursor.ends[no - 1] = OVER if at == last and deleted == PURGED else commit.seq


def _sum(no: int, name: str, incarnation: int) -> int:
    return zlib.crc32(f"{no} {incarnation} {name}".encode())


def _check(db: apsw.Connection, url: str, cursor: _Cursor, *, names_too: bool) -> None:
    if names_too and cursor.names:
        named = run(db, "list_names", (len(cursor.ends),))
        if cursor.names != sum(_sum(*one) for one in named):
            raise foreign_cursor(url)
    end = cursor.ends[cursor.latest - 1] if 0 < cursor.latest <= len(cursor.ends) else 0
    last = run(db, "last_place", span(cursor.latest)) if end == OVER else []
    at = last[0][0] if last else place(cursor.latest, end)
    found = run(db, "find_header", (at,))
    if end and not found and run(db, "find_deleted", (cursor.latest,)) == [(PURGED,)]:
        return  # that commit is gone on purpose
    if not found or chain.commit_id(found[0][0])[:ID_BYTES] != cursor.check:
        raise foreign_cursor(url)


def _format(cursor: _Cursor) -> str:
    packed = zlib.compress(msgspec.msgpack.encode(cursor), 1)
    return base64.urlsafe_b64encode(packed).decode()


def _parse(text: str, url: str, agents: int) -> _Cursor:
    """Returns the cursor in a text. `agents`: the store's number of agents, which bounds the length
    of a cursor of its own."""
    try:
        packed = base64.b64decode(text.encode(), altchars=b"-_", validate=True)
        unpacked = zlib.decompressobj().decompress(packed, OTHERS_BYTES + END_BYTES * agents)
        cursor = _cursor(unpacked)
    except (ValueError, zlib.error, msgspec.MsgspecError) as error:
        raise foreign_cursor(url) from error
    if not 0 <= cursor.latest <= agents or not all(0 <= end <= SEQ_MAX for end in cursor.ends):
        raise foreign_cursor(url)
    return cursor
