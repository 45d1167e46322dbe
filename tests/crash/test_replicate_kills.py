"""Who ships, and who writes, is killed with SIGKILL at random moments: nothing acknowledged is
missing in the end, nothing is there twice, and each chain verifies."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import perdure
from perdure.model import id_text
from perdure.replication import ClosedError, following, promote
from perdure.storage.standing import read_why
from tests.postgres.server import shared
from tests.state.copies import backend_of, picture, verify_all

ROOT = Path(__file__).parents[2]
NAMES = ("a", "b", "é")
HANGS_S = 60


class Process:
    """One of tests/crash/replicas.py, and what it noted."""

    def __init__(self, file: Path, mode: str, *words: str) -> None:
        self.file = file
        self._name = " ".join((mode, *words))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.replicas", mode, str(file), *words], cwd=ROOT
        )

    def size(self) -> int:
        return self.file.stat().st_size if self.file.exists() else 0

    def more(self, count: int, *, may_end: bool = False) -> None:
        """Wait until it has noted so much more."""
        until = time.monotonic() + HANGS_S
        before = self.size()
        while self.size() == before or self.file.read_bytes().count(b"\n", before) < count:
            if self._process.poll() is not None:
                assert may_end, f"{self._name} ended"
                return
            assert time.monotonic() < until, f"{self._name} hangs"
            time.sleep(0.002)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def wait(self) -> None:
        self._process.wait(HANGS_S)


class Hospital:
    """Starts processes, and sees that none is left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._all: list[Process] = []

    def start(self, mode: str, *words: str, file: str = "") -> Process:
        process = Process(self.folder / (file or mode), mode, *words)
        self._all.append(process)
        return process

    def close(self) -> None:
        for process in self._all:
            process.kill()


@pytest.fixture
def hospital(tmp_path: Path) -> Iterator[Hospital]:
    made = Hospital(tmp_path)
    yield made
    made.close()


def acknowledged(folder: Path, *files: str) -> set[tuple[str, int, str]]:
    found = set()
    for file in files:
        for line in (folder / file).read_text().splitlines():
            name, seq, commit = line.split()
            found.add((name, int(seq), commit))
    return found


def logged(url: str) -> set[tuple[str, int, str]]:
    with perdure.open(url) as store:
        return {
            (info.name, commit.seq, id_text(commit.id))
            for info in store.agents()
            for commit in store.agent_of(info).log()
        }


def check(url: str) -> None:
    """Each agent counted every number once."""
    with perdure.open(url) as store:
        verify_all(backend_of(store))
        for info in store.agents():
            log = store.agent_of(info).log()
            counts = [int(one.cause.key or -1) for one in log if one.cause.key is not None]
            assert sorted(counts) == list(range(len(counts)))
            assert store.agent(info.name).state["n"] == len(counts)


def places(folder: Path, target: str) -> tuple[str, str]:
    """A source that is there, and a target that is not."""
    source = str(folder / "source.db")
    perdure.open(source).close()
    return source, shared().new_url() if target == "postgres" else str(folder / "target.db")


@pytest.mark.parametrize(("seed", "kind"), [(0, "sqlite"), (1, "sqlite"), (2, "postgres")])
def test_i1_a_follower_survives_kills_on_both_sides(
    hospital: Hospital, seed: int, kind: str
) -> None:
    luck = random.Random(seed)
    source, target = places(hospital.folder, kind)
    for _ in range(3):
        writer = hospital.start("write", source, *NAMES)
        follower = hospital.start("follow", source, target)
        writer.more(luck.randint(3, 40))
        if luck.random() < 0.7:
            follower.more(luck.randint(1, 3))
        time.sleep(luck.uniform(0, 0.02))  # anywhere in a transaction
        victims = [writer, follower]
        luck.shuffle(victims)
        for victim in victims:
            victim.kill()
    with following(source, target) as last:
        last.drain()
    assert acknowledged(hospital.folder, "write") <= logged(target)
    assert logged(source) == logged(target)
    with perdure.open(source) as one, perdure.open(target) as other:
        assert picture(backend_of(one)) == picture(backend_of(other))
    assert promote(target).lossless
    check(target)


@pytest.mark.parametrize(("seed", "kind"), [(0, "sqlite"), (1, "postgres")])
def test_i4_a_store_is_moved_by_one_who_is_killed(hospital: Hospital, seed: int, kind: str) -> None:
    """Two processes write all the while, and go after their agents; who moves them is killed again
    and again."""
    luck = random.Random(seed)
    source, target = places(hospital.folder, kind)
    writers = [
        hospital.start("write", source, "a", "b", file="one"),
        hospital.start("write", source, "c", "d", file="two"),
    ]
    for writer in writers:
        writer.more(6)
    for _ in range(4):
        mover = hospital.start("migrate", source, target)
        mover.more(luck.randint(1, 4), may_end=True)
        time.sleep(luck.uniform(0, 0.02))
        mover.kill()
    hospital.start("migrate", source, target).wait()
    assert _kind(source) == "moved"
    for writer in writers:
        writer.more(6)
        writer.kill()
    assert acknowledged(hospital.folder, "one", "two") <= logged(target)
    check(target)
    with perdure.open(source) as store, pytest.raises(ClosedError, match="was moved to"):
        store.agent("a").save({"n": -1}, "late")


def test_i4_a_promotion_survives_a_kill(hospital: Hospital) -> None:
    """At the end of each write that a promotion makes, it ends: the next one finishes it."""
    source, target = str(hospital.folder / "source.db"), str(hospital.folder / "target.db")
    with perdure.open(source) as store:
        for name in NAMES:
            with store.agent(name).edit("count", key="0") as draft:
                draft["n"] = 1
    with following(source, target) as follower:
        follower.drain()
    write = 0
    while _kind(target) != "promoted":
        child = os.fork()
        if child == 0:
            _promote_and_die(target, write)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -9
        write += 1
        assert write < 20, "it makes no end"
    assert write > 2
    check(target)
    with perdure.open(target) as store:
        store.agent("a").save({"n": 2}, "on")


def _kind(url: str) -> str:
    with perdure.open(url) as store:
        why = read_why(backend_of(store).standing())
    assert why is not None
    return why.kind


def _promote_and_die(target: str, after: int) -> None:
    """In a child: killed after so many writes."""
    from perdure.storage.sqlite.backend import SqliteBackend

    left = [after]

    def dies(real: Callable[..., None]) -> Callable[..., None]:
        def write(*args: object, **how: object) -> None:
            real(*args, **how)
            if not left[0]:
                os.kill(os.getpid(), 9)
            left[0] -= 1

        return write

    try:
        for name in ("ship", "stand"):
            setattr(SqliteBackend, name, dies(getattr(SqliteBackend, name)))
        promote(target)
        os._exit(0)
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        os._exit(1)
