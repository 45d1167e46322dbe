"""The write-ahead log as a file: where it ends, what is damage in it, and its room for more."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import apsw
import pytest

import perdure
from perdure.errors import Corrupt
from perdure.storage.sqlite.backend import SqliteBackend
from perdure.storage.sqlite.frames import SECTOR, WAL_HEADER_SIZE
from perdure.storage.sqlite.wal import FRAME_SIZE
from perdure.testing.contract.backend import Pen
from perdure.testing.faults import FaultyFiles, Operation, no_fault


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "store.db")


def frames_of(path: str) -> bytes:
    """The WAL of a store in use up to its last frame, without the room behind it."""
    wal = Path(path + "-wal").read_bytes()
    used = len(wal.rstrip(b"\0")) - WAL_HEADER_SIZE
    return wal[: WAL_HEADER_SIZE - (-used // FRAME_SIZE) * FRAME_SIZE]


@contextmanager
def written(path: str) -> Iterator[str]:
    """Twenty commits in a store that is in use until the end; gives the path of a copy of its file,
    whose WAL is still to be written."""
    backend = SqliteBackend(path)
    pen = Pen(backend)
    for n in range(20):
        pen.write(value=n)
    copy = path.replace("store", "copy")
    shutil.copy(path, copy)
    yield copy
    backend.close()


def seqs_of(path: str, no: int = 1) -> list[int]:
    backend = SqliteBackend(path)
    try:
        backend.maintain("check")
        return [row.seq for row in backend.read(no, 1, 10_000)]
    finally:
        backend.close()


def test_i11_damage_in_the_middle_of_the_wal_is_no_end(path: str) -> None:
    """SQLite takes the first WAL frame with a bad checksum for the end of the log: acknowledged
    commits behind it vanished without a word."""
    with written(path) as copy:
        wal = bytearray(frames_of(path))
        wal[len(wal) // 2] ^= 1
        Path(copy + "-wal").write_bytes(wal)
        with pytest.raises(Corrupt, match="write-ahead log"):
            SqliteBackend(copy)
        assert Path(copy + "-wal").read_bytes() == bytes(wal), "the evidence must stay"


@pytest.mark.parametrize("byte", range(WAL_HEADER_SIZE))
@pytest.mark.parametrize("bit", [0, 7])
def test_i11_a_flipped_bit_in_the_header_is_no_empty_wal(path: str, byte: int, bit: int) -> None:
    """In the salt, by which the frames are told from those of before: SQLite took the WAL for
    empty, and the next write was over all that had been acknowledged."""
    with written(path) as copy:
        wal = bytearray(frames_of(path))
        wal[byte] ^= 1 << bit
        Path(copy + "-wal").write_bytes(wal)
        with pytest.raises(Corrupt, match="write-ahead log"):
            SqliteBackend(copy)
        assert Path(copy + "-wal").read_bytes() == bytes(wal), "the evidence must stay"


@pytest.mark.parametrize("frame", [0, 1, 10, 21])
@pytest.mark.parametrize("create", [True, False])
def test_i11_damage_in_the_transaction_that_made_the_tables(
    path: str, frame: int, create: bool
) -> None:
    """One flipped bit, and a store that had not been closed yet was an empty file to SQLite: it was
    made a new store, over all that had been acknowledged, without a word."""
    with written(path) as copy:
        damaged = bytearray(frames_of(path))
    damaged[WAL_HEADER_SIZE + frame * FRAME_SIZE + 100] ^= 1 << 3
    Path(copy + "-wal").write_bytes(damaged)
    with pytest.raises(Corrupt, match="damaged, with commits behind it"):
        SqliteBackend(copy, create=create)
    assert Path(copy + "-wal").read_bytes() == damaged


def test_what_is_left_of_a_file_that_was_being_made_is_no_damage(path: str) -> None:
    with written(path) as copy:
        first = frames_of(path)
    Path(copy + "-wal").write_bytes(first[: WAL_HEADER_SIZE + 5 * FRAME_SIZE])
    backend = SqliteBackend(copy)
    Pen(backend).write(value=1)
    backend.close()


def test_a_torn_last_transaction_is_a_crash_and_no_damage(path: str) -> None:
    with written(path) as copy:
        wal = frames_of(path)
        Path(copy + "-wal").write_bytes(wal[: len(wal) - 2000])
        assert len(seqs_of(copy)) == 19


def test_a_torn_header_with_an_older_mark_is_a_crash_and_no_damage(
    path: str, tmp_path: Path
) -> None:
    """A power cut tore the first header of a transaction where a sector began behind its mark: in
    front of the new salts and checksums stood the mark of a commit of the log's last round. What
    came behind seemed to go on from an acknowledged commit, and the store called itself damaged.
    (A frame in 64 lies so. Power cuts by the ten thousand had not met one.)"""
    backend = SqliteBackend(path)
    pen = Pen(backend)
    count, begin = 0, 0
    while begin == 0 or begin % SECTOR != SECTOR - 8:  # where the last transaction's header is
        begin = len(frames_of(path))
        pen.write(value=count)
        count += 1
    wal = bytearray(frames_of(path))
    assert len(wal) >= begin + 2 * FRAME_SIZE, "one of several frames"
    copy = str(tmp_path / "copy.db")
    shutil.copy(path, copy)
    wal[begin : begin + 8] = (15).to_bytes(4, "big") + (28).to_bytes(4, "big")
    Path(copy + "-wal").write_bytes(wal)
    backend.close()
    assert len(seqs_of(copy)) == count - 1


@pytest.mark.parametrize("zeros", [0, 1, 2000, 3 * FRAME_SIZE])
def test_i11_zeros_behind_the_last_frame_are_its_end(path: str, zeros: int) -> None:
    """The WAL is made longer ahead of its use. A machine that dies then leaves zeros behind the
    last frame, as far as they got."""
    with written(path) as copy:
        Path(copy + "-wal").write_bytes(frames_of(path) + bytes(zeros))
        assert len(seqs_of(copy)) == 20


def test_a_commit_finds_its_room_in_the_wal(path: str) -> None:
    """Each commit made the file longer, and its sync had to make that durable, too, which took as
    long again. (What was to make room first asked SQLite to write more than it takes at once, and
    the refusal looked like a full disk: nothing was gained, and nothing said so.)"""
    backend = SqliteBackend(path)
    pen = Pen(backend)
    sizes = [os.path.getsize(path + "-wal")]
    for n in range(300):
        pen.write(value=n)
        sizes.append(os.path.getsize(path + "-wal"))
    longer = sum(after > before for before, after in pairwise(sizes))
    assert sizes[-1] > 1_000_000
    assert longer <= sizes[-1] // 100_000
    assert 0 < sizes[-1] - len(frames_of(path)) < 200_000, "no more than is soon used"
    backend.close()


def test_a_commit_that_finds_no_room_ahead_makes_its_own(path: str) -> None:
    """A disk that has room for a commit, and not for what is written ahead of it: no commit is
    refused for that."""
    files = FaultyFiles()
    refused = used = 0

    def nearly_full(operation: Operation, name: str, end: int) -> None:
        nonlocal refused
        if name.endswith("-wal") and end > used + 40_000:
            refused += 1
            raise apsw.FullError("database or disk is full")

    backend = SqliteBackend(path, vfs=files.name)
    pen = Pen(backend)
    files.fault = nearly_full
    for n in range(20):
        used = len(frames_of(path))
        pen.write(value=n)
    assert refused > 10
    assert os.path.getsize(path + "-wal") <= used + 40_000
    files.fault = no_fault
    backend.close()
    assert len(seqs_of(path)) == 20


def test_room_is_made_behind_what_others_wrote(path: str) -> None:
    """Two processes' connections write in turns. What one makes room by lies behind the frames of
    both, wherever it believed the file to end."""
    first, second = SqliteBackend(path), SqliteBackend(path)
    pens = Pen(first, agent="a"), Pen(second, agent="b")
    rng = random.Random(5)
    written = [0, 0]
    for n in range(60):
        for _ in range(rng.randint(1, 20)):
            pens[n % 2].write(value=rng.randbytes(rng.choice((10, 5000))).hex())
            written[n % 2] += 1
    second.close()
    kept = {end: Path(path + end).read_bytes() for end in ("", "-wal")}
    first.close()
    for end, content in kept.items():  # as a machine that died would have left it
        Path(path + end).write_bytes(content)
    assert [len(seqs_of(path, no)) for no in (1, 2)] == written


def test_what_writers_left_that_were_killed_before_they_published_it_is_no_damage(
    path: str, tmp_path: Path
) -> None:
    """Three writers in a row were killed between writing their frames and telling the others of
    them, each in a smaller commit than the one before. What was left of the first two looked like
    commits behind a damaged one, and nobody could open the store any more: it was `Corrupt`."""
    with perdure.open(path) as store:
        store.agent("a").update(lambda draft: draft.update(n=0))
        base = {end: Path(path + end).read_bytes() for end in ("", "-wal")}
    whole = b""
    for number, size in enumerate((40_000, 20_000, 10)):
        copy = str(tmp_path / f"copy-{number}.db")
        for end, content in base.items():
            Path(copy + end).write_bytes(content)
        with perdure.open(copy) as store:
            data = random.Random(size).randbytes(size)  # nothing that compresses
            with store.agent("a").edit("the same place, another commit") as draft:
                draft["data"] = data
            wal = frames_of(copy)
        assert wal.startswith(base["-wal"][:32])
        whole = wal + whole[len(wal) :]  # each writes over what the one before left
    left = str(tmp_path / "left.db")
    Path(left).write_bytes(base[""])
    Path(left + "-wal").write_bytes(whole)
    with perdure.open(left) as store:
        assert len(store.agent("a").state["data"]) == 10
        store.agent("a").verify()
