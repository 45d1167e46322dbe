"""`python -m tests.soak --minutes 60`: a realistic mix for so long; is all that it takes steady?"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from perdure.errors import PerdureError
from tests.soak.lives import SoakError
from tests.soak.soak import Plan, Soak

PURGE_S, KILL_S, SAMPLES = 10.0, 20.0, 720
PLANTS = ("memory", "descriptors", "file")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long (%(default)s)")
    parser.add_argument("--seed", default="1", help="of what happens (%(default)s)")
    parser.add_argument("--folder", type=Path, help="where the store is; it is kept then")
    parser.add_argument(
        "--plant",
        action="append",
        choices=PLANTS,
        default=[],
        help="a control: let this leak, or delete nothing; must be reported",
    )
    options = parser.parse_args()
    base = options.folder or Path(tempfile.mkdtemp(prefix="perdure-soak-"))
    base.mkdir(parents=True, exist_ok=True)
    until = options.minutes * 60
    plan = Plan(
        until,
        PURGE_S,
        KILL_S,
        until / SAMPLES,
        plants=frozenset(options.plant),
        seed=options.seed,
    )
    print(f"{options.minutes:g} minutes in {base}", flush=True)
    soak = Soak(base, plan, lambda line: print(line, flush=True))
    try:
        unsteady = soak.run()
    except (SoakError, PerdureError) as error:
        print(f"FAILED: {error}\nwhat is left of it: {base}", file=sys.stderr)
        return 1
    tally = soak.tally
    print(
        f"{tally.seconds / 60:.1f} minutes: {tally.lives} lives, {tally.kills} killed, "
        f"{tally.purged} purged; no effect repeated, nothing stranded, all verified"
    )
    print("medians of the quarters behind the warm-up:", *soak.book.table(), sep="\n  ")
    if options.folder is None:
        shutil.rmtree(base)
    for words in unsteady:
        print(f"NOT STEADY: {words}", file=sys.stderr)
    return 1 if unsteady else 0


if __name__ == "__main__":
    sys.exit(main())
