"""Makes what the fuzzers begin with: `python -m tests.fuzz.make_corpus`. Run it when a format or a
command is added; inputs that once found a bug (`found-…`) stay as they are.

What is whole is taken from the fixture of the current format, which has a little of everything.
"""

from __future__ import annotations

import json
import shlex
import struct
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import apsw
import msgspec
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver

import perdure
from perdure.cli.portable import write_log
from perdure.core.format import chain, envelope
from perdure.core.values import codec, ops
from perdure.integrations.langgraph import PerdureSaver
from perdure.integrations.langgraph.values.built_in_kinds import BUILT_IN
from perdure.integrations.langgraph.values.rich_values import Coder
from perdure.storage.log import snapshots
from perdure.storage.sqlite.connection import checksum_vfs
from tests.cli import langgraph_graphs as graphs
from tests.compat.make_fixture import VALUES
from tests.fuzz.inputs import CORPUS, pack
from tests.fuzz.mutating import Parts
from tests.fuzz.targets.command_lines import LINES
from tests.fuzz.targets.files import FIXTURE, TABLES, fresh
from tests.fuzz.targets.logs import parts_of

LOG_MAX = 20_000
KEPT = "found-"


def put(target: str, inputs: Iterable[tuple[str, Parts]]) -> None:
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if not path.name.startswith(KEPT):
            path.unlink()
    for name, parts in inputs:
        (folder / name).write_bytes(pack(parts))


def texts(*words: str) -> list[tuple[str, Parts]]:
    return [(f"{number:02}", [word.encode()]) for number, word in enumerate(words)]


def put_bytes(store: perdure.Store) -> None:
    put("values", [(name, [codec.encode(value)]) for name, value in VALUES.items()])
    bodies: dict[str, bytes] = {}
    headers: dict[str, bytes] = {}
    for info in store.agents():
        for entry in store.export_log(info):
            body = envelope.open_envelope(entry.payload, "a payload")
            kinds = "-".join(str(record["t"]) for record in entry.commit.records[:3])
            if len(body) < 3000:
                bodies.setdefault(f"{entry.commit.cause.kind}-{kinds}", body)
                headers.setdefault(entry.commit.cause.kind, entry.header)
    put("payloads", [(name, [body]) for name, body in bodies.items()])
    put("headers", [(name, [header]) for name, header in headers.items()])
    short, long = b"\x92\x90\x90", codec.encode(["a text that comes again and again"] * 30)
    put("envelopes", [(str(len(body)), [envelope.seal(body)]) for body in (short, long, long * 40)])


def put_snapshot() -> None:
    state = {"n": 1, "messages": [{"n": n} for n in range(1100)], "nested": [[0], [list("ab")]]}
    stored, _ = snapshots.write(state, snapshots.Leaves(), "a", 1, 1)
    sealed = [stored.manifest, *(stored.leaves[one] for one in stored.leaf_ids)]
    opened = [envelope.open_envelope(data[snapshots.SEAL_SIZE :], "a part") for data in sealed]
    put("snapshots", [("long-list", opened)])


def put_remains() -> None:
    state = {"n": 1, "log": ["a", None, 2**70]}
    delta = [chain.to_wire(ops.Set((), state))]
    put("remains", [("state", [codec.encode([delta, []]), codec.encode(state)])])


def put_logs(store: perdure.Store) -> None:
    logs, files = [], []
    for info in store.agents():
        entries = list(store.export_log(info))
        parts = parts_of(entries)
        if sum(map(len, parts)) < LOG_MAX:
            logs.append((info.name, parts))
    for name in ("gone", "desk", "order"):
        info = next(one for one in store.agents() if one.name == name)
        with tempfile.TemporaryFile() as stream:
            write_log(info, store.export_log(info), stream, progress=lambda done, total: None)
            stream.seek(0)
            files.append((name, stream.read().splitlines()))
    put("logs", logs)
    put("portable", files)


def put_cells() -> None:
    """Of each table, all cells of a row; so that one of them is changed, and then some more."""
    db = apsw.Connection(str(fresh(FIXTURE.read_bytes())), vfs=checksum_vfs())
    inputs = []
    for table, name in enumerate(TABLES):
        rows: list[Any] = db.execute(f"SELECT * FROM {name} LIMIT 3").fetchall()
        for number, row in enumerate(rows):
            cells = [
                msgspec.msgpack.encode([table, column, number, value])
                for column, value in enumerate(row)
                if type(value) is not bytes or len(value) < 3000
            ]
            inputs.append((f"{name}-{number}", cells))
    db.close()
    put("cells", inputs)
    size = len(FIXTURE.read_bytes())
    places = [0, 16, 18, 20, 28, 40, 60, 68, 92, 100, *range(4096, size, 8192)]
    damage = [struct.pack("<BI", right, at) + b"\xff" for at in places for right in (0, 1)]
    put("pages", [("header", damage[:2]), *((f"{n:02}", [one]) for n, one in enumerate(damage))])


def put_texts(store: perdure.Store) -> None:
    put(
        "urls",
        texts(
            "agents.db",
            "sqlite:///agents.db",
            "sqlite:////no/such/agents.db",
            "memory://",
            "",
            "memory://name",
            "postgresql://user:secret@host:5432/db?schema=perdure&pool_size=4",
            "postgres://host1,host2:1,2/db?deadline=1.5&retry=0&sslpassword=x",
            "mysql://host/db",
            "postgresql://[::1]/d?partitions=8&options=-c%20x%3D1",
            "sqlite:///a?b#c",
            ":memory:",
        ),
    )
    cursor = store.runner._context.backend.feed("").cursor
    put(
        "cursors",
        texts(
            cursor,
            "",
            "1",
            "9" * 30,
            "1.2.3.4.5",
            "abc.1.2",
            "eJw=",
            "shop/support/main",
            "ticket-42",
        ),
    )
    put(
        "standings",
        texts(
            '{"kind":"follows","url":"postgresql://h/d","feed":"x","mail":"1","at":1,"until":2}',
            '{"kind":"moved"}',
            '{"kind":"later"}',
            '{"kind":"here","at":-1}',
        ),
    )
    put(
        "words",
        texts(
            "90s",
            "1h30m",
            "2.5d",
            "hello there",
            "true",
            '{"a": [1, 2.5, null]}',
            '"text"',
            "1e400",
            '{"$datetime": "2026-08-12T14:03:22+02:00[Europe/Vienna][fold=1]"}',
            '{"$decimal": "1.10"}',
            '{"$timedelta": [1, 2, 3]}',
            '{"$bytes": "AAA="}',
            '{"$set": [1, {"$tuple": [1]}]}',
            '{"$map": [[1, 2], [{"$uuid": "12345678-1234-5678-1234-567812345678"}, 3]]}',
            '{"$float": "nan"}',
            '{"$time": "14:03"}',
            '{"$date": "2026-01-01"}',
        ),
    )
    put(
        "commands",
        [
            (f"{number:02}", [word.encode() for word in shlex.split(line)])
            for number, line in enumerate(LINES)
        ],
    )


def put_threads() -> None:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "threads.sqlite")
        with SqliteSaver.from_conn_string(str(path)) as saver:
            graphs.fill(saver)
            serde, coder = JsonPlusSerializer(), Coder(BUILT_IN)
            rows = saver.conn.execute("SELECT type, value FROM writes ORDER BY length(value)")
            pairs = {value: [kind.encode(), value] for kind, value in rows if len(value) < 2000}
            rows = saver.conn.execute("SELECT type, checkpoint FROM checkpoints ORDER BY 2 LIMIT 4")
            pairs |= {value: [kind.encode(), value] for kind, value in rows}
            old = {"lc": 2, "type": "constructor", "id": ["uuid", "UUID"], "args": ["1" * 32]}
            pairs[b""] = [b"json", json.dumps({"a": [old]}).encode()]
            chosen = list(pairs.values())[:: max(1, len(pairs) // 20)]
            put("langgraph-values", [(f"{n:02}", parts) for n, parts in enumerate(chosen)])
            plain = [
                codec.encode(coder.encode(serde.loads_typed((kind.decode(), data)), ()))
                for kind, data in chosen
            ]
            put("langgraph-plain", [(f"{n:02}", [data]) for n, data in enumerate(plain)])
        with perdure.open("memory://") as store:
            graphs.fill(PerdureSaver(store))
            logs = [
                (info.name.replace("/", "-"), parts_of(list(store.export_log(info))))
                for info in store.agents()
            ]
    put("langgraph-threads", [one for one in logs if sum(map(len, one[1])) < LOG_MAX])
    cells = [
        msgspec.msgpack.encode([table, column, 0, b"x"]) for table in (0, 1) for column in range(8)
    ]
    put("langgraph-source", [(f"{n:02}", [cell]) for n, cell in enumerate(cells)])


def main() -> None:
    with perdure.open(fresh(FIXTURE.read_bytes())) as store:
        put_bytes(store)
        put_logs(store)
        put_texts(store)
    put_snapshot()
    put_remains()
    put_cells()
    put_threads()


if __name__ == "__main__":
    main()
