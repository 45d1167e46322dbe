"""`python -m tests.simulation --seeds 1000 --seed 1`: simulate executors, clients and trouble, a
seed after the other, and hold what came of it against what is promised."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

from tests.simulation import lives
from tests.simulation.controls import CONTROLS, found_by
from tests.simulation.simulation import Outcome, simulate

SHOWN_MAX = 10
CONTROL_SEEDS = 200
"""How many simulations of something broken may pass before one says so."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="the first (%(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (%(default)s)")
    parser.add_argument("--history", type=Path, help="write that of the first seed to this file")
    parser.add_argument("--no-controls", action="store_true", help="leave out what is broken")
    options = parser.parse_args()
    if options.history is not None:
        outcome = simulate(options.seed)
        options.history.write_bytes(outcome.history)
        print(f"seed {outcome.seed}: {outcome.digest}, {len(outcome.history):,} bytes")
        return _tell_violations(outcome)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=spawn) as pool:
        blind = not options.no_controls and _controls(pool, options.seed)
        failed = _simulations(pool, options.seed, options.seeds, options.jobs)
        failed += _lives(pool, options.seed, options.seeds)
    return 1 if blind or failed else 0


def _lives(pool: ProcessPoolExecutor, first: int, seeds: int) -> int:
    """Stores that are followed, moved, trimmed and restored; how many failed."""
    began, failed = time.monotonic(), 0
    wanted = [(kind, seed) for seed in range(first, first + seeds) for kind in lives.KINDS]
    for said in pool.map(lives.outcome, *zip(*wanted, strict=True), chunksize=3):
        failed += bool(said)
        if said and failed <= SHOWN_MAX:
            print(f"FAILED: {said}", file=sys.stderr)
    took_s = time.monotonic() - began
    print(f"{len(wanted)} lives of stores from seed {first}: {failed} failed, in {took_s:.0f} s")
    return failed


def _controls(pool: ProcessPoolExecutor, first: int) -> bool:
    """Whether one of them was not noticed."""
    seeds = range(first, first + CONTROL_SEEDS)
    tries = {name: pool.submit(found_by, name, seeds) for name in CONTROLS}
    blind = False
    for name, found in tries.items():
        outcome = found.result()
        blind = blind or outcome is None
        where = "BLIND: nothing was found" if outcome is None else f"found by seed {outcome.seed}"
        print(f"control: {name}: {where}", flush=True)
    return blind


def _simulations(pool: ProcessPoolExecutor, first: int, seeds: int, jobs: int) -> int:
    """How many failed."""
    began, failed, counts, virtual_s = time.monotonic(), 0, Counter[str](), 0.0
    shown = 0
    for number, outcome in enumerate(_outcomes(pool, range(first, first + seeds), jobs), 1):
        counts.update(outcome.counts)
        virtual_s += outcome.virtual_s
        if outcome.violations:
            failed += 1
            shown += failed <= SHOWN_MAX and _tell_violations(outcome)
        if number % 100 == 0:
            print(f"{number} seeds, {failed} failed, {time.monotonic() - began:.0f} s", flush=True)
    words = ", ".join(f"{count:,} {what}" for what, count in sorted(counts.items()))
    print(
        f"{seeds} seeds from {first}: {failed} failed; {virtual_s / 3600:.1f} virtual hours in "
        f"{time.monotonic() - began:.0f} s: {words}"
    )
    return failed


def _outcomes(pool: ProcessPoolExecutor, seeds: range, jobs: int) -> Iterator[Outcome]:
    left = iter(seeds)
    under_way: set[Future[Outcome]] = set()
    while True:
        for seed in left:
            under_way.add(pool.submit(simulate, seed))
            if len(under_way) > 2 * jobs:
                break
        if not under_way:
            return
        done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
        for future in done:
            yield future.result()


def _tell_violations(outcome: Outcome) -> int:
    for violation in outcome.violations:
        print(f"FAILED: seed {outcome.seed}: {violation}", file=sys.stderr)
    if outcome.violations:
        print(
            f'  replay it: make simulate ARGS="--seed {outcome.seed} --history history.txt"',
            file=sys.stderr,
        )
    return int(bool(outcome.violations))


if __name__ == "__main__":
    sys.exit(main())
