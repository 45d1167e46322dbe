"""Call everything with rubbish: ``make rubbish`` (a few million calls).

Args: --calls N in all, --store memory|sqlite|postgres|commands|all, --seed S, --only WORD;
`commands` are those of the command line.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.rubbish import command_line
from tests.rubbish.attack import Attack, Case, one_wrong, several_wrong
from tests.rubbish.world import new_memory


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=3_000_000)
    parser.add_argument(
        "--store", default="all", choices=["memory", "sqlite", "postgres", "commands", "all"]
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--shown", type=int, default=40)
    options = parser.parse_args()
    warnings.simplefilter("ignore", RuntimeWarning)  # coroutines that a refused call was given
    kinds = (
        ["memory", "sqlite", "postgres", "commands"] if options.store == "all" else [options.store]
    )
    # Most in memory: what a backend does with what came through is the smaller part.
    shares = {"memory": 0.9, "sqlite": 0.077, "postgres": 0.02, "commands": 0.003}
    whole = sum(shares[kind] for kind in kinds)
    found = 0
    with tempfile.TemporaryDirectory() as folder:
        deep = Path(folder, "some", "where")
        deep.mkdir(parents=True)
        os.chdir(deep)  # urls that are made up are paths, too
        for kind in kinds:
            calls = round(options.calls * shares[kind] / whole)
            if kind == "commands":
                found += type_commands(folder, calls, options)
            else:
                found += attack(kind, _urls(kind, folder), calls, options)
        os.chdir("/")
    return 1 if found else 0


def _urls(kind: str, folder: str) -> Callable[[], str]:
    if kind == "memory":
        return new_memory
    if kind == "postgres":
        from tests.postgres.server import shared

        return lambda: shared().new_url()
    numbers = itertools.count()
    return lambda: f"sqlite:///{folder}/store-{next(numbers)}.db"


def _cases(attack: Attack, calls: int, rng: random.Random, only: str) -> Iterator[Case]:
    systematic = [case for case in one_wrong(attack.caller) if only in case[0]]
    rng.shuffle(systematic)
    random_ones = (case for case in several_wrong(attack.caller, rng) if only in case[0])
    return itertools.islice(itertools.chain(systematic, random_ones), calls)


def attack(kind: str, new_url: Callable[[], str], calls: int, options: argparse.Namespace) -> int:
    """Returns how many different findings there are."""
    one = Attack(new_url)
    kept: Counter[tuple[str, str]] = Counter()
    began = time.monotonic()
    try:
        for case in _cases(one, calls, random.Random(options.seed), options.only):
            finding = one.run(case)
            if finding is None:
                continue
            what = finding.target, finding.problem[:60]
            kept[what] += 1
            if kept[what] == 1 and len(kept) <= options.shown:
                print(_printable(f"{finding}"), flush=True)
    finally:
        one.close()
    took = time.monotonic() - began
    print(
        f"{kind}: {one.calls:,} calls, {one.refused:,} refused, {len(kept)} kinds of findings "
        f"({sum(kept.values())} calls), {took:.0f} s"
    )
    return len(kept)


def _printable(words: str) -> str:
    """Lone surrogates, which are among the wrong values, no terminal takes."""
    return words.encode(errors="backslashreplace").decode()


def type_commands(folder: str, calls: int, options: argparse.Namespace) -> int:
    """Returns how many different findings there are."""
    rng = random.Random(options.seed)
    cases = [one for one in command_line.one_wrong() if options.only in one[0].name]
    rng.shuffle(cases)
    more = (one for one in command_line.several_wrong(rng) if options.only in one[0].name)
    operator = command_line.Operator(folder)
    kept: Counter[tuple[str, str]] = Counter()
    try:
        for case in itertools.islice(itertools.chain(cases, more), calls):
            problem = operator.run(case)
            if problem:
                what = case[0].name, problem.rpartition("}: ")[2][:40]
                kept[what] += 1
                if kept[what] == 1:
                    print(_printable(problem), flush=True)
    finally:
        operator.close()
    print(f"commands: {operator.calls:,} calls, {len(kept)} kinds of findings")
    return len(kept)


if __name__ == "__main__":
    sys.exit(main())
