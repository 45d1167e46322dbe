"""Run programs of tasks that chance makes, kill them, go over them again: ``make graphs``.

Args: --programs N, --seed S of the first, --kills K of each, at boundaries by chance; --exits E
programs in which something ends the program.
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
from pathlib import Path

from tests.graphs import exits
from tests.graphs.checking import live
from tests.graphs.generate import program

BOUNDARIES = 60
"""About as many as a program has: a kill behind the last finds that it has ended."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.graphs", description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--exits", type=int, default=300)
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
    took_s = time.monotonic() - began
    programs = options.programs + options.exits
    print(f"{programs} programs, {kills} kills, {failed} failed, {took_s:.0f} s")
    return 1 if failed else 0


def try_program(seed: int, kills: int, depth: int = 3) -> int:
    """Run a program, and run it again for each kill; returns how many of these came to pass."""
    chance, whole = random.Random(seed), program(seed, depth)
    at = [None, *(chance.randrange(BOUNDARIES) for _ in range(kills))]
    quick = "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else None
    with tempfile.TemporaryDirectory(prefix="perdure-graphs-", dir=quick) as folder:
        killed = 0
        for number, kill_at in enumerate(at):
            where = Path(folder) / str(number)
            try:
                killed += live(whole, where, kill_at) is not None
            except Exception as error:
                error.add_note(f"seed {seed}, killed at {kill_at}")
                raise
            shutil.rmtree(where)
    return killed


if __name__ == "__main__":
    sys.exit(main())
