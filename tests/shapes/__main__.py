"""Put shapes of values into stores by each way, and look at what came back: ``make shapes``.

Args: --shapes N in all, --programs N in all, --store memory|sqlite|postgres|all, --seed S (of the
first). What was taken is compared at once, in another store of this process and, but for memory, in
another process. Then programs of edits go over states of such shapes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import perdure
from tests.shapes.grown import run_seed
from tests.shapes.ways import LossError, look, put

CHUNK = 200
SHARES = {"memory": 0.8, "sqlite": 0.15, "postgres": 0.05}
Taken = Mapping[str, Mapping[str, bool]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.shapes", description=__doc__)
    parser.add_argument("--shapes", type=int, default=50_000)
    parser.add_argument("--programs", type=int, default=10_000)
    parser.add_argument("--store", default="all", choices=[*SHARES, "all"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--look", nargs=2, help="a store, and a file of what it took")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of pydantic, about shapes that chance makes
    if options.look:
        look_at(options.look[0], json.loads(Path(options.look[1]).read_text("utf-8")))
        return 0
    kinds = list(SHARES) if options.store == "all" else [options.store]
    whole = sum(SHARES[kind] for kind in kinds)
    first = options.seed
    for kind in kinds:
        count = round(options.shapes * SHARES[kind] / whole)
        began, counts = time.process_time(), Counter[str]()
        for start in range(first, first + count, CHUNK):
            counts += in_one_store(kind, range(start, min(start + CHUNK, first + count)))
        first += count
        print(f"{kind}: {count} shapes, {time.process_time() - began:.0f} s of CPU: {dict(counts)}")
        seeds = range(options.seed, options.seed + round(options.programs * SHARES[kind] / whole))
        began, changes = time.process_time(), programs(kind, seeds)
        took_s = time.process_time() - began
        print(f"{kind}: {len(seeds)} programs, {took_s:.0f} s of CPU: {changes} changes")
    return 0


def programs(kind: str, seeds: Iterable[int]) -> int:
    """Runs the programs of these seeds in one store. Returns the number of steps that changed
    something.

    Raises:
        LossError, AssertionError, PerdureError: one showed what it should not.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        perdure.open(_url(kind, folder), durability="os") as store,
    ):
        return sum(run_seed(store, seed) for seed in seeds)


def in_one_store(kind: str, seeds: Iterable[int]) -> Counter[str]:
    """How many shapes it took and refused.

    Raises:
        LossError: one came back otherwise.
    """
    with tempfile.TemporaryDirectory() as folder:
        url = _url(kind, folder)
        with perdure.open(url, durability="os") as store:
            taken = {str(seed): put(store, seed) for seed in seeds}
            for seed, ways in taken.items():
                look(store, int(seed), ways)
        if kind != "memory":
            look_at(url, taken)
            _look_from_elsewhere(url, taken, folder)
    return Counter(map(_word, taken.values()))


def _word(ways: Mapping[str, bool]) -> str:
    if not ways:
        return "refused where it is declared"
    if all(ways.values()):
        return "taken"
    return "taken by some ways" if any(ways.values()) else "refused"


def look_at(url: str, taken: Taken) -> None:
    with perdure.open(url, durability="os") as store:
        for seed, ways in taken.items():
            look(store, int(seed), dict(ways))


def _look_from_elsewhere(url: str, taken: Taken, folder: str) -> None:
    path = Path(folder, "taken.json")
    path.write_text(json.dumps(taken), "utf-8")
    command = [sys.executable, "-m", "tests.shapes", "--look", url, str(path)]
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LossError(f"in another process: {done.stderr[-2000:]}")


def _url(kind: str, folder: str) -> str:
    if kind == "postgres":
        from tests.postgres.server import shared

        return shared().new_url()
    return "memory://" if kind == "memory" else f"sqlite:///{folder}/store.db"


if __name__ == "__main__":
    sys.exit(main())
