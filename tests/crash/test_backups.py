"""`perdure.backup`: a copy of one moment, of a store that is in use, or no copy at all."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.errors import Conflict, Corrupt, NotAStore, NotFound, PerdureError, StoreUnavailable
from perdure.storage.sqlite import backup as copying
from tests.postgres.server import shared


def fill(store: perdure.Store, agents: int = 3) -> None:
    for number in range(agents):
        agent = store.agent(f"agent-{number}")
        for edit in range(10):
            with agent.edit("grown", key=f"k-{edit}") as draft:
                draft.setdefault("messages", []).append(os.urandom(600).hex())
        agent.checkpoint("here")
        agent.fork("aside", at=3)


def left_in(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir() if not one.name.startswith("store.db")}


def test_a_copy_has_all_and_goes_on(tmp_path: Path) -> None:
    path, copy = tmp_path / "store.db", tmp_path / "copy.db"
    said: list[tuple[str, int, int]] = []
    with perdure.open(path) as store:
        fill(store)
        store.agent("gone").save({"n": 1}, "begun")
        store.delete("gone")
        made = perdure.backup(path, copy, progress=lambda *at: said.append(at))
        roots = {one.name: store.agent(one.name).verify().root for one in store.agents()}
    assert made == (type(made))(str(copy), copy.stat().st_size, 4, made.commits)
    assert said[-1] == ("commits", made.commits, made.commits) and said[0][0] == "pages"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert left_in(tmp_path) == {"copy.db"}
    with perdure.open(copy) as other:
        assert {one.name: other.agent(one.name).verify().root for one in other.agents()} == roots
        assert [one.deleted is not None for one in other.incarnations("gone")] == [True]
        assert other.agent("agent-1").at("here").state == other.agent("agent-1").state
        with other.agent("agent-1").edit("goes on") as draft:
            draft["on"] = True


def test_a_store_that_is_bigger_than_the_cache_is_copied_with_its_wal(tmp_path: Path) -> None:
    """Beyond some two megabytes each backup of a store in use was refused, as of a damaged one: a
    page of the WAL has no checksum yet, and the copy wrote it out before it knew that it needs
    one."""
    path, copy = tmp_path / "store.db", tmp_path / "copy.db"
    with perdure.open(path, durability="os") as store:
        for number in range(300):
            store.agent(f"agent-{number}").save({"text": os.urandom(12_000).hex()})
    assert path.stat().st_size > 3_000_000
    with perdure.open(path, durability="os") as store:
        for number in range(0, 300, 7):
            store.agent(f"agent-{number}").update(lambda draft: draft.update(more=True))
        perdure.backup(path, copy)
    with perdure.open(copy) as other:
        assert not other.check_pages()
        assert other.agent("agent-7").state["more"] and "more" not in other.agent("agent-8").state


def test_a_copy_is_of_one_moment(tmp_path: Path) -> None:
    """The file was copied with `cp` while programs wrote to it: its main file and its WAL were of
    different moments."""
    path = tmp_path / "store.db"
    stop = threading.Event()
    with perdure.open(path) as store:
        fill(store)

        def write() -> None:
            one, other = store.agent("one"), store.agent("other")
            number = 0
            while not stop.is_set():
                number += 1
                for agent in (one, other):  # the other one follows, always
                    agent.save({"n": number, "pad": "x" * 3000}, "both")

        writer = threading.Thread(target=write)
        writer.start()
        try:
            before = -1
            for number in range(4):
                copy = tmp_path / f"copy-{number}.db"
                perdure.backup(path, copy)
                with perdure.open(copy) as found:
                    ns = [(found.agent(name).state or {}).get("n", 0) for name in ("one", "other")]
                assert ns[0] - ns[1] in (0, 1), ns
                assert ns[0] >= before
                before = ns[0]
        finally:
            stop.set()
            writer.join()


def test_it_has_what_was_acknowledged_before(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with perdure.open(path) as store:
        for number in range(5):
            store.agent("a").save({"n": number}, "one more")
            perdure.backup(path, tmp_path / f"{number}.db")
    for number in range(5):
        with perdure.open(tmp_path / f"{number}.db") as copy:
            assert copy.agent("a").state == {"n": number}


def test_a_copy_beside_the_wal_that_was_left_shows_a_state_that_was(tmp_path: Path) -> None:
    """Somebody put the copy in the place of the store and left its WAL there. Pages that a VACUUM
    had renumbered would make a mixture."""
    path, copy = tmp_path / "store.db", tmp_path / "copy.db"
    with perdure.open(path) as store:
        fill(store)
        perdure.backup(path, copy)
        with store.agent("agent-1").edit("since") as draft:
            draft["since"] = True
        place = tmp_path / "place"
        place.mkdir()
        shutil.copy(copy, place / "store.db")
        shutil.copy(f"{path}-wal", place / "store.db-wal")
        now = store.agent("agent-1").verify().root
    try:
        with perdure.open(place / "store.db") as mixed:
            mixed.check_pages()
            roots = [mixed.agent(one.name).verify().root for one in mixed.agents()]
    except Corrupt:
        return  # refused, as it is another file's
    assert now in roots


@pytest.mark.parametrize("beside", ["", "-wal", "-journal"])
def test_nothing_is_overwritten(tmp_path: Path, beside: str) -> None:
    path, copy = tmp_path / "store.db", tmp_path / "copy.db"
    with perdure.open(path) as store:
        fill(store, 1)
    there = Path(f"{copy}{beside}")
    there.write_bytes(b"mine")
    with pytest.raises(Conflict, match="is there already"):
        perdure.backup(path, copy)
    assert there.read_bytes() == b"mine"
    assert left_in(tmp_path) == {there.name}


def test_nothing_that_came_meanwhile_is_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, copy = tmp_path / "store.db", tmp_path / "copy.db"
    with perdure.open(path) as store:
        fill(store, 1)

    def another(*_: Any) -> None:
        copy.write_bytes(b"mine")

    with pytest.raises(Conflict):
        perdure.backup(path, copy, progress=another)
    assert copy.read_bytes() == b"mine"

    def refuse(*_: Any) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(copying.os, "link", refuse)  # type: ignore[attr-defined]
    with pytest.raises(Conflict):
        perdure.backup(path, copy)
    perdure.backup(path, tmp_path / "other.db")
    assert left_in(tmp_path) == {"copy.db", "other.db"}
    perdure.open(tmp_path / "other.db").close()


class StopError(BaseException):
    pass


@pytest.mark.parametrize("part", ["pages", "commits"])
def test_an_interrupted_backup_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    monkeypatch.setattr(copying, "PAGES_AT_ONCE", 2)
    path, copy = tmp_path / "store.db", tmp_path / "copy.db"
    with perdure.open(path) as store:
        fill(store)

        def interrupt(now: str, done: int, of: int) -> None:
            if now == part and done > 4:
                raise StopError

        with pytest.raises(StopError):
            perdure.backup(path, copy, progress=interrupt)
        assert left_in(tmp_path) == set()
        with store.agent("agent-0").edit("goes on") as draft:
            draft["on"] = True
        assert perdure.backup(path, copy).agents == 3


def test_there_is_no_copy_of_a_damaged_store(tmp_path: Path) -> None:
    path, copy = tmp_path / "store.db", tmp_path / "copy.db"
    with perdure.open(path) as store:
        fill(store)
    whole = bytearray(path.read_bytes())
    at = len(whole) // 2
    whole[at] ^= 1
    path.write_bytes(whole)
    with pytest.raises(Corrupt):
        perdure.backup(path, copy)
    assert left_in(tmp_path) == set()


def test_what_cannot_be_copied_says_why(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with perdure.open(path) as store:
        fill(store, 1)
    (tmp_path / "text.db").write_text("no store " * 100)
    for url, error, words in (
        (tmp_path / "none.db", NotFound, "no such file"),
        (tmp_path / "text.db", NotAStore, "text.db"),
        ("memory://a", ValueError, "ends with its process"),
        ("mysql://a", ValueError, "no backend"),
        ("postgresql://me:secret@host/db", ValueError, "pg_dump"),
        ("", ValueError, "not the path"),
        (None, TypeError, "path or URL"),
    ):
        with pytest.raises(error, match=words) as refused:
            perdure.backup(url, tmp_path / "copy.db")  # type: ignore[arg-type]
        assert "secret" not in str(refused.value)
    wrong: list[tuple[Any, type[Exception]]] = [
        (tmp_path, ValueError),
        ("", ValueError),
        ("sqlite:///x.db", ValueError),
        ("a\0b", ValueError),
        (7, TypeError),
        (tmp_path / "no folder" / "copy.db", PerdureError),
    ]
    for target, kind in wrong:
        with pytest.raises(kind):
            perdure.backup(path, target)
    with pytest.raises(TypeError):
        perdure.backup(path, tmp_path / "copy.db", progress=7)  # type: ignore[arg-type]
    assert left_in(tmp_path) == {"text.db"}


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    path, copy = tmp_path / "store.db", tmp_path / "copy.db"
    with perdure.open(path) as store:
        fill(store)
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, most[1]))
    try:
        with pytest.raises(StoreUnavailable):
            perdure.backup(path, copy)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    assert left_in(tmp_path) == set()
    assert perdure.backup(path, copy).agents == 3


def test_a_store_in_postgresql_is_copied_by_its_server_or_followed(tmp_path: Path) -> None:
    """The way that the error names: a follower in a file."""
    url = shared().new_url()
    with perdure.open(url) as store:
        fill(store, 1)
        with pytest.raises(ValueError, match="perdure replicate"):
            perdure.backup(url, tmp_path / "copy.db")


KILLED = """
import os, sys
from perdure.cli import backing_up, main
real, number = backing_up.back_up, int(sys.argv.pop())
def killed(url, file, progress):
    return real(url, file, progress=lambda *_: os.kill(os.getpid(), number))
backing_up.back_up = killed
main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_killed_backup_leaves_nothing_for_good(tmp_path: Path, number: int) -> None:
    """What ends services and jobs left a copy of everything in the folder, where no retention and
    no later backup removed it."""
    path, folder = tmp_path / "store.db", tmp_path / "kept"
    folder.mkdir()
    with perdure.open(path) as store:
        fill(store)
    words = ["--store", str(path), "backup", str(folder / "monday.db"), str(int(number))]
    ended = subprocess.run([sys.executable, "-c", KILLED, *words], capture_output=True, timeout=60)
    left = [one.name for one in folder.iterdir()]
    if number == signal.SIGKILL:
        assert ended.returncode == -number and left
    else:
        assert (ended.returncode, left) == (128 + number, []), ended.stderr
    with copying.part_of(str(folder / "being made.db")) as part:
        perdure.backup(path, folder / "tuesday.db")
        assert {one.name for one in folder.iterdir()} == {"tuesday.db", Path(part).name}
