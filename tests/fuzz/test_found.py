"""What the fuzzers found, each told, and tried in its shortest form."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

import perdure
from perdure.adapters import ForeignLogs
from perdure.cli import naming, plain
from perdure.cli.failures import UsageError
from perdure.core.arguments.names import is_seq
from perdure.core.format import chain, dictionary, envelope
from perdure.core.values import codec, ops
from perdure.errors import Corrupt, NotFound, PerdureError, SchemaError, Unstorable
from perdure.integrations.langgraph import PerdureSaver
from perdure.integrations.langgraph.moving.serializer import Reader, Unread
from perdure.integrations.langgraph.values.built_in_kinds import BUILT_IN
from perdure.integrations.langgraph.values.rich_values import Coder
from perdure.model import Cause
from perdure.storage.answers import Standing
from perdure.storage.standing import read_why
from perdure.transfer.whole_log import LogEntry
from tests.cli.operator import Operator
from tests.fuzz.targets.logs import mended, parts_of

SALT = b"\0" * envelope.SALT_SIZE


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def entries(store: perdure.Store, name: str) -> list[LogEntry]:
    info = store.find(name)
    assert info is not None
    return list(store.export_log(info))


def refuse_records(records: Any) -> None:
    data = envelope.seal(msgspec.msgpack.encode([[], records]), SALT)
    with pytest.raises(Corrupt, match="payload is malformed"):
        chain.read_payload(data, envelope.digest(data))


@pytest.mark.parametrize(
    "record",
    [
        True,
        {},
        {"t": 1},
        {"t": "step", "run": []},
        {"t": "step"},
        {"t": "value", "place": "a#1"},
        {"t": "wait-began", "place": "a#1", "branches": [{"label": "x", "kind": "moon"}]},
        {"t": "run-started", "run": "r", "function": "f", "key": "k", "args": 7},
        {"t": "run-waiting", "run": "r", "wake_at": 2**63},
        {"t": "checkpoint", "name": 3},
        {"t": "run-finished", "run": "r", "status": "failed", "value": "no error"},
    ],
)
def test_records_of_another_type_are_refused_where_they_are_read(record: Any) -> None:
    """A log whose chain was right, with records that no program of ours wrote, was imported;
    `runs`, `why` and `report` met them later, as AttributeError, KeyError and TypeError."""
    refuse_records([record])


def test_records_that_are_not_known_are_nobodys_business() -> None:
    data = envelope.seal(codec.encode([[], [{"t": "later", "run": 7}, {"t": "lg", "m": []}]]), SALT)
    assert len(chain.read_payload(data, envelope.digest(data))[1]) == 2


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (2, 0),
        (2, 2**63),
        (5, 7),
        (7, ["x", "1", 0]),
        (9, None),
        (10, -1),
        (11, ["edit", {"w": 1}]),
        (11, ["edit", {"l": [1]}]),
    ],
)
def test_a_header_with_fields_of_other_types_is_refused(place: int, value: Any) -> None:
    """A branch that was a number, in a header whose hash was right, was taken in; then no list of
    that agent's branches could be sorted any more, and `verify` raised TypeError."""
    with perdure.open("memory://") as store:
        store.agent("a").save({"n": 1}, "made")
        entry = entries(store, "a")[0]
    fields = msgspec.msgpack.decode(entry.header)
    fields[place] = value
    with pytest.raises(Corrupt, match="malformed"):
        LogEntry(msgspec.msgpack.encode(fields), entry.payload).commit


@pytest.mark.parametrize("place", [1, 5])
def test_a_log_of_a_name_that_is_none_is_corrupt(place: int) -> None:
    """An agent, or a branch, of a thousand letters was taken in, and could neither be asked for
    nor deleted: its name is none."""
    with perdure.open("memory://") as store:
        store.agent("a").save({"n": 1}, "made")
        entry = entries(store, "a")[0]
    fields = msgspec.msgpack.decode(entry.header)
    fields[place] = "n" * 1000
    with perdure.open("memory://") as store:
        with pytest.raises(Corrupt, match="1 to 200 characters"):
            store.import_log([LogEntry(msgspec.msgpack.encode(fields), entry.payload)])
        assert list(store.agents()) == []


@pytest.mark.parametrize("text", ['{"a": ' * 3000 + "1" + "}" * 3000, "[" * 3000 + "]" * 3000])
def test_json_of_langgraph_that_is_nested_deep_is_not_read(text: str) -> None:
    """It raised RecursionError, in the middle of an import."""
    value = Reader({}).loads_typed(("json", text.encode()))
    assert isinstance(value, Unread)


@pytest.mark.parametrize("fields", [[1], [1, "a", 1, "one"], [1, *range(13)]])
def test_the_end_of_a_log_whose_header_has_other_fields_is_corrupt(fields: list[Any]) -> None:
    """A header of too few fields was an IndexError to whoever wrote next; and one with a text for
    its number would have been linked to."""
    with pytest.raises(Corrupt, match="header is malformed"):
        chain.tail_of(msgspec.msgpack.encode(fields), "a log")


def test_a_header_nested_deep_is_unreadable() -> None:
    """It raised RecursionError."""
    with pytest.raises(Corrupt, match="unreadable"):
        chain.read_header(b"\x91" * 5000 + b"\x90", "a header")


def test_sums_that_cannot_be_are_a_corrupt_commit() -> None:
    """An increment by 1e400, or by a signaling NaN, raised OverflowError and InvalidOperation."""
    for number, by in ((10**400, 0.5), (0.5, 10**400)):
        with pytest.raises(ops.OpError):
            ops.apply({"n": number}, ops.Increment(("n",), by))


@pytest.mark.parametrize("wire", [[3, [], -1, 0, []], [4, [], 0, -2, ""], [8, [], 0, -1]])
def test_ops_do_not_count_from_the_end(wire: list[Any]) -> None:
    """docs/format.md says that indexes are never negative; Python took them all the same, and a
    reader in another language would have come to another state."""
    with pytest.raises(ops.OpError):
        chain.from_wire(wire)


def test_a_log_that_tells_lies_of_its_undos_is_corrupt() -> None:
    """An undo that says that it took back what it did not made the next undo a KeyError."""
    with perdure.open("memory://") as store:
        agent = store.agent("a")
        agent.save({"n": 1, "way": "this"}, "made")
        with agent.edit("way") as draft:
            del draft["way"]
        with agent.edit("n") as draft:
            draft["n"] = 2
        agent.undo()
        parts = parts_of(entries(store, "a"))
    body = codec.encode([[chain.to_wire(ops.Set((), {"n": 5}))], []])
    with perdure.open("memory://") as store:
        store.import_log(mended([*parts[:-1], body]))
        agent = store.agent("a")
        with pytest.raises(PerdureError):
            for _ in range(4):
                agent.undo()


@pytest.mark.parametrize("frame_says", ["a lie", "nothing"])
def test_an_envelope_does_not_ask_for_room_that_it_cannot_need(frame_says: str) -> None:
    """Thirty bytes that announced a gigabyte, or nothing at all, made the reader ask for one: a
    MemoryError, where memory is limited."""
    known = dictionary.load(envelope.LEVEL)
    whole = zstandard.ZstdCompressor(dict_data=known, write_content_size=False).compress(b"x" * 200)
    if frame_says == "a lie":
        # Frame header descriptor: one segment, content size in 4 bytes; then an empty raw block.
        whole = zstandard.MAGIC_NUMBER.to_bytes(4, "little") + b"\xa0" + b"\xff\xff\xff\x3f\x01\0\0"
    head = envelope._HEADS[envelope.ZSTD | envelope.DICTIONARY]
    with pytest.raises(Corrupt, match="absurd size"):
        envelope.open_envelope(head + SALT + dictionary.ID + whole, "an envelope")


def test_the_most_that_zstd_can_pack_is_read() -> None:
    body = b"\0" * (64 << 20)
    assert envelope.open_envelope(envelope.seal(body), "an envelope") == body


def test_a_value_nested_too_deep_to_be_written_says_so() -> None:
    """A made-up log can hold one; its snapshot, or its hash, raised RecursionError."""
    with pytest.raises(Unstorable, match="nested too deep"):
        codec.encode(nested(5000))


def test_cursors_that_are_none(tmp_path: Path) -> None:
    """A mail cursor of 5,000 digits raised ValueError, for Python reads no such number; and 100 kB
    of a feed cursor unpacked to 100 MB, or named an agent that SQLite cannot count to."""
    import base64
    import zlib

    def packed(data: bytes) -> str:
        return base64.urlsafe_b64encode(zlib.compress(data)).decode()

    far = msgspec.msgpack.encode([[1], 2**60, b"x"])
    with perdure.open(tmp_path / "store.db") as one, perdure.open("memory://") as two:
        for store in (one, two):
            store.agent("a").save({"n": 1}, "made")
            backend = store.runner._context.backend
            for cursor in (packed(far), packed(b"\0" * 10_000_000), "9" * 5000):
                with pytest.raises(NotFound):
                    backend.feed(cursor)
            with pytest.raises(NotFound):
                backend.mail("9" * 5000)


def test_what_a_standing_says_may_be_nested_deep() -> None:
    """It raised RecursionError."""
    why = read_why(Standing(True, "[" * 5000))
    assert why is not None and why.kind == "unknown"


def test_a_thread_whose_writes_point_at_themselves_is_corrupt() -> None:
    """`get_tuple` went on for ever: the writes of a commit were for that very commit."""
    record = {"t": "lg-writes", "on": 1, "task": "t", "path": "", "writes": []}
    with perdure.open("memory://") as store:
        state: dict[str, Any] = {"values": {}, "versions": {}, "seen": {}}
        threads = ForeignLogs(store.runner._context, "langgraph.thread", (1, 0))
        threads.create("t", state, Cause("put"))
        header = entries(store, "t")[0].header
        body = codec.encode([[chain.to_wire(ops.Set((), {}))], [record]])
    with perdure.open("memory://") as store:
        store.import_log(mended([header, body]))
        with pytest.raises(Corrupt, match="malformed"):
            PerdureSaver(store).get_tuple({"configurable": {"thread_id": "t"}})


@pytest.mark.parametrize(
    "value",
    [
        {"@": []},
        {"@": 7},
        [{"@": {}}],
        {"@": "Send", "node": "n"},
        {"@": "dict"},
        {"@": "Pattern", "pattern": "(", "flags": 0},
        {"@": "ZoneInfo", "text": 7},
    ],
)
def test_rich_values_that_are_none_are_schema_errors(value: Any) -> None:
    """They were TypeError, KeyError, AttributeError and re.error of `get_tuple`."""
    with pytest.raises(SchemaError):
        Coder(BUILT_IN).decode(value)


def test_bytes_of_a_command_line_that_are_no_text(tmp_path: Path) -> None:
    """They were an unexpected error: UnicodeEncodeError, from SQLite."""
    with perdure.open(tmp_path / "store.db") as store:
        store.agent("a").save({"n": 1}, "made")
    where = str(tmp_path / "store.db")
    command: list[str | bytes] = [
        sys.executable,
        "-m",
        "perdure",
        "show",
        b"\xff",
        "--store",
        where,
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "no lone surrogate" in done.stderr


def test_numbers_of_many_digits(tmp_path: Path) -> None:
    """`state` and `export --state` refused a state with 10**5000 in it, as a wrong command line:
    Python writes no such number; `-n` with thirty digits spoke of islice()."""
    operator = Operator(tmp_path / "store.db")
    with perdure.open(operator.path) as store:
        store.agent("a").save({"n": 10**5000}, "made")
    assert plain.from_json(operator.json("state", "a")["state"]) == {"n": 10**5000}
    assert "0x" in operator.see("log", "a", "-p")
    assert operator.refused("log", "a", "-n", "9" * 30)[0] == 2
    assert operator.refused("state", "a", "--at", "9" * 5000)[0] == 3
    assert not is_seq("9" * 5000)


def test_typed_values_nested_deep_and_lengths_of_time_without_end() -> None:
    """The one raised RecursionError; the other looked for its end for hours: 60,000 digits."""
    with pytest.raises(UsageError):
        naming.value_of("VALUE", "[" * 5000)
    with pytest.raises(UsageError):
        naming.age("--older", "9" * 60_000)
