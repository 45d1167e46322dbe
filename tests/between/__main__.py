"""Let another act between two calls of the store that one call makes: ``make between``.

Args: --programs N, --seed S of the first, --points P: moments of each that are tried, 0 for all;
--store memory, sqlite or postgres: of the store that both act on; --only NAME: of the first deed;
--moment M: that one alone; --statements: also between two statements of one call of a backend.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from collections import Counter

from tests.between.trying import POINTS, try_program


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.between", description=__doc__)
    parser.add_argument("--programs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--points", type=int, default=POINTS)
    parser.add_argument("--only", default="")
    parser.add_argument("--moment", type=int, default=0)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--statements", action="store_true")
    parser.add_argument("--store", choices=("memory", "sqlite", "postgres"), default="memory")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    began, failed = time.monotonic(), 0
    counts: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.programs):
        try:
            counts += try_program(
                seed,
                options.store,
                options.points,
                options.only,
                options.moment,
                statements=options.statements,
            )
        except KeyboardInterrupt:
            break
        except BaseException:
            failed += 1
            print(f"## seed {seed}\n{traceback.format_exc(limit=-options.depth)[:9000]}")
            sys.stdout.flush()
    for pair, count in sorted(counts.items()):
        print(f"{pair:40} {count}")
    took_s = time.monotonic() - began
    print(f"{options.programs} programs, {counts.total()} moments, {failed} failed, {took_s:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
