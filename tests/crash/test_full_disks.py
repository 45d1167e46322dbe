"""What is said of a commit for which there was no room, and whether that stays true."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest
from msgspec import Struct

from perdure.errors import StoreUnavailable
from perdure.model import Message
from perdure.storage.appending import Append
from perdure.storage.capabilities import Sent
from perdure.storage.sqlite.backend import SqliteBackend
from perdure.testing.contract.backend import Pen
from perdure.testing.faults import FaultyFiles, Operation, no_fault

BEFORE = 3
"""Commits that are there before the disk is full."""


BIG = random.Random(1).randbytes(9000).hex()
"""Several pages, also when it is compressed."""


class Full(Struct):
    """A store whose disk is about to be full."""

    path: Path
    files: FaultyFiles
    backend: SqliteBackend
    pen: Pen

    def fill(self, writes: int) -> None:
        """Let so many writes to the WAL get through, and none to the main file."""
        left = iter(range(writes))

        def full(operation: Operation, name: str, end: int) -> None:
            if operation == "write" and (not name.endswith("-wal") or next(left, None) is None):
                raise apsw.FullError("database or disk is full")

        self.files.fault = full

    def append(self) -> tuple[Append, StoreUnavailable]:
        append, _ = self.pen.make(value=BIG)
        (outcome,) = self.backend.append([append])
        assert isinstance(outcome, StoreUnavailable), outcome
        return append, outcome

    def shown(self) -> list[bytes]:
        return [row.header for row in self.backend.read(1, 1, 99)]

    def shown_after_a_kill(self) -> list[bytes]:
        place = self.path.parent / "killed"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        for end in ("", "-wal"):
            shutil.copy(f"{self.path}{end}", place / f"a.db{end}")
        backend = SqliteBackend(str(place / "a.db"))
        try:
            backend.maintain("check")
            return [row.header for row in backend.read(1, 1, 99)]
        finally:
            backend.close()


Make = Callable[..., Full]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(number: int = 0) -> Full:
        place = tmp_path / f"{number}"
        files = FaultyFiles()
        backend = SqliteBackend(str(place), vfs=files.name)
        pen = Pen(backend)
        for n in range(BEFORE):
            pen.write(value=n)
        return Full(place, files, backend, pen)

    return made


def test_a_commit_that_met_a_full_disk_is_said_to_be_not_done(make: Make) -> None:
    """The first one that was refused was "unknown": what was to find out needed room itself. So
    whoever's disk was full had to look for a commit that could not be there."""
    disk = make()
    disk.fill(0)
    append, error = disk.append()
    assert error.outcome == "not_done" and "disk is full" in str(error)
    assert len(disk.shown()) == len(disk.shown_after_a_kill()) == BEFORE
    assert disk.append()[1].outcome == "not_done"
    disk.files.fault = no_fault
    assert len(disk.shown()) == BEFORE
    disk.pen.write()
    assert append.header not in disk.shown()
    disk.backend.close()


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside another"])
@pytest.mark.parametrize("wal", ["going on", "emptied", "new"])
@pytest.mark.parametrize("after", [False, True], ids=["refused", "done and refused"])
def test_i1_what_is_said_to_be_not_done_never_comes_to_light(
    make: Make, after: bool, wal: str, beside: bool
) -> None:
    """The disk is full from each write of a commit on. Also where that write was done all the same,
    as if there was no room for the index of the WAL behind it: SQLite does not show a commit of
    which all is there while anybody else has the file open, and after a crash it does."""
    told = []
    for writes in range(99):
        disk = make(writes)
        if wal == "emptied":
            disk.backend.maintain("clean")
        elif wal == "new":
            disk.backend.close()
            disk.backend = SqliteBackend(str(disk.path), vfs=disk.files.name)
        other = SqliteBackend(str(disk.path)) if beside else None
        disk.files.after = after
        disk.fill(writes)
        append, _ = disk.pen.make(value=BIG)
        (outcome,) = disk.backend.append([append])
        if not isinstance(outcome, StoreUnavailable):
            break
        told.append(outcome.outcome)
        comes_to_light = append.header in disk.shown_after_a_kill()
        assert not comes_to_light or outcome.outcome == "unknown", writes
        disk.files.fault = no_fault
        shown = append.header in disk.shown()
        disk.backend.append([disk.pen.make(value=1)[0]])
        assert outcome.outcome == "unknown" or not shown
        assert outcome.outcome == "unknown" or append.header not in disk.shown()
        if other is not None:
            other.close()
        disk.backend.close()
    assert len(told) >= 8 and told[0] == "not_done"
    # Where there is nothing in the WAL but that commit, and SQLite does not show it, the WAL can be
    # emptied on a full disk, too: it is not done then.
    assert ("unknown" in told) == (after and (wal == "going on" or not beside))


def test_a_signal_that_met_a_full_disk_is_said_to_be_not_done(make: Make) -> None:
    """As a commit; but one that an earlier call has put in may be what its sender means."""
    disk = make()
    message = Message("", "a", "start", "", "key", {"text": BIG})
    disk.fill(0)
    for _ in range(2):
        with pytest.raises(StoreUnavailable) as failed:
            disk.backend.send(message)
        assert failed.value.outcome == "not_done"
    disk.files.fault = no_fault
    sent = disk.backend.send(message)
    assert isinstance(sent, Sent) and sent.fresh
    disk.backend.close()


FILL = """
import os, sys, perdure
store = perdure.open(sys.argv[1] + "/a.db")
agent = store.agent("a")
agent.save({"n": 0})
first = len(list(agent.log()))
room = os.statvfs(sys.argv[1])
with open(sys.argv[1] + "/ball", "wb") as ball:
    ball.write(bytes(room.f_bavail * room.f_frsize - 200_000))
refused = []
while len(refused) < 3:
    try:
        agent.save({"n": agent.state["n"] + 1, "text": os.urandom(1000).hex()})
    except perdure.StoreUnavailable as error:
        refused.append(error.outcome)
        agent.refresh()
os.unlink(sys.argv[1] + "/ball")
n = agent.refresh()["n"]
agent.save({"n": "done"})
agent.verify()
print(*refused, len(list(agent.log())) == first + n + 1)
"""

SCRIPT = """
mount -t tmpfs -o size=2M tmpfs "$1" || exit 77
"$0" -c "$2" "$1"
"""


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root mounts")
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", SCRIPT, sys.executable, str(tmp_path), FILL],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 77:
        pytest.skip("no mounts here")
    assert done.stdout.split() == ["not_done"] * 3 + ["True"], done
