"""A bit of a store's file is flipped, and `repair(take_incomplete=True)` gives the rest back: what
it does not name is as it was."""

import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure
from perdure.errors import Corrupt, PerdureError, StoreUnavailable
from perdure.storage.sqlite.connection import checksum_vfs

PAGE = 4096
SEED = 12


@perdure.agent(dict)
def counting(run: "perdure.Run[dict[str, Any]]", to: int) -> int:
    with run.edit("count") as draft:
        draft["counted"] = to
    return to


@perdure.agent(dict)
def waiting(run: "perdure.Run[dict[str, Any]]") -> Any:
    return run.wait_for("go")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dozen agents of a few commits, with keys, branches, a checkpoint, runs, a message that
    waits, a snapshot and a deleted agent."""
    path = tmp_path_factory.mktemp("repair") / "store.db"
    with perdure.open(path, snapshots=perdure.SnapshotPolicy(every_commits=3)) as store:
        for number in range(12):
            agent = store.agent(f"order-{number}")
            for step in range(3):
                with agent.edit("step", key=f"key {step}") as draft:
                    draft["text"] = f"MARKER{number:02}" + "x" * 90 if step == 2 else "begun"
        store.agent("order-2").checkpoint("point")
        store.agent("order-2").fork("other")
        store.run(counting, "order-3", 3)
        store.start(waiting, "order-4").signal("go", "AMOUNT 100")
        store.delete("order-11")
        store.shrink()  # what is found in a page is in use
    return path


def look(path: Path) -> dict[str, Any]:
    """What users are told, agent by agent; of damaged ones, that they are."""
    told: dict[str, Any] = {}
    with perdure.open(path) as store:
        store.check_pages()
        for info in store.agents():
            agent = store.agent_of(info)
            try:
                root = agent.verify().root
            except Corrupt:
                told[info.name] = "damaged"
                continue
            runs = [(run.id, run.status, run.result) for run in store.runs(info.name)]
            mail: Any = store._context.backend.inbox(agent=info.name)
            told[info.name] = (info, root, agent.state, agent.branches(), runs, mail)
            assert store.find(info.name) == info
            assert agent.at(2).state is not None
    return told


def flip(path: Path, place: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1 << bit
    path.write_bytes(data)


def pages_of(path: Path) -> dict[str, list[int]]:
    db = apsw.Connection(str(path), vfs=checksum_vfs())
    try:
        found: dict[str, list[int]] = {}
        for name, number in db.execute("SELECT name, pageno FROM dbstat"):
            found.setdefault(str(name), []).append(int(number))
        return found
    finally:
        db.close()


def copied(original: Path, tmp_path: Path) -> Path:
    path = tmp_path / "store.db"
    for one in tmp_path.glob("store.db*"):
        shutil.rmtree(one) if one.is_dir() else one.unlink()
    shutil.copy(original, path)
    return path


def place_in(path: Path, page: int, text: bytes) -> int:
    found = path.read_bytes().find(text, (page - 1) * PAGE, page * PAGE)
    assert found >= 0
    return found


def damage_a_commit(path: Path) -> None:
    """The last one of order-7."""
    text, data = b"MARKER07", path.read_bytes()
    pages = [(number - 1) * PAGE for number in pages_of(path)["commits"]]
    (place,) = [at for page in pages if (at := data.find(text, page, page + PAGE)) > 0]
    flip(path, place)


def test_i11_what_a_repair_does_not_name_is_as_it_was(original: Path, tmp_path: Path) -> None:
    """A bit in any page: of a commit, a name, an index, a message, of a b-tree itself. Where the
    repair refuses, not a byte of the file is changed, and nothing is left beside it; but for
    indexes that were made anew, and then what was there is kept."""
    rng, known = random.Random(SEED), look(original)
    repaired = refused = 0
    for numbers in pages_of(original).values():
        for number in numbers[:3]:
            for bits in (1, 1, 2):
                path = copied(original, tmp_path)
                for _ in range(bits):  # where it is one, the checksum may say which
                    flip(path, (number - 1) * PAGE + rng.randrange(PAGE - 8), rng.randrange(8))
                before = path.read_bytes()
                try:
                    found = perdure.repair(path, take_incomplete=True)
                except PerdureError:
                    kept = list(tmp_path.glob("*-damaged"))
                    assert (kept or [path])[0].read_bytes()[PAGE:] == before[PAGE:]
                    assert kept or path.read_bytes() == before
                    refused += 1
                    continue
                repaired += 1
                named = {one.agent for one in found if one.damages}
                told = look(path)
                assert known.keys() - told.keys() <= named
                for name in told.keys() - named:
                    assert told[name] == known[name]
    assert repaired > refused > 0


def test_a_branch_that_is_elsewhere_is_refused(original: Path, tmp_path: Path) -> None:
    """Its agent would be at an older state, without a word."""
    path = copied(original, tmp_path)
    (page,) = pages_of(path)["refs"]
    flip(path, place_in(path, page, b"main"))
    before = path.read_bytes()
    with pytest.raises(Corrupt, match="the log says") as caught:
        perdure.repair(path, take_incomplete=True)
    assert "the checksums stay as they are" in str(caught.value)
    assert path.read_bytes() == before and not list(tmp_path.glob("*-damaged*"))


def test_an_index_is_made_anew_from_its_table(original: Path, tmp_path: Path) -> None:
    """Agents were not found by name that a scan of the table finds."""
    path, known = copied(original, tmp_path), look(original)
    (page,) = pages_of(path)["sqlite_autoindex_agents_1"]
    flip(path, place_in(path, page, b"order-5"), 1)
    assert all(not one.damages for one in perdure.repair(path, take_incomplete=True))
    assert look(path) == known


def test_a_name_that_the_log_does_not_have_is_refused(original: Path, tmp_path: Path) -> None:
    path = copied(original, tmp_path)
    (page,) = pages_of(path)["agents"]
    flip(path, place_in(path, page, b"order-5"), 1)
    with pytest.raises(Corrupt, match="may have it under another name"):
        perdure.repair(path, take_incomplete=True)


def test_a_message_that_nothing_proves_is_named(original: Path, tmp_path: Path) -> None:
    """No log has it yet, so no hash is made of it: a payment of another amount."""
    path = copied(original, tmp_path)
    (page,) = pages_of(path)["inbox"]
    flip(path, place_in(path, page, b"AMOUNT 100") + len("AMOUNT "))
    (named,) = [one for one in perdure.repair(path, take_incomplete=True) if one.damages]
    assert named.agent == "order-4" and named.head
    assert any("the signal 'go' for run" in one for one in named.damages)


def test_i11_the_last_header_is_named(original: Path, tmp_path: Path) -> None:
    """No commit behind it links to it by its hash, so that another time, or author, is found by
    nobody: the page's checksum, which is given up, was all that there was."""
    path = copied(original, tmp_path)
    with perdure.open(path) as store:
        info = store.find("order-7")
        assert info is not None
        (last,) = store._context.backend.read(info.no, 0, info.seq, newest_first=True, limit=1)
    data = path.read_bytes()
    place = data.find(last.header)
    assert place > 0 and data.count(last.header) == 1
    flip(path, data.find(b"step", place))
    (named,) = [one for one in perdure.repair(path, take_incomplete=True) if one.agent == "order-7"]
    assert named.head and "no later commit proves" in named.damages[0]


@pytest.mark.parametrize("last", [False, True], ids=["within", "the last"])
def test_a_flipped_version_is_no_newer_version(original: Path, tmp_path: Path, last: bool) -> None:
    """ "Read it with a newer perdure" was the way out, though the page fails its checksum, and the
    commit behind it names another header."""
    path = copied(original, tmp_path)
    with perdure.open(path) as store:
        info = store.find("order-7")
        assert info is not None
        seq = info.seq - (not last)
        (row,) = store._context.backend.read(info.no, seq, seq)
    flip(path, path.read_bytes().find(row.header) + 1, 3)
    with pytest.raises(Corrupt, match="header version 9") as caught:
        perdure.repair(path)
    assert "--take-incomplete" in str(caught.value) and caught.value.seq == seq
    found = {one.agent: one for one in perdure.repair(path, take_incomplete=True)}
    assert any("header version 9" in told for told in found["order-7"].damages)
    if last:  # from here on, nothing is known of it but what it says
        return
    with perdure.open(path) as store:
        agent = store.agent("order-7")
        with pytest.raises(Corrupt, match="header version 9") as caught:
            agent.verify()
        assert caught.value.before == seq - 1
        for call in (lambda: agent.at(seq).state, lambda: list(agent.log())):
            with pytest.raises(Corrupt, match="the next commit follows another one"):
                call()
        agent.rollback(seq - 1)
        agent.update(lambda draft: draft.update(more=1))


def test_a_copy_is_kept_under_a_name_of_its_own(original: Path, tmp_path: Path) -> None:
    """What is left of what is damaged is evidence. One that was killed while it copied leaves a
    part, which is no copy, and is in nobody's way."""
    path = copied(original, tmp_path)
    damage_a_commit(path)
    damaged = path.read_bytes()
    Path(f"{path}-damaged").write_bytes(b"an earlier one")
    Path(f"{path}-damaged.part").write_bytes(b"half of")
    perdure.repair(path, take_incomplete=True)
    assert Path(f"{path}-damaged").read_bytes() == b"an earlier one"
    kept = Path(f"{path}-damaged-2")
    assert kept.read_bytes()[PAGE:] == damaged[PAGE:], "but for the mark of its journal"
    assert kept.stat().st_mode & 0o777 == path.stat().st_mode & 0o777
    assert not Path(f"{path}-damaged.part").exists()


def test_nobody_else_has_it_open(original: Path, tmp_path: Path) -> None:
    path = copied(original, tmp_path)
    damage_a_commit(path)
    opened = subprocess.Popen(
        [sys.executable, "-c", HOLD_OPEN, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert opened.stdout is not None and opened.stdout.readline() == b"open\n"
    with pytest.raises(StoreUnavailable, match="another process has it open"):
        perdure.repair(path, take_incomplete=True)
    assert not list(tmp_path.glob("*-damaged*"))
    opened.communicate()


HOLD_OPEN = """
import sys, perdure
store = perdure.open(sys.argv[1])
store.find("order-1")
print("open", flush=True)
sys.stdin.read()
"""


REPAIR_AND_DIE = """
import os, signal, sys
import perdure
from perdure.storage.sqlite import connection
from perdure.testing.faults import FaultyFiles

files, left = FaultyFiles(), int(sys.argv[2])

def fault(operation, name, end):
    global left
    if operation in ("write", "sync", "truncate"):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

files.fault = fault
connection.checksum_vfs = lambda: files.name
perdure.repair(sys.argv[1], take_incomplete=True)
print(int(sys.argv[2]) - left)
"""


def test_killed_at_any_moment_it_leaves_what_was_there(original: Path, tmp_path: Path) -> None:
    """And is called again."""

    def repair_and_die(at: int) -> "subprocess.CompletedProcess[str]":
        path = copied(original, tmp_path)
        damage_a_commit(path)
        words = [sys.executable, "-c", REPAIR_AND_DIE, str(path), str(at)]
        return subprocess.run(words, capture_output=True, text=True)

    done = repair_and_die(1_000_000)
    assert done.returncode == 0, done.stderr
    path, steps = tmp_path / "store.db", int(done.stdout)
    known = look(path)
    assert [name for name, told in known.items() if told == "damaged"] == ["order-7"]
    for at in range(1, steps + 1, max(1, steps // 8)):
        assert repair_and_die(at).returncode == -9
        found = perdure.repair(path, take_incomplete=True)
        assert [one.agent for one in found if not one.head] == ["order-7"]
        assert look(path) == known


def test_i11_a_start_that_says_something_else_is_corrupt(original: Path, tmp_path: Path) -> None:
    """One flipped bit in a field's name ended `store.runs` with a KeyError."""
    path = copied(original, tmp_path)
    with perdure.open(path) as store:
        store.start(counting, "order-5", 7)
        store.shrink()
    (page,) = pages_of(path)["inbox"]
    flip(path, place_in(path, page, b"function"))
    assert "order-5" in {one.agent for one in perdure.repair(path, take_incomplete=True)}
    with perdure.open(path) as store:
        assert store.agent("order-5").state["text"].startswith("MARKER05")
        with pytest.raises(Corrupt, match="agent 'order-5': what asks for a run of it"):
            store.runs("order-5")


def test_i11_a_message_that_is_no_value_is_corrupt(original: Path, tmp_path: Path) -> None:
    """The decoder's own error came out of the repair, and of all that reads an inbox."""
    path = copied(original, tmp_path)
    (page,) = pages_of(path)["inbox"]
    flip(path, place_in(path, page, b"AMOUNT 100"), 7)  # no UTF-8
    with pytest.raises(Corrupt, match="agent 'order-4': a value of a run or a message"):
        perdure.repair(path, take_incomplete=True)


FULL = """
import os, resource, sys
import perdure
from perdure.errors import PerdureError

size = os.path.getsize(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (size * 3 // 4, size * 3 // 4))
try:
    perdure.repair(sys.argv[1])
except PerdureError as error:
    print(type(error).__name__, error)
"""


def test_where_there_is_no_room_it_says_so(original: Path, tmp_path: Path) -> None:
    """A healthy store was called corrupt: another program was said to have deleted its `-wal`,
    which the repair itself had put away."""
    path = copied(original, tmp_path)
    before = look(path)
    said = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], check=True, capture_output=True, text=True
    ).stdout
    assert said.startswith("StoreUnavailable") and "deleted" not in said
    assert look(path) == before
    perdure.repair(path)
    assert look(path) == before
