"""Opens what a power loss left, as a fresh process would, and holds it against what was promised.

The tables are the judge: at each moment of a recording there is a row of states that the store
went through, transaction by transaction. An image must show one of them, whole, and none that lies
before the last one that was acknowledged.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import apsw
from msgspec import Struct

from perdure.errors import PerdureError
from perdure.storage.clocks import wall_clock
from perdure.storage.log.reader import LogReader
from perdure.storage.sqlite.backend import SqliteBackend
from perdure.storage.sqlite.connection import checksum_vfs
from perdure.store import Store
from perdure.testing.pen import Pen
from perdure.verification.verify import verify_log
from tests.powerloss import lazy_steps, support
from tests.powerloss.images import Disk, Image
from tests.powerloss.workloads import ACKNOWLEDGED, EFFECT, NAME, Recording

Verdict = Literal["whole", "lost", "corrupt"]
"""Whole: as promised. Lost: a state that the store was in before it acknowledged more. Corrupt: it
cannot be opened, fails a check, or shows what it never was."""

HOUR_US = 3600 * 1_000_000
FINISHES = {"runs": support.finish, "steps": lazy_steps.finish}
AFTERWARDS = "after the power loss"


class Found(Struct, frozen=True):
    """What an image turned out to be. `state`: the digest of its tables."""

    verdict: Verdict
    words: str = ""
    state: bytes = b""


class History:
    """The states that a recording went through, and which of them a power loss may leave.

    Args:
        folder: scratch space.
    """

    def __init__(self, recording: Recording, disk: Disk, folder: Path) -> None:
        self._folder = folder
        self._disk = disk
        self.states: list[bytes] = [self._state()]
        self.acknowledged = 0
        self._last = disk.seen().digest()
        self._ends = _commit_ends(recording)
        self.effects: list[str] = []

    def go_on(self, place: int, name: str) -> None:
        """The operation at that place of the tape was played; `name` is that of a mark."""
        acknowledged = name == ACKNOWLEDGED
        if acknowledged or place in self._ends:
            digest = self._disk.seen().digest()
            if digest != self._last:
                self._last = digest
                state = self._state()
                if state != self.states[-1]:
                    self.states.append(state)
        if acknowledged:
            self.acknowledged = len(self.states) - 1
        elif name.startswith(EFFECT):
            self.effects.append(name.removeprefix(EFFECT))

    def judge(self, state: bytes) -> Verdict:
        if state in self.states[self.acknowledged :]:
            return "whole"
        return "lost" if state in self.states else "corrupt"

    def _state(self) -> bytes:
        lay_out(self._disk.seen(), self._folder)
        path = str(self._folder / NAME)
        SqliteBackend(path).close()
        return state_of(path)


def _commit_ends(recording: Recording) -> set[int]:
    """Where on the tape a transaction became whole in the WAL: with the content of its last frame;
    or with the head of it, where an earlier frame left the same content at the same place."""
    wals = {
        operation.file
        for operation in recording.operations
        if operation.kind == "create" and operation.name.endswith("-wal")
    }
    ends, commits = set(), False
    for place, operation in enumerate(recording.operations):
        if operation.kind != "write" or operation.file not in wals:
            continue
        if len(operation.data) == 24:  # a frame's header; bytes 4 to 7: of a commit
            commits = any(operation.data[4:8])
            if commits:
                ends.add(place)
        elif commits:
            ends.add(place)
            commits = False
    return ends


def lay_out(image: Image, folder: Path) -> None:
    """Make the folder hold the image, and nothing else."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in image.files.items():
        (folder / name).write_bytes(content)


def state_of(path: str) -> bytes:
    """The digest of all rows of all tables that say what the store holds."""
    whole = hashlib.blake2b(digest_size=16)
    db = apsw.Connection(path, vfs=checksum_vfs())
    try:
        tables = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"
        for (table,) in db.execute(tables).fetchall():
            if table == "wal_base":
                continue  # of the files: who closes them after a crash draws another number
            rows = sorted(map(repr, db.execute(f'SELECT * FROM "{table}"')))
            whole.update(repr((table, rows)).encode())
    finally:
        db.close()
    return whole.digest()


class Checker:
    """Checks images of one recording in a scratch folder.

    Args:
        deep: every so many images all is done that can be done: logs are verified, runs go on, the
            store is opened once more. So it is at the first image of each state.
    """

    def __init__(self, folder: Path, workload: str, deep: int) -> None:
        self._folder = folder
        self._workload = workload
        self._deep = deep
        self._checked = 0
        self._known: set[tuple[bytes, Sequence[str]]] = set()

    def check(self, image: Image, history: History) -> Found:
        lay_out(image, self._folder)
        self._checked += 1
        if self._checked % 3 == 0:  # an index of the WAL from before the power loss is no use
            (self._folder / f"{NAME}-shm").write_bytes(os.urandom(32768))
        try:
            return self._check(history)
        except (PerdureError, apsw.Error, AssertionError) as error:
            return Found("corrupt", f"{type(error).__name__}: {error}")

    def _check(self, history: History) -> Found:
        path = str(self._folder / NAME)
        later = self._checked % 2 * HOUR_US  # the leases of the dead are expired, or
        backend = SqliteBackend(path, clock=lambda: wall_clock() + later)
        try:
            backend.maintain("check")
            state = state_of(path)
            verdict = history.judge(state)
            if verdict != "whole":
                return Found(verdict, "it shows another state than was acknowledged", state)
            world = (state, tuple(history.effects))
            deep = world not in self._known or self._checked % self._deep == 0
            self._known.add(world)
            store = Store(backend)
            if not later:
                _locks_of_the_dead(backend)  # … provably free
            if deep:
                _verify(backend)
                if finish := FINISHES.get(self._workload):
                    finish(store, history.effects)
            _goes_on(backend)
            store.close()
        finally:
            backend.close()
        if deep:
            _again(path)
        return Found("whole", state=state)


def _locks_of_the_dead(backend: SqliteBackend) -> None:
    """What lies beside a store on a real disk: the files that the executors held locks on."""
    folder = Path(backend.path + "-executors")
    folder.mkdir(exist_ok=True)
    for row in backend.executors():
        (folder / row.id).touch()


def _verify(backend: SqliteBackend) -> None:
    for info in backend.incarnations():
        verify_log(backend, LogReader(backend, info))
        for ref in [] if info.purged else backend.refs(info.no):
            for commit in LogReader(backend, info).commits(1, info.seq):
                assert commit.branch != ref.name or commit.epoch <= ref.epoch, "an epoch went back"


def _goes_on(backend: SqliteBackend) -> None:
    Pen(backend, AFTERWARDS).write(value="it goes on")
    found = backend.agent(AFTERWARDS)
    assert found is not None and found.seq == 1, "a further commit is not there"


def _again(path: str) -> None:
    backend = SqliteBackend(path)
    try:
        backend.maintain("check")
        _verify(backend)
        found = backend.agent(AFTERWARDS)
        assert found is not None and found.seq == 1, "what came after the power loss is not there"
    finally:
        backend.close()
