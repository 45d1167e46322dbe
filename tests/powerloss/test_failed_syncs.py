"""What a sync that failed leaves: nothing that is acknowledged afterwards may rest on it."""

import itertools
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec import Struct

from perdure.errors import StoreUnavailable
from perdure.storage.appending import Appended, Outcome
from perdure.storage.log.reader import LogReader
from perdure.storage.sqlite.backend import SqliteBackend
from perdure.testing.pen import Pen
from perdure.verification.verify import verify_log
from tests.powerloss.checking import lay_out
from tests.powerloss.images import Disk
from tests.powerloss.recording import Tape

NAME = "store.db"
BEFORE = 3
"""Commits that are there before the sync fails."""


Logs = dict[str, int]
"""Agents, and how many commits each has."""


class Scene(Struct):
    """A store in a folder, written by a pen, with a tape of it."""

    folder: Path
    tape: Tape
    backend: SqliteBackend
    pen: Pen

    def commit_while_syncs_fail(self, pattern: tuple[bool, ...]) -> Outcome:
        left = iter(pattern)
        self.tape.fails = lambda name: next(left, False)
        append, tail = self.pen.make(value="y" * 9000)
        (outcome,) = self.backend.append([append])
        self.tape.fails = lambda name: False
        if isinstance(outcome, Appended):
            self.pen.accept(append, tail, outcome)
        return outcome

    def after_a_kill(self, place: Path) -> Logs:
        """What another process finds if this one is killed now: the system's memory stays."""
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        for path in self.folder.iterdir():
            if path.is_file() and not path.name.endswith("-shm"):
                shutil.copy(path, place)
        return logs(place)

    def after_power_losses(self, place: Path, since: int | None = None) -> list[Logs]:
        """What may be found if the power fails now, or at any moment since a place on the tape."""
        found: list[Logs] = []
        last = len(self.tape.operations) - 1
        for kept in (0.0, 0.5):
            rng = random.Random(f"{kept}")
            disk = Disk(self.tape.before, rng, kept)
            for number, operation in enumerate(self.tape.operations):
                disk.play(operation)
                if number >= (last if since is None else since):
                    for image in disk.crashes(rng, 2):
                        lay_out(image, place)
                        found += [now] if (now := logs(place)) not in found else []
        return found


def logs(folder: Path) -> Logs:
    """What a fresh process finds, in a store that is whole."""
    backend = SqliteBackend(str(folder / NAME), create=False)
    try:
        backend.maintain("check")
        for info in backend.agents():
            verify_log(backend, LogReader(backend, info))
        return {info.name: info.seq for info in backend.agents()}
    finally:
        backend.close()


@contextmanager
def scene(folder: Path, reading: bool) -> Iterator[Scene]:
    """`reading`: another connection of the process has the file open, too."""
    folder.mkdir()
    tape = Tape(str(folder))
    with tape.recording():
        backend = SqliteBackend(str(folder / NAME), vfs=tape.name)
        pen = Pen(backend)
        for _ in range(BEFORE):
            pen.write(value="x" * 5000)
        if reading:
            backend.agents()
        try:
            yield Scene(folder, tape, backend, pen)
        finally:
            backend.close()


PATTERNS = [
    (True, *later)
    for places, failures in ((8, (0, 1)), (4, (2,)))
    for later in itertools.product([False, True], repeat=places)
    if sum(later) in failures
]
"""Which syncs fail: the commit's, and one or two of those by which that is made good."""


@pytest.mark.parametrize("reading", [False, True])
def test_i1_the_answer_after_failed_syncs_holds(tmp_path: Path, reading: bool) -> None:
    """A commit whose sync had failed was found again by reopening, and acknowledged after a
    checkpoint. But the WAL was never written again: the power failed, and its older frames lay over
    the newer main file. An acknowledged commit was lost.

    And the other way: both attempts failed, "not done" was said, and the frames stayed in the WAL.
    The process was killed, and the next one found the commit done.
    """
    answers = set()
    for number, pattern in enumerate(PATTERNS):
        with scene(tmp_path / str(number), reading) as at:
            outcome = at.commit_while_syncs_fail(pattern)
            found = [at.after_a_kill(tmp_path / "killed")]
            found += at.after_power_losses(tmp_path / "power")
            after = {one["a"] for one in found}
        if isinstance(outcome, Appended):
            assert after == {BEFORE + 1}, pattern
            answers.add("done")
        else:
            assert isinstance(outcome, StoreUnavailable)
            answers.add(outcome.outcome)
            if outcome.outcome != "unknown":
                assert after == {BEFORE}, pattern
            assert after <= {BEFORE, BEFORE + 1}, pattern
    assert {"done", "unknown"} <= answers


@pytest.mark.parametrize("reading", [False, True])
def test_i2_while_a_failed_sync_is_made_good_the_power_may_fail(
    tmp_path: Path, reading: bool
) -> None:
    """The commit's pages were on their way into the main file, the log that had them too was not on
    the disk: half of a commit was there, under older pages from the log."""
    with scene(tmp_path / "store", reading) as at:
        at.backend.maintain("clean")
        at.pen.write(value="short: few pages are in the log")
        since = len(at.tape.operations)
        at.pen = Pen(at.backend, "b")
        assert isinstance(at.commit_while_syncs_fail((True,)), Appended)
        found = at.after_power_losses(tmp_path / "power", since)
        before, after = {"a": BEFORE + 1}, {"a": BEFORE + 1, "b": 1}
        assert found[0] == before and after in found
        assert all(one in (before, after) for one in found), found


@pytest.mark.parametrize("ends", ["closed", "killed"])
def test_i1_who_comes_after_a_failed_sync_does_not_build_on_it(tmp_path: Path, ends: str) -> None:
    """A process could not sync a commit, said "unknown", and ended. The next one read it from the
    system's memory, wrote its own commits behind it, and acknowledged them. The power failed: the
    log had a hole, and the store was `Corrupt`, "with commits behind it"."""
    folder = tmp_path / "store"
    with scene(folder, reading=False) as first:
        failing = True
        first.tape.fails = lambda name: failing
        (outcome,) = first.backend.append([first.pen.make(value="y" * 9000)[0]])
        assert isinstance(outcome, StoreUnavailable) and outcome.outcome == "unknown"
        if ends == "closed":
            first.backend.close()  # and the disk is as bad as before
        failing = False
        second = SqliteBackend(str(folder / NAME), vfs=first.tape.name)
        pen = Pen(second, "b")
        for _ in range(3):
            pen.write(value="z" * 3000)
        for found in first.after_power_losses(tmp_path / "power"):
            assert found["a"] in (BEFORE, BEFORE + 1) and found["b"] == 3
        second.close()
    left = {path.name for path in folder.iterdir() if path.is_file()}
    assert left == {NAME}, "once all is well, nothing tells of the doubt"
