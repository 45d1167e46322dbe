"""Records a workload, cuts the power at every moment of it, and counts what came of that."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from pathlib import Path

from msgspec import Struct, field

from tests.powerloss.checking import Checker, Found, History, Verdict, lay_out
from tests.powerloss.images import Disk, Image
from tests.powerloss.workloads import Recording, record

FORGOTTEN_SHARES = (0.0, 0.5)
"""Of what was not synced when a sync failed, so much is on the disk."""

KEPT_MAX = 5
"""Of the images of one sweep that break a promise."""


class Violation(Struct, frozen=True):
    """A broken promise. `kept`: a folder with the files that show it, if they were kept."""

    workload: str
    seed: int
    place: int
    operation: str
    how: str
    found: Found
    kept: str = ""

    def __str__(self) -> str:
        return (
            f"{self.found.verdict} after operation {self.place} ({self.operation}) of workload "
            f"{self.workload}, seed {self.seed}; {self.how}: {self.found.words}"
            + (f"; the files: {self.kept}" if self.kept else "")
        )


class Swept(Struct):
    """What a sweep came to. `images`: the distinct ones, by the digest of their files."""

    operations: int = 0
    syncs: int = 0
    checks: int = 0
    images: set[bytes] = field(default_factory=set)
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)

    def add(self, other: Swept) -> None:
        self.operations += other.operations
        self.syncs += other.syncs
        self.checks += other.checks
        self.images |= other.images
        self.verdicts += other.verdicts
        self.violations += other.violations


class Sweep:
    """See the module.

    Args:
        folder: scratch space.
        subsets: how many images are drawn by chance at each moment.
        share: of the moments, so many are looked at, drawn by chance.
        deep: as `Checker` has it.
        keep: where the files go that show violations.
    """

    def __init__(
        self,
        folder: Path,
        *,
        subsets: int = 6,
        share: float = 1.0,
        deep: int = 16,
        keep: Path | None = None,
    ) -> None:
        self._folder = folder
        self._subsets = subsets
        self._share = share
        self._deep = deep
        self._keep = keep

    def run(self, workload: str, seed: int, synchronous: str | None = None) -> Swept:
        """Record the workload, and sweep over the recording. Arguments are those of `record`."""
        recorded = self._folder / "recorded"
        shutil.rmtree(recorded, ignore_errors=True)
        recorded.mkdir(parents=True)
        recording = record(workload, seed, recorded, synchronous)
        swept = self.play(recording, 0.0)
        if any(operation.kind == "sync-failed" for operation in recording.operations):
            for kept in FORGOTTEN_SHARES[1:]:
                swept.add(self.play(recording, kept))
        return swept

    def play(self, recording: Recording, kept: float) -> Swept:
        """One sweep. `kept`: as `Disk` has it."""
        rng = random.Random(f"{recording.workload} {recording.seed} {kept}")
        disk = Disk(recording.before, rng, kept)
        history = History(recording, disk, self._folder / "state")
        checker = Checker(self._folder / "image", recording.workload, self._deep)
        swept = Swept()
        checked: set[tuple[bytes, int, int]] = set()
        for place, operation in enumerate(recording.operations):
            disk.play(operation)
            history.go_on(place, operation.name if operation.kind == "mark" else "")
            swept.operations += operation.kind != "mark"
            swept.syncs += operation.kind in ("sync", "sync-folder")
            if self._share < 1 and rng.random() >= self._share:
                continue
            for image in disk.crashes(rng, self._subsets):
                digest = image.digest()
                promised = digest, history.acknowledged, len(history.effects)
                if promised not in checked:
                    checked.add(promised)
                    swept.images.add(digest)
                    found = checker.check(image, history)
                    swept.checks += 1
                    swept.verdicts[found.verdict] += 1
                    if found.verdict != "whole":
                        self._note(swept, recording, place, image, found)
        return swept

    def _note(
        self, swept: Swept, recording: Recording, place: int, image: Image, found: Found
    ) -> None:
        number, kept = len(swept.violations), ""
        if self._keep is not None and number < KEPT_MAX:
            folder = self._keep / f"{recording.workload}-{recording.seed}-{place}-{number}"
            lay_out(image, folder)
            kept = str(folder)
        operation = str(recording.operations[place])
        violation = Violation(
            recording.workload, recording.seed, place, operation, image.how, found, kept
        )
        swept.violations.append(violation)


Job = tuple[str, int, str | None]
"""Workload, seed, and what SQLite waits for instead; as `record` has them."""


def sweep(folder: Path, keep: Path | None, subsets: int, job: Job) -> tuple[str, Swept]:
    """One job, in a process that does one at a time."""
    swept = Sweep(folder / str(os.getpid()), subsets=subsets, keep=keep).run(*job)
    return f"{job[0]} {job[1]}", swept
