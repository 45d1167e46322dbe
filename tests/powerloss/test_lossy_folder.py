"""The folder that forgets what was not synced: to programs it is as any other, and it forgets."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.powerloss.lossy.disk import Disk, Names
from tests.powerloss.lossy.folder import LossyFolder, obstacle
from tests.powerloss.lossy.nodes import PAGE, File

KB64 = 65536


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """A folder, and a shelf beside it."""
    made = tmp_path / "folder", tmp_path / "shelf"
    for place in made:
        place.mkdir()
    return made


# -- what is lost --------------------------------------------------------------------------------


@pytest.fixture
def disk(places: tuple[Path, Path]) -> Iterator[Callable[..., Disk]]:
    opened = [os.open(place, os.O_RDONLY) for place in places]

    def make(names: Names = "apart", *, early: float = 0.0) -> Disk:
        return Disk(opened[0], opened[1], names, random.Random(1), early)

    yield make
    for descriptor in opened:
        os.close(descriptor)


def new_file(disk: Disk, name: bytes, data: bytes = b"") -> File:
    file = disk.create(disk.root, name, 0o644, os.geteuid(), os.getegid())
    file.write(0, data)
    disk.wrote(file)
    return file


def there(places: tuple[Path, Path]) -> dict[str, bytes]:
    """What the disk has."""
    found = (path for path in places[0].rglob("*") if path.is_file())
    return {str(path.relative_to(places[0])): path.read_bytes() for path in found}


def test_what_was_synced_stays_and_what_was_not_goes(
    disk: Callable[..., Disk], places: tuple[Path, Path]
) -> None:
    made = disk()
    file = new_file(made, b"a", b"synced")
    made.sync(file)
    file.write(3, b"....")
    made.wrote(file)
    new_file(made, b"b", b"never synced")
    assert file.read(0, 99) == b"syn...."
    lost = made.lose_power(0)
    assert there(places) == {"a": b"synced"}
    assert (lost.files, lost.pages, lost.names) == (2, 2, 1)


def test_a_length_is_lost_too(disk: Callable[..., Disk], places: tuple[Path, Path]) -> None:
    """And what was cut off is zeros afterwards, whatever the disk has there still."""
    made = disk()
    file = new_file(made, b"a", b"x" * 10_000)
    made.sync(file)
    file.truncate(5)
    assert there(places)["a"] == b"x" * 10_000
    file.truncate(9000)
    file.write(8000, b"y")
    seen = b"x" * 5 + bytes(7995) + b"y" + bytes(999)
    assert file.read(0, KB64) == seen
    made.wrote(file)
    assert there(places)["a"] == b"x" * 10_000
    made.sync(file)
    assert there(places)["a"] == seen


@pytest.mark.parametrize(
    ("names", "kept"),
    [("kept", {"one", "two", "three"}), ("in order", {"one", "two"}), ("apart", {"two"})],
)
def test_what_makes_a_name_lasting(
    disk: Callable[..., Disk], places: tuple[Path, Path], names: Names, kept: set[str]
) -> None:
    """Kept: nothing need to. In order: any sync, with all that was before. Apart: its own."""
    made = disk(names)
    user, group = os.geteuid(), os.getegid()
    folders = [made.make_folder(made.root, name, 0o755, user, group) for name in (b"f", b"g")]
    made.sync(made.root)
    made.create(folders[0], b"one", 0o644, user, group)
    two = made.create(folders[1], b"two", 0o644, user, group)
    made.sync(two)
    made.create(folders[0], b"three", 0o644, user, group)
    made.lose_power(0)
    assert {Path(name).name for name in there(places)} == kept


def test_a_renamed_file_is_under_one_of_its_names(
    disk: Callable[..., Disk], places: tuple[Path, Path]
) -> None:
    made = disk("apart")
    for name in (b"old", b"other"):
        made.sync(new_file(made, name, name))
    made.rename((made.root, b"other"), (made.root, b"old"))
    assert there(places) == {"old": b"old", "other": b"other"}
    made.sync(made.root)
    assert there(places) == {"old": b"other"}


def test_a_name_comes_with_the_folders_that_lead_to_it(
    disk: Callable[..., Disk], places: tuple[Path, Path]
) -> None:
    made = disk("apart")
    user, group = os.geteuid(), os.getegid()
    outer = made.make_folder(made.root, b"outer", 0o755, user, group)
    inner = made.make_folder(outer, b"inner", 0o755, user, group)
    file = made.create(inner, b"file", 0o644, user, group)
    new_file(made, b"beside")
    made.sync(file)
    assert there(places) == {"outer/inner/file": b""}


def test_a_torn_page_has_whole_sectors(
    disk: Callable[..., Disk], places: tuple[Path, Path]
) -> None:
    made = disk()
    file = new_file(made, b"a", b"o" * 64 * PAGE)
    made.sync(file)
    file.write(0, b"n" * 64 * PAGE)
    made.wrote(file)
    made.lose_power(0.5)
    sectors = [there(places)["a"][at : at + 512] for at in range(0, 64 * PAGE, 512)]
    assert set(sectors) == {b"o" * 512, b"n" * 512}


def test_the_system_writes_back_when_it_likes(
    disk: Callable[..., Disk], places: tuple[Path, Path]
) -> None:
    """So an older version of a page may be there, and not the newer one."""
    made = disk(early=0.6)
    file = new_file(made, b"a")
    made.sync(file)
    versions = [bytes([65 + number]) * PAGE for number in range(20)]
    seen = set()
    for data in versions:
        file.write(0, data)
        made.wrote(file)
        seen.add(there(places)["a"])
    assert 2 < len(seen) < len(versions)
    assert seen <= {*versions, b""}


# -- mounted -------------------------------------------------------------------------------------


@pytest.fixture
def folder(places: tuple[Path, Path]) -> Iterator[LossyFolder]:
    if why := obstacle():
        pytest.skip(why)
    made = LossyFolder(*places, "apart", "1")
    yield made
    made.end()


def inside(folder: LossyFolder | None, script: str, *arguments: str) -> str:
    """What a script prints that sees the folder."""
    entrance = folder.entrance if folder else []
    return subprocess.run(
        [*entrance, sys.executable, "-c", script, *arguments],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        timeout=120,
    ).stdout


WAYS = """
import mmap, os, sys
os.chdir(sys.argv[1])
def write(name, flags=0):
    file = os.open(name, os.O_RDWR | os.O_CREAT | flags, 0o600)
    os.write(file, name.encode())
    return file
write("plain")
os.fsync(write("fsync"))
os.fdatasync(write("fdatasync"))
write("O_DSYNC", os.O_DSYNC)
file = write("msync")
with mmap.mmap(file, 5) as mapped:
    mapped[:] = b"MSYNC"
    mapped.flush()
os.rename("fsync", "renamed")
os.sync()
print(sorted(os.listdir()))
"""


def test_each_way_to_sync_makes_lasting_and_no_other(
    folder: LossyFolder, places: tuple[Path, Path]
) -> None:
    """Through the kernel. A `sync` of the whole system asks a file system like this one nothing."""
    names = ["O_DSYNC", "fdatasync", "msync", "plain", "renamed"]
    assert inside(folder, WAYS, str(places[0])) == f"{names}\n"
    found = there(places)
    early = {name: found.pop(name) for name in ("plain", "renamed") if name in found}
    assert early.keys() <= {"plain"}
    assert found == {
        "fsync": b"fsync",
        "fdatasync": b"fdatasync",
        "O_DSYNC": b"O_DSYNC",
        "msync": b"MSYNC",
    }


EXERCISE = """
import errno, hashlib, os, random, sys
os.chdir(sys.argv[1])
dice = random.Random(sys.argv[2])
told = []
def name():
    folder = dice.choice(["", "", "d/", "d/e/", "f/"])
    return folder + dice.choice("defgh")
def write(path):
    with open(path, "r+b" if os.path.exists(path) and dice.random() < 0.8 else "wb") as file:
        for _ in range(dice.randint(1, 4)):
            file.seek(dice.choice([0, 1, 511, 4095, 4096, 8000, 70000]))
            file.write(dice.randbytes(dice.choice([1, 511, 4096, 5000, 150000])))
            if dice.random() < 0.3:
                os.fdatasync(file.fileno())
            if dice.random() < 0.3:
                file.truncate(dice.choice([0, 3, 4096, 9999, 200000]))
def read(path):
    with open(path, "rb") as file:
        told.append(hashlib.sha256(file.read()).hexdigest()[:8])
def sync(path):
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.close(file)
calls = [
    write, write, write, read, read, sync, os.mkdir, os.unlink, os.rmdir, os.listdir, os.stat,
    lambda path: os.rename(path, name()), lambda path: os.link(path, name()),
    lambda path: os.truncate(path, dice.choice([0, 100, 5000])),
]
for number in range(800):
    try:
        found = dice.choice(calls)(name())
        told.append(sorted(found) if isinstance(found, list) else "done")
    except OSError as error:
        told.append(errno.errorcode[error.errno])
def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()
tree = []
for root, folders, files in os.walk("."):
    folders.sort()
    sync(root)
    for file in sorted(files):
        path = os.path.join(root, file)
        sync(path)
        tree.append((path, os.stat(path).st_size, os.stat(path).st_nlink, digest(path)))
print(told, tree)
"""


@pytest.mark.parametrize("seed", ["1", "2"])
def test_to_programs_it_is_as_any_other(
    folder: LossyFolder, places: tuple[Path, Path], tmp_path: Path, seed: str
) -> None:
    """The same calls, answers and errors as in a folder of the system's own; and with everything
    synced, a power loss takes nothing."""
    plain = tmp_path / "plain"
    plain.mkdir()
    wanted = inside(None, EXERCISE, str(plain), seed)
    assert inside(folder, EXERCISE, str(places[0]), seed) == wanted
    folder.lose_power(0)
    files = {str(path.relative_to(plain)): path for path in plain.rglob("*") if path.is_file()}
    assert there(places) == {name: path.read_bytes() for name, path in files.items()}
    assert len(files) > 3


def test_a_frozen_disk_answers_nobody_until_the_power_is_gone(
    folder: LossyFolder, places: tuple[Path, Path]
) -> None:
    folder.cut_after(10)
    assert not folder.is_frozen()
    script = "import sys\nfor n in range(99): open(f'{sys.argv[1]}/{n}', 'w').close()"
    writing = subprocess.Popen(
        [*folder.entrance, sys.executable, "-c", script, str(places[0])], stderr=subprocess.PIPE
    )
    with writing:
        assert folder.is_frozen(60)
        assert writing.poll() is None
        folder.lose_power(0)
        assert writing.stderr is not None
        assert b"Error" in writing.stderr.read()  # it asked on, and there is no disk any more
    assert writing.returncode == 1
