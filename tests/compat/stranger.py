"""A reader of stores that was written from docs/format.md alone; nothing of Perdure is in here.

If this and the library disagree about a store, one of them or the page is wrong. Run it on a closed
store: ``python tests/compat/stranger.py FILE``.
"""

from __future__ import annotations

import datetime as dt
import sqlite3
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import zstandard

DICTIONARY = Path(__file__).resolve().parents[2] / "src/perdure/core/format/dictionary-1.zdict"
DICTIONARY_SHA256 = "bcc0e16efe36155912925b340785bf02598c13f3127a466f00179a3da0a60445"
"""As the page has it."""


class Refused(Exception):
    """What docs/format.md tells readers to refuse."""


def need(holds: object, what: str) -> None:
    if not holds:
        raise Refused(what)


# -- msgpack ---------------------------------------------------------------------------------

SIZES = {1: ">B", 2: ">H", 4: ">I", 8: ">Q"}
SIGNED = {1: ">b", 2: ">h", 4: ">i", 8: ">q"}


class Unpacker:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        need(self.at + size <= len(self.data), "msgpack ends too early")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, size: int, formats: dict[int, str] = SIZES) -> int:
        return int(struct.unpack(formats[size], self.take(size))[0])

    def value(self) -> Any:
        head = self.number(1)
        if head < 0x80:
            return head
        if head < 0x90:
            return self.map(head & 0x0F)
        if head < 0xA0:
            return self.array(head & 0x0F)
        if head < 0xC0:
            return self.take(head & 0x1F).decode()
        if head >= 0xE0:
            return head - 0x100
        if head in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[head]
        if head in (0xC4, 0xC5, 0xC6):
            return self.take(self.number(1 << (head - 0xC4)))
        if head in (0xC7, 0xC8, 0xC9):
            size = self.number(1 << (head - 0xC7))
            return self.extension(size)
        if head == 0xCB:
            return struct.unpack(">d", self.take(8))[0]
        if 0xCC <= head <= 0xCF:
            return self.number(1 << (head - 0xCC))
        if 0xD0 <= head <= 0xD3:
            return self.number(1 << (head - 0xD0), SIGNED)
        if 0xD4 <= head <= 0xD8:
            return self.extension(1 << (head - 0xD4))
        if head in (0xD9, 0xDA, 0xDB):
            return self.take(self.number(1 << (head - 0xD9))).decode()
        if head in (0xDC, 0xDD):
            return self.array(self.number(2 << (head - 0xDC)))
        if head in (0xDE, 0xDF):
            return self.map(self.number(2 << (head - 0xDE)))
        raise Refused(f"msgpack byte {head:#x}")

    def array(self, count: int) -> list[Any]:
        return [self.value() for _ in range(count)]

    def map(self, count: int) -> dict[Any, Any]:
        return {self.value(): self.value() for _ in range(count)}

    def extension(self, size: int) -> Any:
        code = self.number(1, SIGNED)
        data = self.take(size)
        need(code in EXTENSIONS, f"extension {code}")
        return EXTENSIONS[code](data)


def unpack(data: bytes) -> Any:
    unpacker = Unpacker(data)
    value = unpacker.value()
    need(unpacker.at == len(data), "bytes behind the value")
    return value


# -- values ----------------------------------------------------------------------------------


def zone(wire: Any) -> dt.tzinfo | None:
    if wire is None:
        return None
    return ZoneInfo(wire) if isinstance(wire, str) else dt.timezone(dt.timedelta(*wire))


def moment(kind: Any, data: bytes) -> Any:
    text, fold, where = unpack(data)
    return kind.fromisoformat(text).replace(fold=fold, tzinfo=zone(where))


EXTENSIONS = {
    1: lambda data: int.from_bytes(data, "big", signed=True),
    2: lambda data: data.decode("utf-8", "surrogatepass"),
    3: lambda data: moment(dt.datetime, data),
    4: lambda data: dt.date.fromisoformat(data.decode()),
    5: lambda data: moment(dt.time, data),
    6: lambda data: dt.timedelta(*unpack(data)),
    7: lambda data: Decimal(data.decode()),
    8: lambda data: UUID(bytes=data),
    9: lambda data: tuple(unpack(data)),
    10: lambda data: {unpack(member) for member in unpack(data)},
    11: lambda data: frozenset(unpack(member) for member in unpack(data)),
    12: lambda data: dict(unpack(data)),
}


# -- canonical form --------------------------------------------------------------------------


def state_hash(state: Any) -> str:
    return "sha256:" + sha256(b"perdure.state.v1\0" + canonical(state)).hexdigest()


def canonical(value: Any) -> bytes:
    try:
        return pack(value, wide=False)
    except UnicodeEncodeError:
        return pack(value, wide=True)


def pack(value: Any, *, wide: bool) -> bytes:
    match value:
        case None:
            return b"\xc0"
        case bool():
            return b"\xc3" if value else b"\xc2"
        case int():
            return pack_int(value)
        case float():
            return b"\xcb" + struct.pack(">d", value)
        case str():
            return pack_str(value, wide=wide)
        case bytes():
            return pack_head(len(value), None, 0xC4, 0xC5, 0xC6) + value
        case list():
            items = b"".join(pack(item, wide=wide) for item in value)
            return pack_head(len(value), (0x90, 15), None, 0xDC, 0xDD) + items
        case dict():
            return pack_dict(value, wide=wide)
    return pack_other(value)


def pack_int(value: int) -> bytes:
    if 0 <= value < 0x80 or -32 <= value < 0:
        return struct.pack("b", value)
    for size, code in ((1, 0xCC), (2, 0xCD), (4, 0xCE), (8, 0xCF)):
        if 0 <= value < 1 << 8 * size:
            return bytes([code]) + value.to_bytes(size, "big")
    for size, code in ((1, 0xD0), (2, 0xD1), (4, 0xD2), (8, 0xD3)):
        if -(1 << 8 * size - 1) <= value < 0:
            return bytes([code]) + value.to_bytes(size, "big", signed=True)
    return pack_extension(1, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def pack_str(value: str, *, wide: bool) -> bytes:
    try:
        data = value.encode()
    except UnicodeEncodeError:
        if not wide:
            raise
        return pack_extension(2, value.encode("utf-8", "surrogatepass"))
    return pack_head(len(data), (0xA0, 31), 0xD9, 0xDA, 0xDB) + data


def pack_dict(value: dict[Any, Any], *, wide: bool) -> bytes:
    if wide or any(type(key) is not str for key in value):
        pairs = sorted(([key, item] for key, item in value.items()), key=lambda p: canonical(p[0]))
        return pack_extension(12, canonical(pairs))
    items = sorted(value.items(), key=lambda pair: pair[0].encode("utf-8", "surrogatepass"))
    data = b"".join(pack(key, wide=False) + pack(item, wide=False) for key, item in items)
    return pack_head(len(value), (0x80, 15), None, 0xDE, 0xDF) + data


def pack_other(value: Any) -> bytes:
    match value:
        case dt.datetime():
            return pack_extension(3, pack_moment(value))
        case dt.date():
            return pack_extension(4, value.isoformat().encode())
        case dt.time():
            return pack_extension(5, pack_moment(value))
        case dt.timedelta():
            return pack_extension(6, canonical([value.days, value.seconds, value.microseconds]))
        case Decimal():
            return pack_extension(7, str(value).encode())
        case UUID():
            return pack_extension(8, value.bytes)
        case tuple():
            return pack_extension(9, canonical(list(value)))
        case set() | frozenset():
            members = canonical(sorted(map(canonical, value)))
            return pack_extension(10 if isinstance(value, set) else 11, members)
    raise Refused(f"no value: {value!r}")


def pack_moment(value: Any) -> bytes:
    where: Any = value.tzinfo
    if isinstance(where, ZoneInfo):
        where = where.key
    elif where is not None:
        offset = where.utcoffset(None)
        where = [offset.days, offset.seconds, offset.microseconds]
    return canonical([value.replace(tzinfo=None, fold=0).isoformat(), value.fold, where])


def pack_extension(code: int, data: bytes) -> bytes:
    fixed = {1: 0xD4, 2: 0xD5, 4: 0xD6, 8: 0xD7, 16: 0xD8}.get(len(data))
    if fixed is not None:
        return bytes([fixed, code]) + data
    return pack_head(len(data), None, 0xC7, 0xC8, 0xC9) + bytes([code]) + data


def pack_head(
    size: int, fix: tuple[int, int] | None, one: int | None, two: int, four: int
) -> bytes:
    if fix is not None and size <= fix[1]:
        return bytes([fix[0] | size])
    if one is not None and size < 1 << 8:
        return bytes([one, size])
    return struct.pack(">BH", two, size) if size < 1 << 16 else struct.pack(">BI", four, size)


# -- pages, envelopes, headers ---------------------------------------------------------------


def check_file(path: str) -> int:
    """Marks and page checksums of a main file without a WAL; returns the number of pages."""
    with open(path, "rb") as file:
        data = file.read()
    need(data[:16] == b"SQLite format 3\0", "no SQLite file")
    need(data[68:72] == b"Prdu", "no store")
    need(int.from_bytes(data[60:64], "big") in (1, 2), "another format")
    need(data[20] == 8, "no room for page checksums")
    size = int.from_bytes(data[16:18], "big")
    for at in range(0, len(data), size):
        page = data[at : at + size]
        need(page_checksum(page[:-8]) == page[-8:], f"page {at // size + 1}")
    return len(data) // size


def page_checksum(data: bytes) -> bytes:
    words = struct.unpack(f"<{len(data) // 4}I", data)
    first = second = 0
    for i in range(0, len(words), 2):
        first = (first + words[i] + second) & 0xFFFFFFFF
        second = (second + words[i + 1] + first) & 0xFFFFFFFF
    return struct.pack("<II", first, second)


def open_envelope(data: bytes) -> bytes:
    magic, version, features, codec = struct.unpack(">2sBHB", data[:6])
    need(magic == b"Pd" and version == 1 and codec == 1, "an envelope of another kind")
    need(features in (0, 1, 3), "an envelope with an unknown feature")
    body = data[22:]
    if not features & 1:
        return body
    words = None
    if features & 2:
        need(body[:1] == b"\1", "an unknown dictionary")
        body, words = body[1:], dictionary()
    need(zstandard.frame_content_size(body) <= 1 << 30, "an absurd size")
    return zstandard.ZstdDecompressor(dict_data=words).decompress(body)


@cache
def dictionary() -> zstandard.ZstdCompressionDict:
    data = DICTIONARY.read_bytes()
    need(sha256(data).hexdigest() == DICTIONARY_SHA256, "another dictionary")
    return zstandard.ZstdCompressionDict(data)


@dataclass
class Entry:
    """One commit."""

    header: list[Any]
    id: bytes
    ops: list[Any]
    records: list[dict[str, Any]]
    gone: bool = False
    kept: bytes = b""

    def __post_init__(self) -> None:
        need(self.header[0] == 1, "another header version")
        _, self.agent, self.incarnation, self.seq, self.prev, self.branch, *rest = self.header
        self.parents, self.schema, self.at, self.executor, self.epoch, cause, _, self.digest = rest
        self.kind, self.more = cause

    @property
    def parent(self) -> int:
        return self.parents[0] if self.parents else 0


def read_entry(header: bytes, payload: bytes) -> Entry:
    gone, kept = payload == b"Pr\x01\0", b""
    if payload[:4] == b"Pr\x01\1":
        seal, rest = payload[4:20], payload[20:]
        need(sha256(rest).digest()[:16] == seal, "a broken seal")
        end = 8 + int.from_bytes(rest[:8], "big")
        payload, kept = rest[8:end], rest[end:]
    found = sha256(b"perdure.payload.v1\0" + payload).digest()
    ops, records = ([], []) if gone else unpack(open_envelope(payload))
    id = b"\x01" + sha256(b"perdure.commit.v1\0" + header).digest()
    entry = Entry(unpack(header), id, ops, records, gone, kept)
    need(gone or entry.digest == found, "a payload of another header")
    return entry


# -- folding ---------------------------------------------------------------------------------


def walk(root: Any, path: list[Any]) -> Any:
    for key in path:
        root = root[key]
    return root


def apply(root: Any, op: list[Any]) -> Any:
    """Apply an op to a state in place; returns the root."""
    code, path, *fields = op
    if code in (0, 4, 5):
        new = new_value(code, root, path, fields)
        if not path:
            return new
        walk(root, path[:-1])[path[-1]] = new
        return root
    if code == 1:
        del walk(root, path[:-1])[path[-1]]
        return root
    change(code, walk(root, path), fields)
    return root


def new_value(code: int, root: Any, path: list[Any], fields: list[Any]) -> Any:
    if code == 0:
        return fields[0]
    old = walk(root, path)
    if code == 5:
        return old + fields[0]
    index, removed, text = fields
    need(index + removed <= len(old), "a text splice beyond the end")
    return old[:index] + text + old[index + removed :]


def change(code: int, container: Any, fields: list[Any]) -> None:
    match code:
        case 2:
            container.extend(fields[0])
        case 3:
            index, removed, values = fields
            need(index + removed <= len(container), "a splice beyond the end")
            container[index : index + removed] = values
        case 6:
            container.update(fields[0])
        case 7:
            container.difference_update(fields[0])
        case 8:
            source, target = fields
            container.insert(target, container.pop(source))
        case _:
            raise Refused(f"op {code}")


# -- logs ------------------------------------------------------------------------------------


@dataclass
class Log:
    """One incarnation of an agent, and the projections that follow from its log."""

    no: int
    name: str
    incarnation: int
    entries: list[Entry] = field(default_factory=list)
    refs: dict[str, tuple[str, int, bool]] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    checkpoints: dict[str, dict[str, Any]] = field(default_factory=dict)
    deleted: bool = False

    def add(self, entry: Entry, row_seq: int) -> None:
        before = self.entries[-1] if self.entries else None
        need(entry.seq == row_seq == len(self.entries) + 1, "a gap, or a row at another's place")
        need((entry.agent, entry.incarnation) == (self.name, self.incarnation), "another agent's")
        need(entry.prev == (before.id if before else b""), "a broken chain")
        need(
            all(0 < parent < entry.seq for parent in entry.parents), "a parent that is not earlier"
        )
        need(before is None or entry.at > before.at, "a time that does not grow")
        self.entries.append(entry)
        self.refs[entry.branch] = ("branch", entry.seq, False)
        if "k" in entry.more:
            self.keys[entry.more["k"]] = entry.seq
        for record in entry.records:
            self.note(record, entry)

    def note(self, record: dict[str, Any], entry: Entry) -> None:
        match record["t"]:
            case "checkpoint":
                self.refs[record["name"]] = ("checkpoint", entry.seq, False)
                self.checkpoints[record["name"]] = {
                    "name": record["name"],
                    "seq": entry.seq,
                    "state_hash": record["state"],
                    "schema_id": entry.schema[0],
                    "schema_version": entry.schema[1:],
                    "config_hash": record["config"],
                    "dependencies": record["dependencies"],
                    "run": record["run"],
                    "position": record["position"],
                }
            case "branch-deleted":
                kind, seq, _ = self.refs[record["name"]]
                self.refs[record["name"]] = (kind, seq, True)
            case "agent-deleted":
                self.refs = {name: (kind, seq, True) for name, (kind, seq, _) in self.refs.items()}
                self.deleted = True
            case "run-started":
                row = {"status": "running", "started": entry.seq, "ended": 0, "result": None}
                turn = {"turn": 1, "turn_at": entry.seq, "wake_at": 0, "waits": ""}
                more = {"version": "", "queue": "default", "parent": ""}
                more = {key: record.get(key, default) for key, default in more.items()}
                times = {"started_at": entry.at, "changed_at": entry.at}
                self.runs[record["run"]] = row | turn | more | times | {"branch": entry.branch}
            case "run-waiting":
                waits = {"wake_at": record["wake_at"], "waits": record["waits"]}
                self.change(record, entry, status="waiting", **waits)
            case "run-turn":
                row = self.runs[record["run"]]
                waits = {"wake_at": row["wake_at"], "waits": row["waits"]}
                self.change(record, entry, turn=row["turn"] + 1, turn_at=entry.seq, **waits)
            case "run-finished":
                end = {"status": record["status"], "result": record["value"], "ended": entry.seq}
                self.change(record, entry, **end)
            case "run-stopped":
                self.change(record, entry, status="needs_attention")
            case "run-cancelled":
                self.change(record, entry, status="cancelled", ended=entry.seq)
            case "outcome" if record.get("by") == "person":
                if not self.runs[record["run"]]["ended"]:
                    self.change(record, entry, status="pending")
            case "run-resumed":
                self.change(record, entry, status="running")

    def change(self, record: dict[str, Any], entry: Entry, **what: Any) -> None:
        self.runs[record["run"]] |= {"wake_at": 0, "waits": "", "changed_at": entry.at} | what

    def word(self) -> dict[str, Any] | None:
        """The last word on what is gone that stands."""
        at = self.refs.get("@retention", ("", 0, False))[1]
        while at:
            (word,) = [one for one in self.entries[at - 1].records if one["t"] == "trimmed"]
            kept = {1, *(seq for seq, _ in word["bases"])}
            between = self.entries[word["seen"] : at - 1]
            if not any(
                entry.branch == "@copies"
                or any(seq < word["before"] and seq not in kept for seq in entry.parents)
                or any(one["t"] == "run-retried" or "again" in one for one in entry.records)
                for entry in between
            ):
                return word
            at = word["previous"]
        return None

    def check_retention(self) -> None:
        """What is gone was removed on purpose, and what was kept is what was said to be."""
        said = [word] if (word := self.word()) else []
        removed = {seq for one in said for a, b in one["removed"] for seq in range(a, b + 1)}
        for entry in self.entries:
            need(not entry.gone or entry.seq in removed, "a payload that is gone without a word")
        for seq, digest in (pair for one in said for pair in one["bases"]):
            need(state_hash(self.state(seq)) == digest, "a kept state that is another one")

    def state(self, seq: int) -> Any:
        """Folded from the root, whole, each time: slow, and free of cleverness."""
        path, state = [], None
        while seq:
            entry = self.entries[seq - 1]
            need(not entry.gone, "a state that retention removed")
            if entry.kept:
                state = unpack(open_envelope(entry.kept))
                break
            path.append(entry)
            seq = entry.parent
        for entry in reversed(path):
            # Decoded anew: applying an op hands its values over to the state.
            for op in entry.ops:
                state = apply(state, unpack(ordered(op)))
        return state


def ordered(value: Any) -> bytes:
    """The bytes of a value with dicts in their own order."""
    match value:
        case list():
            items = b"".join(map(ordered, value))
            return pack_head(len(value), (0x90, 15), None, 0xDC, 0xDD) + items
        case dict():
            return pack_extension(12, ordered([[key, item] for key, item in value.items()]))
        case str():
            return pack_str(value, wide=True)
    return canonical(value)


def read_store(path: str) -> tuple[list[Log], sqlite3.Connection]:
    """Every log of a closed store, verified; and the connection, for its other tables."""
    check_file(path)
    # Never as a writer: closing would checkpoint, and this SQLite knows no page checksums.
    db = sqlite3.connect(f"file:{path}?immutable=1", uri=True)
    logs = []
    for no, name, incarnation in db.execute("SELECT no, name, incarnation FROM agents ORDER BY no"):
        log = Log(no, name, incarnation)
        rows = db.execute(
            "SELECT id, header, payload FROM commits WHERE id >> 36 = ? ORDER BY id", (no,)
        )
        for row, header, payload in rows:
            log.add(read_entry(header, payload), row & (1 << 36) - 1)
        log.check_retention()
        logs.append(log)
    return logs, db


def read_snapshots(log: Log, db: sqlite3.Connection) -> Iterator[tuple[int, Any]]:
    """(seq, state) of each snapshot of a log."""
    rows = db.execute(
        "SELECT id, manifest, leaf_ids FROM snapshots WHERE id >> 36 = ? ORDER BY id", (log.no,)
    )
    for row, manifest, packed in rows.fetchall():
        seq = row & (1 << 36) - 1
        version, name, incarnation, parent, layout, state = unpack(unseal(manifest))
        place = (log.name, log.incarnation, log.entries[seq - 1].parent)
        need(version == 1 and (name, incarnation, parent) == place, "a snapshot of another commit")
        ids = iter(struct.unpack(f">{len(packed) // 8}q", packed))
        for path, skip, counts in layout:
            items: list[Any] = []
            for count in counts:
                query = "SELECT data FROM leaves WHERE id = ?"
                leaf = unpack(unseal(db.execute(query, (next(ids),)).fetchone()[0]))
                need(len(leaf) == count, "a leaf of another length")
                items += leaf
            walk(state, path)[0:0] = items[skip:]
        yield seq, state


def unseal(data: bytes) -> bytes:
    need(sha256(data[16:]).digest()[:16] == data[:16], "a broken seal")
    return open_envelope(data[16:])


if __name__ == "__main__":
    for log in read_store(sys.argv[1])[0]:
        found = state_hash(log.state(log.entries[-1].seq))
        print(f"{log.name} ({log.incarnation}): {len(log.entries)} commits, {found}")
