"""A damaged WAL, and the way back from it: `repair --take-incomplete` takes all that it proves."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure
from perdure.errors import Corrupt, StoreUnavailable
from perdure.storage.sqlite import wal_salvage
from perdure.storage.sqlite.alone import locked
from perdure.storage.sqlite.frames import SECTOR, WAL_HEADER_SIZE, checksum
from perdure.storage.sqlite.keeping import copy_beside
from perdure.storage.sqlite.wal import FRAME_SIZE
from perdure.storage.sqlite.wal_mending import flipped_bits
from tests.cli.operator import Operator

HINT = "`perdure repair --take-incomplete`"
Heads = dict[str, tuple[str, int]]


class Files:
    """A store's file and its WAL, as a machine leaves them that died: five agents are in the file,
    and thirty commits of these and of six more in the WAL, some of several pages."""

    def __init__(self, folder: Path, *, moved: bool) -> None:
        folder.mkdir()
        path, rng = folder / "store.db", random.Random(4)
        with perdure.open(path) as store:
            for number in range(15):
                store.agent(f"old {number % 5}").save({"n": number})
            store._context.backend.maintain("clean")
            for number in range(30):
                kind = "old" if number % 3 == 0 else "new"
                with store.agent(f"{kind} {number % (5 + (kind == 'new'))}").edit(
                    "step", key=f"k {number}"
                ) as draft:
                    draft["data"] = rng.randbytes(rng.choice((10, 300, 6000)))
            if moved:
                db: Any = store._context.backend
                db._writer._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            self.main = path.read_bytes()
            wal = Path(f"{path}-wal").read_bytes()
        self.count = -(-(len(wal.rstrip(b"\0")) - WAL_HEADER_SIZE) // FRAME_SIZE)
        self.wal = wal[: WAL_HEADER_SIZE + self.count * FRAME_SIZE]
        self.path = folder / "left.db"
        self.put(self.wal)
        self.heads = heads(self.path)

    def put(self, wal: bytes) -> Path:
        """Lays them there, with this WAL; and nothing else."""
        for one in self.path.parent.iterdir():
            shutil.rmtree(one) if one.is_dir() else one.unlink()
        self.path.write_bytes(self.main)
        Path(f"{self.path}-wal").write_bytes(wal)
        return self.path

    def flipped(self, place: int, bit: int) -> Path:
        wal = bytearray(self.wal)
        wal[place] ^= 1 << bit
        return self.put(bytes(wal))

    def without(self, place: int) -> Path:
        """With zeros in place of a sector."""
        wal, begin = bytearray(self.wal), place // SECTOR * SECTOR
        wal[begin : begin + SECTOR] = bytes(SECTOR)
        return self.put(bytes(wal))

    def are_as_they_were(self, wal: bytes) -> bool:
        left = Path(f"{self.path}-wal")
        return self.path.read_bytes() == self.main and left.read_bytes() == wal


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("salvage") / "here", moved=False)


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """All of the WAL is in the file, too, but nobody has begun it anew."""
    return Files(tmp_path_factory.mktemp("salvage") / "moved", moved=True)


def heads(path: Path) -> Heads:
    """Each agent's root and seq; of a damaged one only the seq."""
    told: Heads = {}
    with perdure.open(path) as store:
        store.check_pages()
        for info in store.agents():
            try:
                told[info.name] = store.agent_of(info).verify().root, info.seq
            except Corrupt:
                told[info.name] = "damaged", info.seq
    return told


def frame(number: int, byte: int = 0) -> int:
    return WAL_HEADER_SIZE + number * FRAME_SIZE + byte


def repaired(files: Files) -> set[str]:
    """Opens the store, which is refused, and does what the hint says; the agents that it names."""
    wal = Path(f"{files.path}-wal").read_bytes()
    with pytest.raises(Corrupt, match="damaged, with commits behind it") as refused:
        perdure.open(files.path, create=False)
    assert HINT in refused.value.hint
    with pytest.raises(Corrupt, match=HINT):
        perdure.repair(files.path)
    assert files.are_as_they_were(wal)
    found = perdure.repair(files.path, take_incomplete=True)
    for end, content in ("", files.main), ("-wal", wal):
        kept = Path(f"{files.path}-damaged{end}")
        assert kept.read_bytes() == content
        assert kept.stat().st_mode == files.path.stat().st_mode
    return {one.agent for one in found if one.damages}


BYTES = [*range(0, 32, 3), frame(0, 2), frame(0, 6), frame(0, 9), frame(0, 17), frame(0, 900)]
BYTES += [frame(20, byte) for byte in (0, 5, 8, 15, 16, 23, 24, 2000, FRAME_SIZE - 1)]


@pytest.mark.parametrize("place", BYTES)
def test_i11_a_flipped_bit_in_the_wal_costs_what_it_is_on(files: Files, place: int) -> None:
    """Story: one bit of the WAL was flipped, and from then on each command refused the whole store:
    the repair, too. Nothing was wrong with any commit before it, nor with most behind it."""
    for bit in (0, 4, 7):
        files.flipped(place, bit)
        named = repaired(files)
        found = heads(files.path)
        assert {name for name in files.heads if found.get(name) != files.heads[name]} <= named
        with perdure.open(files.path) as store:
            for name in found.keys() - named:
                store.agent(name).save({"goes": "on"})


def test_i11_a_random_bit(files: Files, moved: Files) -> None:
    """Also where all of it was moved into the file: commits before the damage, and the pages of
    later ones in the file, were read as a mixture of two moments."""
    rng, whole, tried = random.Random(3), 0, 40
    for number in range(tried):
        one = (files, moved)[number % 2]
        at = rng.randrange(len(one.wal))
        one.flipped(at, rng.randrange(8))
        try:
            found, named = heads(one.path), set[str]()
        except Corrupt:
            named = repaired(one)
            found = heads(one.path)
        else:  # the last transaction, which may be one that was torn
            (last,) = (set(one.heads.items()) - set(found.items())) or [(0, 0)]
            named = {str(last[0])}
        lost = {name for name in one.heads if found.get(name) != one.heads[name]}
        assert lost <= named, (number, at)
        whole += not lost
    assert whole > tried * 3 // 4


def test_i11_a_lost_sector_costs_what_is_behind_it_and_that_is_said(files: Files) -> None:
    """Not even the page's number is left of a frame: what is behind it fits to nothing."""
    number = files.count // 2
    files.without(frame(number, 8))
    named = repaired(files)
    found = heads(files.path)
    lost = {name for name in files.heads if found.get(name) != files.heads[name]}
    assert lost and lost <= named
    assert all(root != "damaged" for root, _ in found.values())
    in_the_file = 5 * 4
    assert sum(seq for _, seq in found.values()) > in_the_file, "what is before it is kept"


@pytest.mark.parametrize("number", range(0, 60, 7))
def test_i11_a_lost_sector_of_a_wal_that_is_in_the_file(moved: Files, number: int) -> None:
    moved.without(frame(number, 8))
    assert not repaired(moved)
    assert heads(moved.path) == moved.heads


def test_i11_zeros_for_a_header_are_no_empty_wal(files: Files) -> None:
    """Story: a disk lost the first sector of a WAL. SQLite took it for an empty one, and the next
    write was over all that had been acknowledged."""
    files.without(0)
    assert {name for name in files.heads if name.startswith("new")} <= repaired(files)
    assert heads(files.path).keys() == {name for name in files.heads if name.startswith("old")}


def test_i4_no_token_is_given_twice(files: Files) -> None:
    """A lease that was taken behind the cut is known to nobody any more; but to a tool, which
    refuses tokens that are older than the last one it saw."""
    files.without(frame(files.count // 2, 8))
    repaired(files)
    db = apsw.Connection(str(files.path))
    try:
        epochs = [int(epoch) for (epoch,) in db.execute("SELECT epoch FROM refs")]
    finally:
        db.close()
    assert epochs and min(epochs) >= 1000
    assert not any(one.damages for one in perdure.repair(files.path))


class Dies(BaseException):
    """The process is killed."""


class Mortal:
    """The main file of a process that dies at one of its writes."""

    def __init__(self, main: apsw.VFSFile, at: int) -> None:
        self._main, self._left = main, at

    def __getattr__(self, name: str) -> Any:
        if name in ("xWrite", "xTruncate", "xSync"):
            self._left -= 1
            if self._left < 0:
                raise Dies
        return getattr(self._main, name)


@pytest.mark.parametrize("sector", [False, True])
def test_i1_killed_at_any_moment_it_is_made_again(
    files: Files, monkeypatch: pytest.MonkeyPatch, sector: bool
) -> None:
    place = frame(files.count // 2, 8)
    damage = files.without if sector else lambda place: files.flipped(place, 3)
    damage(place)
    repaired(files)
    wanted = heads(files.path)
    for at in range(0, 200, 3):
        damage(place)
        wal = Path(f"{files.path}-wal").read_bytes()

        @contextmanager
        def mortal(path: str, at: int = at) -> Iterator[Any]:
            with locked(path) as main:
                yield Mortal(main, at)

        with monkeypatch.context() as patch:
            patch.setattr(wal_salvage, "locked", mortal)
            if at == 0:
                patch.setattr(wal_salvage, "_move", _die)
            try:
                wal_salvage.salvage(str(files.path))
                break
            except Dies:
                pass
        assert Path(f"{files.path}-damaged").read_bytes() == files.main
        assert Path(f"{files.path}-wal").read_bytes() == wal
        with pytest.raises(Corrupt, match=HINT):
            perdure.open(files.path)
        perdure.repair(files.path, take_incomplete=True)
        assert heads(files.path) == wanted
    assert 3 < at < 190


def _die(*_: Any) -> None:
    raise Dies


def test_a_wal_that_is_in_use_is_left_alone(files: Files) -> None:
    files.put(files.wal)
    with perdure.open(files.path) as store:
        wal = bytearray(files.wal)
        wal[frame(5, 100)] ^= 1
        Path(f"{files.path}-wal").write_bytes(wal)
        with pytest.raises(StoreUnavailable, match="another process has it open"):
            wal_salvage.salvage(str(files.path))
        assert files.are_as_they_were(bytes(wal))
        Path(f"{files.path}-wal").write_bytes(files.wal)
        assert store.agents()


FULL = """
import resource, sys
import perdure
from perdure.errors import PerdureError
limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    perdure.repair(sys.argv[1], take_incomplete=True)
except PerdureError as error:
    print(type(error).__name__)
"""


def test_where_there_is_no_room_nothing_is_changed(files: Files) -> None:
    """For the copy of the file, for that of the WAL, for the pages in the file."""
    shorter, longer = sorted((len(files.main), len(files.wal)))
    for limit in (shorter // 2, shorter + 100, longer // 2 + shorter):
        files.flipped(frame(9, 100), 3)
        wal = Path(f"{files.path}-wal").read_bytes()
        said = subprocess.run(
            [sys.executable, "-c", FULL, str(files.path), str(limit)],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        assert said.strip() == "StoreUnavailable"
        assert Path(f"{files.path}-wal").read_bytes() == wal
        assert not [*files.path.parent.glob("*.part")]
        perdure.repair(files.path, take_incomplete=True)
        assert heads(files.path) == files.heads


def test_a_wal_with_a_damaged_header_of_another_store_is_not_moved_in(files: Files) -> None:
    """Nothing in a WAL says which file it belongs to, but for one row."""
    files.put(files.wal)
    with perdure.open(files.path) as store:
        store.agent("old 1").save({"later": True})
    later = files.path.read_bytes()
    files.flipped(9, 3)
    files.path.write_bytes(later)
    with pytest.raises(Corrupt, match="a mixture of two moments"):
        perdure.repair(files.path, take_incomplete=True)
    assert files.path.read_bytes() == later


def test_where_the_tables_are_nowhere_else(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with perdure.open(path) as store:
        store.agent("a").save({"n": 1})
        store.agent("a").save({"n": 2})
        copy = tmp_path / "copy.db"
        shutil.copy(path, copy)
        wal = bytearray(Path(f"{path}-wal").read_bytes())
    wal[: 3 * SECTOR] = bytes(3 * SECTOR)
    Path(f"{copy}-wal").write_bytes(wal)
    with pytest.raises(Corrupt, match=HINT):
        perdure.open(copy)
    with pytest.raises(Corrupt, match="restore the store from a copy"):
        perdure.repair(copy, take_incomplete=True)
    assert Path(f"{copy}-wal").read_bytes() == bytes(wal)
    assert sorted(one.name for one in tmp_path.glob("copy.db*")) == ["copy.db", "copy.db-wal"]


def test_the_command_line_says_it(files: Files) -> None:
    operator = Operator(files.path)
    files.flipped(frame(9, 100), 3)
    code, said = operator.refused("ls")
    assert code == 5 and "repair --take-incomplete`" in said
    told = operator.json("repair", "--take-incomplete")
    assert told["complete"] and "frame 10 of its write-ahead log was damaged" in told["mended"]
    assert told["copy"] == f"{files.path}-damaged"
    files.without(frame(files.count // 2, 8))
    told = operator.json("repair", "--take-incomplete")
    assert not told["complete"] and "it was cut there" in told["mended"]
    lost = [one["damages"][0] for one in told["agents"] if "damages" in one]
    assert lost and all("behind the damage of the write-ahead log" in one for one in lost)


def test_a_copy_takes_no_name_beside_which_a_wal_lies(tmp_path: Path) -> None:
    """It would be read with that one."""
    path = tmp_path / "store.db"
    for end in ("", "-wal", "-damaged-wal", "-damaged-2"):
        Path(f"{path}{end}").write_text(end)
    assert copy_beside(str(path), "-damaged", with_wal=True) == f"{path}-damaged-3"
    assert Path(f"{path}-damaged-3-wal").read_text() == "-wal"


@pytest.mark.parametrize("order", ["<", ">"])
def test_the_bits_that_explain_a_checksum(order: str) -> None:
    """All of them, and no others: high bits of a word have the same effect in other words."""
    rng = random.Random(7)
    for _ in range(20):
        sums = rng.getrandbits(32), rng.getrandbits(32)
        data = rng.randbytes(512)
        place = rng.randrange(8 * len(data))
        changed = bytearray(data)
        changed[place // 8] ^= 1 << place % 8
        found = flipped_bits(bytes(changed), sums, checksum(data, sums, order), order)
        assert place in found
        for other in found:
            back = bytearray(changed)
            back[other // 8] ^= 1 << other % 8
            assert checksum(bytes(back), sums, order) == checksum(data, sums, order)
