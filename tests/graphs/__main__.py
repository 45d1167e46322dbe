"""Run programs of tasks that chance makes, kill them, go over them again: ``make graphs``.

Args: --programs N, --seed S of the first, --kills K of each, at boundaries by chance; --exits E
programs in which something ends the program; --timed T that are about time, in loops that are
held up.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.graphs import exits
from tests.graphs.checking import live, live_held_up
from tests.graphs.generate import program
from tests.graphs.timed import timed_program

BOUNDARIES = 60
"""About as many as a program has: a kill behind the last finds that it has ended."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.graphs", description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--exits", type=int, default=300)
    parser.add_argument("--timed", type=int, default=1000)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)  # of functions that leave tasks behind
    began, failed, kills = time.monotonic(), 0, 0
    for seed in range(options.seed, options.seed + options.exits):
        try:
            exits.try_program(seed)
        except Exception as error:
            failed += 1
            print(f"## exits, seed {seed}: {json.dumps(exits.program(seed))}\n  {error!r}")
            sys.stdout.flush()
    for seed in range(options.seed, options.seed + options.programs):
        try:
            kills += try_program(seed, options.kills)
        except Exception as error:
            failed += 1
            print(f"## seed {seed}: {json.dumps(program(seed))}\n  {type(error).__name__}: {error}")
            sys.stdout.flush()
    for seed in range(options.seed, options.seed + options.timed):
        try:
            kills += try_timed(seed, options.kills)
        except Exception as error:
            failed += 1
            print(f"## timed, seed {seed}: {json.dumps(timed_program(seed))}")
            print(f"  {type(error).__name__}: {error} {getattr(error, '__notes__', '')}")
            sys.stdout.flush()
    took_s = time.monotonic() - began
    programs = options.programs + options.exits + options.timed
    print(f"{programs} programs, {kills} kills, {failed} failed, {took_s:.0f} s")
    return 1 if failed else 0


def try_program(seed: int, kills: int, depth: int = 3) -> int:
    """Run a program, and run it again for each kill; returns how many of these came to pass."""
    whole = program(seed, depth)
    return _try(seed, kills, lambda where, kill_at: live(whole, where, kill_at))


def try_timed(seed: int, kills: int, depth: int = 3) -> int:
    """As `try_program`, of one about time."""
    whole, chance = timed_program(seed, depth), random.Random(seed)
    return _try(seed, kills, lambda where, kill_at: live_held_up(whole, where, chance, kill_at))


def _try(seed: int, kills: int, live: Callable[[Path, int | None], str | None]) -> int:
    chance = random.Random(seed)
    at = [None, *(chance.randrange(BOUNDARIES) for _ in range(kills))]
    quick = "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else None
    with tempfile.TemporaryDirectory(prefix="perdure-graphs-", dir=quick) as folder:
        killed = 0
        for number, kill_at in enumerate(at):
            where = Path(folder) / str(number)
            try:
                killed += live(where, kill_at) is not None
            except Exception as error:
                error.add_note(f"seed {seed}, killed at {kill_at}")
                raise
            shutil.rmtree(where)
    return killed


if __name__ == "__main__":
    sys.exit(main())
