"""Raise exceptions at each instruction of each call, and look at what is left: ``make faults``.

Args: --injections N in all, --backend memory|sqlite|postgres|all, --only WORD, --seed S.
``--only SCENE --at N --kind K`` makes one alone, as it was printed; ``--after SECONDS`` too, by a
real signal, which comes somewhere else each time. One in ten is a signal's, at a moment by chance;
it may come inside of Python's library, too. One in four is followed by another exception, up to
some thousand instructions later (``--again M``), as from somebody who presses Ctrl-C twice.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tests.faults.injecting import KINDS
from tests.faults.running import Finding, Runner, runner
from tests.faults.scenes import SCENES
from tests.faults.user_scenes import USER_KINDS

SHARES = {"memory": 0.5, "sqlite": 0.4, "postgres": 0.1}
SHOWN = 900
"""Characters of a finding that are printed."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--injections", type=int, default=100_000)
    parser.add_argument("--backend", default="all", choices=[*SHARES, "all"])
    parser.add_argument("--only", default="", help="scenes whose name holds this word")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at", type=int, help="one injection alone, at this instruction")
    parser.add_argument("--again", type=int, default=0, help="once more, so many behind that")
    parser.add_argument("--call", type=int, help="one alone, by this call of the user's own code")
    parser.add_argument("--after", type=float, help="one alone, by a signal after these seconds")
    parser.add_argument("--kind", type=int, default=0, help=f"of exception, to {len(KINDS) - 1}")
    options = parser.parse_args()
    # What is said of interrupted tasks and callbacks is not what is looked for here.
    logging.disable(logging.CRITICAL)
    kinds = list(SHARES) if options.backend == "all" else [options.backend]
    scenes = [name for name in SCENES if options.only in name]
    whole = sum(SHARES[kind] for kind in kinds)
    made = found = 0
    with tempfile.TemporaryDirectory(prefix="perdure-faults-") as folder:
        for kind in kinds:
            each = max(1, round(options.injections * SHARES[kind] / whole / len(scenes)))
            with runner(urls(kind, folder)) as one:
                for name in scenes:
                    if options.at or options.after or options.call:
                        tries = [alone(name, options)]
                    else:
                        tries = by_chance(one, name, each, random.Random(f"{options.seed} {name}"))
                    findings, number = go_through(one, kind, name, tries)
                    made, found = made + number, found + findings
    print(f"{made:,} injections, {found} failures")
    return 1 if found else 0


def urls(kind: str, folder: str) -> Callable[[], str]:
    if kind == "postgres":
        from tests.postgres.server import shared

        return lambda: shared().new_url()
    numbers = itertools.count()
    if kind == "memory":
        return lambda: f"memory://{os.getpid()}-{next(numbers)}"
    return lambda: f"sqlite:///{Path(folder)}/store-{next(numbers)}.db"


Try = Callable[[Runner], object]

SIGNALS = 10
"""One in so many is a real signal's."""
TWICE = 4
"""One in so many is followed by another one."""
AGAIN_MAX = 3000


def alone(scene: str, options: argparse.Namespace) -> Try:
    if options.call:
        return lambda one: one.trap(scene, options.call, options.kind)
    if options.after:
        return lambda one: one.interrupt(scene, options.after, options.kind)
    return lambda one: one.inject(scene, options.at, options.kind, options.again)


def by_chance(one: Runner, scene: str, number: int, rng: random.Random) -> list[Try]:
    """At every instruction, as often as there is room for; then at some."""
    points, seconds = one.points(scene), one.seconds(scene)
    signals, calls = number // SIGNALS, one.calls(scene)
    traps = [(no, kind) for no in range(1, calls + 1) for kind in range(len(USER_KINDS))]
    traps = rng.sample(traps, min(len(traps), number // 2))
    rounds, rest = divmod(number - signals - len(traps), points)
    ats = [*range(1, points + 1)] * rounds + sorted(rng.sample(range(1, points + 1), rest))
    tries = [
        partial(Runner.inject, scene=scene, at=at, kind=_kind(rng), again=_again(rng)) for at in ats
    ]
    for _ in range(signals):
        after_s = rng.uniform(1e-5, 1.2 * seconds)
        tries.append(partial(Runner.interrupt, scene=scene, after_s=after_s, kind=_kind(rng)))
    tries += [partial(Runner.trap, scene=scene, call_no=no, kind=kind) for no, kind in traps]
    return list(tries)


def _again(rng: random.Random) -> int:
    """How far behind the first one: most are near, where that is being seen to."""
    return round(AGAIN_MAX ** rng.random()) if rng.randrange(TWICE) == 0 else 0


def _kind(rng: random.Random) -> int:
    return rng.randrange(len(KINDS))


def go_through(one: Runner, backend: str, scene: str, tries: Sequence[Try]) -> tuple[int, int]:
    """Gives how many failures and how many injections there were."""
    began, points = time.monotonic(), one.points(scene)
    kept: Counter[str] = Counter()
    number = 0
    for attempt in tries:
        try:
            attempt(one)
        except Finding as finding:
            what = str(finding).split(": ", 1)[-1][:60]
            kept[what] += 1
            if kept[what] == 1:
                print(f"FAILED: --backend {backend} {str(finding)[:SHOWN]}", flush=True)
            one.anew()
        number += 1
    failures = sum(kept.values())
    took = time.monotonic() - began
    print(
        f"{backend:8} {scene:18} {points:7,} instructions {number:7,} injections "
        f"{failures:4} failures {took:6.0f} s",
        flush=True,
    )
    return failures, number


if __name__ == "__main__":
    sys.exit(main())
