"""`python -m tests.powerloss --images 50000 --seed 1`: cut the power until so many different images
of a store's files were looked at, and show by weaker settings that this sees what is lost; then cut
that of machines with a PostgreSQL server."""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

from tests.powerloss.postgres.whole import cut_servers
from tests.powerloss.sweep import Job, Swept, sweep
from tests.powerloss.workloads import WORKLOADS

CONTROLS = {"NORMAL": ("lost",), "OFF": ("lost", "corrupt")}
"""What a sweep must find where SQLite is told to sync less."""

CONTROL_WORKLOAD = "moving-the-wal"
SHOWN_MAX = 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.powerloss", description=__doc__)
    parser.add_argument("--images", type=int, default=50_000, help="in all (%(default)s); 0: none")
    parser.add_argument(
        "--postgres",
        type=int,
        default=100,
        metavar="CUTS",
        help="of the power of PostgreSQL servers (%(default)s); 0: none",
    )
    parser.add_argument("--seed", type=int, default=1, help="of the first round (%(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (%(default)s)")
    parser.add_argument("--subsets", type=int, default=8, help="drawn by chance at each moment")
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="default: all")
    parser.add_argument("--folder", type=Path, help="scratch space, best in memory")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="perdure-powerloss-", dir=options.folder or _memory()))
    keep = Path(tempfile.gettempdir()) / "perdure-powerloss-violations"
    workloads = options.workloads.split(",")
    try:
        with ProcessPoolExecutor(
            options.jobs, mp_context=multiprocessing.get_context("spawn")
        ) as pool:
            failed = []
            if options.images:
                failed += _controls(pool, folder, options.subsets, options.seed)
                failed += map(str, _sweeps(pool, folder, keep, options, workloads).violations)
            if options.postgres:
                failed += cut_servers(pool, folder, options.seed, options.postgres)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for words in failed[:SHOWN_MAX]:
        print(f"FAILED: {words}", file=sys.stderr)
    if len(failed) > SHOWN_MAX:
        print(f"… and {len(failed) - SHOWN_MAX} more", file=sys.stderr)
    return 1 if failed else 0


def _memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _controls(pool: ProcessPoolExecutor, folder: Path, subsets: int, seed: int) -> list[str]:
    """The controls that found nothing."""
    blind = []
    jobs = [(CONTROL_WORKLOAD, seed, synchronous) for synchronous in ("FULL", *CONTROLS)]
    for job, future in [(job, pool.submit(sweep, folder, None, subsets, job)) for job in jobs]:
        _, swept = future.result()
        synchronous = str(job[2])
        missed = [kind for kind in CONTROLS.get(synchronous, ()) if not swept.verdicts[kind]]  # type: ignore[index]
        print(f"control: synchronous={synchronous}: {_counts(swept)}", flush=True)
        if missed:
            blind.append(f"BLIND: synchronous={synchronous} should show {', '.join(missed)}")
    return blind


def _sweeps(
    pool: ProcessPoolExecutor,
    folder: Path,
    keep: Path,
    options: argparse.Namespace,
    workloads: list[str],
) -> Swept:
    began, total, done = time.monotonic(), Swept(), 0
    jobs = ((name, seed, None) for seed in itertools.count(options.seed) for name in workloads)
    for name, swept in _results(pool, folder, keep, options, jobs, total):
        total.add(swept)
        done += 1
        print(
            f"{done}: {name}: {_counts(swept)}; {len(total.images)} images in all, "
            f"{time.monotonic() - began:.0f} s",
            flush=True,
        )
    print(
        f"{_counts(total)}; {total.operations} operations, {total.syncs} of them syncs, in {done} "
        f"recordings from seed {options.seed} on; {time.monotonic() - began:.0f} s",
        flush=True,
    )
    return total


def _results(
    pool: ProcessPoolExecutor,
    folder: Path,
    keep: Path,
    options: argparse.Namespace,
    jobs: Iterator[Job],
    total: Swept,
) -> Iterator[tuple[str, Swept]]:
    """One by one, as they come; no new ones are begun when there is enough, or a violation."""
    pending: set[Future[tuple[str, Swept]]] = set()
    while True:
        enough = len(total.images) >= options.images or bool(total.violations)
        while not enough and len(pending) < options.jobs:
            pending.add(pool.submit(sweep, folder, keep, options.subsets, next(jobs)))
        if not pending:
            return
        ready, pending = wait(pending, return_when=FIRST_COMPLETED)
        for future in ready:
            yield future.result()


def _counts(swept: Swept) -> str:
    return (
        f"{len(swept.images)} images, {swept.checks} checks: {swept.verdicts['whole']} whole, "
        f"{swept.verdicts['lost']} lost, {swept.verdicts['corrupt']} corrupt"
    )


if __name__ == "__main__":
    sys.exit(main())
