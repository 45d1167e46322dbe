"""A flipped bit of the file on which all of it depends: the first page, the frame of a b-tree."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import apsw
import pytest

import perdure
from perdure.errors import Corrupt, PerdureError, StoreUnavailable
from perdure.storage.sqlite.connection import checksum_vfs
from perdure.storage.sqlite.page_mending import mend_pages
from tests.cli.operator import Operator

PAGE = 4096
Roots = dict[str, str]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "store.db"
    with perdure.open(path) as store:
        for number in range(20):
            with store.agent(f"agent {number % 4}").edit("step", key=f"k {number}") as draft:
                draft["text"] = f"{number}" * 200
    return path


def roots(path: Path) -> Roots:
    with perdure.open(path) as store:
        store.check_pages()
        return {info.name: store.agent_of(info).verify().root for info in store.agents()}


def flipped(original: Path, folder: Path, place: int, bit: int) -> Path:
    for one in folder.iterdir():
        shutil.rmtree(one) if one.is_dir() else one.unlink()
    path, data = folder / "store.db", bytearray(original.read_bytes())
    data[place] ^= 1 << bit
    path.write_bytes(data)
    return path


def first_pages() -> list[int]:
    rng = random.Random(2)
    return [*range(100), *(rng.randrange(100, PAGE) for _ in range(60))]


def test_i11_a_flipped_bit_of_the_first_page_costs_nothing(original: Path, tmp_path: Path) -> None:
    """Story: a bit of the first page was flipped, and nothing could be read any more. The hint was
    to restore a copy; or a repair, which called the store not one, or one of a newer version, or
    its schema malformed. What was wrong could be computed."""
    known, rng = roots(original), random.Random(1)
    for place in first_pages():
        path = flipped(original, tmp_path, place, rng.randrange(8))
        before = path.read_bytes()
        with pytest.raises(Corrupt, match="`perdure repair --take-incomplete`"):
            roots(path)
        found = perdure.repair(path, take_incomplete=True)
        assert not any(one.damages for one in found), place
        assert roots(path) == known
        assert Path(f"{path}-damaged").read_bytes()[PAGE:] == before[PAGE:]


def test_i11_a_random_bit_of_the_file(original: Path, tmp_path: Path) -> None:
    """What the hint names brings back what is not on the damaged place; or says that only a copy
    can."""
    known, rng, refused = roots(original), random.Random(5), 0
    size, tried = original.stat().st_size, 60
    for number in range(tried):
        place = (
            rng.randrange(size) if number % 2 else rng.randrange(size // PAGE) * PAGE + number % 40
        )
        path = flipped(original, tmp_path, place, rng.randrange(8))
        with pytest.raises(Corrupt, match="`perdure repair --take-incomplete`"):
            roots(path)
        try:
            found = perdure.repair(path, take_incomplete=True)
        except Corrupt:
            with pytest.raises(Corrupt, match="restore the store from a copy"):
                perdure.repair(path, take_incomplete=True)
            refused += 1
            continue
        named = {one.agent for one in found if one.damages}
        with perdure.open(path) as store:
            store.check_pages()
            whole = {info.name for info in store.agents()} - named
            assert {name: store.agent(name).verify().root for name in whole} == {
                name: root for name, root in known.items() if name not in named
            }
    assert refused < tried // 5


def test_a_file_that_is_in_use_is_left_alone(original: Path, tmp_path: Path) -> None:
    path = flipped(original, tmp_path, 0, 0)
    path.write_bytes(original.read_bytes())
    with perdure.open(path) as store:
        store.agent("agent 1").save({"n": 1})
        damaged = flipped_in_place(path, 3 * PAGE + 5)
        with pytest.raises(StoreUnavailable, match="another process has it open"):
            mend_pages(str(path), (4,))
        assert path.read_bytes() == damaged
        flipped_in_place(path, 3 * PAGE + 5)
    assert mend_pages(str(path), range(1, 9)) is None


def flipped_in_place(path: Path, place: int) -> bytes:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    with path.open("r+b") as file:
        file.write(data)
    return bytes(data)


def test_what_several_bits_would_explain_is_left(original: Path, tmp_path: Path) -> None:
    """Nor is a page of another SQLite's, which has no checksum of ours, taken for a flipped one."""
    path = flipped(original, tmp_path, PAGE + 3000, 0)
    data = bytearray(path.read_bytes())
    data[PAGE + 2000] ^= 8
    path.write_bytes(data)
    assert mend_pages(str(path), range(1, 9)) is None
    shutil.copy(original, path)
    for other in (b"nothing", b"x" * PAGE * 2, b"SQLite format 3\0" + bytes(PAGE)):
        path.write_bytes(other)
        assert mend_pages(str(path), (1,)) is None
        with pytest.raises(PerdureError):
            perdure.repair(path, take_incomplete=True)
        assert path.read_bytes() == other


def test_the_command_line_says_what_it_did(original: Path, tmp_path: Path) -> None:
    operator = Operator(tmp_path / "store.db")
    flipped(original, tmp_path, 60, 3)
    code, said = operator.refused("ls")
    assert code == 5 and "repair --take-incomplete`" in said
    told = operator.json("repair", "--take-incomplete")
    assert told["complete"] and "page 1 of the file" in told["mended"]
    assert told["copy"] == f"{operator.path}-damaged"


def test_definitions_are_on_the_first_page(original: Path) -> None:
    """Where they were not, several bits may explain its checksum, and none would be chosen."""
    db = apsw.Connection(str(original), vfs=checksum_vfs())
    try:
        pages = db.execute("SELECT pageno FROM dbstat WHERE name = 'sqlite_schema'").fetchall()
    finally:
        db.close()
    assert pages == [(1,)]
