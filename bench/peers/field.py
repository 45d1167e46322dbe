"""The field side by side: everybody set up here, measured in one go."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench import report
from bench.peers.beside import Sizes, beside, synced
from bench.peers.contestants import Contestant
from bench.peers.growing import grown
from bench.peers.places import Ground
from bench.peers.results import Field

Part = Callable[[Field, Sequence[Contestant], Ground, Sizes], Iterator[None]]
"""Adds to the results, and says when they may be kept."""

PARTS: dict[str, Part] = {"syncs": synced, "beside": beside, "growing": grown}


def measured(
    contestants: Sequence[Contestant],
    sizes: Sizes,
    scratch: Path,
    keep: Callable[[Field], None],
    parts: Sequence[str] = (),
    found: Field | None = None,
) -> Field:
    """What the contestants need, all parts or those named.

    Args:
        contestants: those that are not set up are left out, and named.
        keep: is given the results now and then, as the rest may be stopped.
        found: earlier results, of which these parts are made anew.
    """
    here = [contestant for contestant in contestants if contestant.is_set_up]
    found = found or Field()
    found.about |= report.machine(scratch.resolve())
    found.about["absent"] = [one.name for one in contestants if not one.is_set_up]
    scratch.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix=f"peers-{os.getpid()}-", dir=scratch)).resolve()
    ground = Ground(root, scratch.resolve() / "peers-bytecode")
    try:
        if any(one.server == "postgres" for one in here):
            ground.begin()
        for name in parts or PARTS:
            start = time.perf_counter()
            print(f"{name} …", end=" ", flush=True, file=sys.stderr)
            fresh = Field()
            for _ in PARTS[name](fresh, here, ground, sizes):
                found.contestants |= fresh.contestants
                found.works |= fresh.works
                found.about["load_at_end"] = list(os.getloadavg())
                keep(found)
            print(f"{time.perf_counter() - start:.0f} s", file=sys.stderr)
    finally:
        ground.end()
        shutil.rmtree(root, ignore_errors=True)
    return found
