"""Run programs of tasks that chance makes, kill them, go over them again: ``make graphs``.

Args: --programs N of each kind in a share of its own, --seed S of the first, --kills K of each, at
boundaries by chance; --only KIND; --store memory, sqlite or postgres, for the kinds that go by it.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time

from tests.graphs.kinds import KINDS
from tests.graphs.watching import watched


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.graphs", description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--store", choices=("memory", "sqlite", "postgres"))
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)  # of functions that leave tasks behind
    began, programs, failed, kills = time.monotonic(), 0, 0, 0
    for name, kind in KINDS.items():
        if options.only not in (None, name):
            continue
        for seed in range(options.seed, options.seed + int(options.programs * kind.share)):
            programs += 1
            try:
                with watched(f"{name}, seed {seed}"):
                    kills += kind.try_program(seed, options.kills, options.store)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # what the library ends code with, among others
                failed += 1
                print(f"## {name}, seed {seed}: {json.dumps(kind.program(seed))}")
                print(f"  {type(error).__name__}: {error} {getattr(error, '__notes__', '')}")
                sys.stdout.flush()
    took_s = time.monotonic() - began
    print(f"{programs} programs, {kills} kills, {failed} failed, {took_s:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
