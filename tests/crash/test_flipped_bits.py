"""One bit of a small store is flipped. It is found, or nothing is other than it was before."""

import datetime
import random
import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec import Struct

import perdure
from perdure.errors import PerdureError
from perdure.storage.sqlite.connection import checksum_vfs

SEED = 11
PAGE = 4096
BYTES_MAX = 20
"""Of one value, so many bytes are damaged, one at a time."""


@perdure.agent(dict)
def count_up(run: "perdure.Run[dict[str, Any]]", to: int) -> int:
    with run.edit("count") as draft:
        draft["counted"] = to
    return to


class Known(Struct, frozen=True):
    """What is known of a store from elsewhere: the root of each log, and what users were told."""

    roots: dict[str, str]
    told: list[Any]


def look(path: Path, roots: dict[str, str] | None = None) -> Known:
    """What users are told, of every state and every run. `roots`: the logs must end there."""
    told: list[Any] = []
    found: dict[str, str] = {}
    with perdure.open(path) as store:
        for info in store.agents():
            agent = store.agent_of(info)
            found[info.name] = agent.verify(anchor=roots[info.name] if roots else None).root
            states = [agent.at(seq).state for seq in range(1, info.seq + 1)]
            causes = [commit.cause for commit in agent.log()]
            told.append([info, states, causes, agent.branches(), agent.state])
        told.append([(run.id, run.status, run.result, run.ended) for run in store.runs()])
    return Known(found, told)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("flipped") / "store.db"
    with perdure.open(path, snapshots=perdure.SnapshotPolicy(every_commits=2)) as store:
        agent = store.agent("a")
        with agent.edit("begin", key="k") as draft:
            draft["when"] = datetime.date(2026, 8, 12)
            draft["items"] = [f"item {number}" for number in range(3000)]
        agent.checkpoint("point")
        agent.fork("other")
        assert store.run(count_up, "a", 3) == 3
        store.handle(store.start(count_up, "b", 4).id)
    return path


def values(path: Path, table: str, column: str) -> list[tuple[int, bytes]]:
    db = apsw.Connection(str(path), vfs=checksum_vfs())
    try:
        rows: Any = db.execute(f"SELECT id, {column} FROM {table}").fetchall()
        return [(place, value) for place, value in rows if value]
    finally:
        db.close()


def change(path: Path, table: str, column: str, place: int, value: bytes) -> None:
    """Write one cell, with right page checksums."""
    db = apsw.Connection(str(path), vfs=checksum_vfs())
    try:
        db.execute(f"UPDATE {table} SET {column} = ? WHERE id = ?", (value, place))
        assert db.changes() == 1
    finally:
        db.close()


def bits(value: bytes, rng: random.Random, most: int) -> list[bytes]:
    """The value with one bit flipped, in each of its bytes, or in so many of them."""
    places = range(len(value))
    chosen = places if len(value) <= most else sorted(rng.sample(places, most))
    flipped = []
    for place in chosen:
        whole = bytearray(value)
        whole[place] ^= 1 << rng.randrange(8)
        flipped.append(bytes(whole))
    return flipped


def noticed(copy: Path, known: Known) -> bool:
    """Whether the damage was found; where it was not, all must be as it was."""
    try:
        after = look(copy, known.roots)
    except PerdureError:
        return True
    assert after == known, "another answer than before, without a word"
    return False


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("commits", "header"),
        ("commits", "payload"),
        ("snapshots", "manifest"),
        ("snapshots", "leaf_ids"),
        ("leaves", "data"),
    ],
)
def test_i11_a_bit_of_what_is_stored_is_flipped(
    original: Path, tmp_path: Path, table: str, column: str
) -> None:
    """As a program could that writes through the page checksums: in each byte of the log's headers,
    salts and envelopes, and of snapshots; in some bytes of what is long."""
    rng, known = random.Random(f"{SEED} {column}"), look(original)
    found = []
    for place, value in values(original, table, column):
        for damaged in bits(value, rng, BYTES_MAX):
            copy = Path(shutil.copy(original, tmp_path / "store.db"))
            change(copy, table, column, place, damaged)
            found.append(noticed(copy, known))
    assert len(found) >= 8
    if table == "commits":
        assert all(found), "the log is the truth: any change of it is found"


def test_i11_i12_a_bit_of_any_page_is_flipped(original: Path, tmp_path: Path) -> None:
    """Every table and every index has pages of its own: a bit of each, as a disk would do it."""
    rng, known = random.Random(SEED), look(original)
    whole = original.read_bytes()
    found = []
    for page in range(len(whole) // PAGE):
        for _ in range(3):
            damaged = bytearray(whole)
            damaged[page * PAGE + rng.randrange(PAGE)] ^= 1 << rng.randrange(8)
            copy = tmp_path / "store.db"
            copy.write_bytes(damaged)
            found.append(noticed(copy, known))
            for end in ("-wal", "-shm"):
                Path(f"{copy}{end}").unlink(missing_ok=True)
    assert sum(found) > len(found) // 2  # some pages are read by nobody
