"""`python -m bench.versions.instructions REVISION [WORK …]`: the machine's instructions that one
operation takes, beside those of an older Perdure.

Valgrind counts them. Neither other processes nor the clock of the processor changes the count: two
runs differ by less than a hundredth, where the CPU time of two processes differs by four. It says
nothing of waiting, nor of caches.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.peers.process import ROOT
from bench.versions.sources import source_of
from bench.versions.works import NAMES
from bench.workplace import scratch_root

WARM, TURNS = 2, 4

_WORK = """
import os, sys
from pathlib import Path
from bench.versions.works import Works
folder, name, turns, times = sys.argv[1:]
work = getattr(Works(Path(folder)), name)
for _ in range(int(turns)):
    work(int(times))
os._exit(0)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if not shutil.which("valgrind"):
        print("valgrind is not installed: apt-get install valgrind", file=sys.stderr)
        return 2
    root = scratch_root(options.scratch.resolve())
    try:
        new, old = ROOT / "src", source_of(options.revision, root / "old")
        print("| work | instructions | before | ratio |\n|---|--:|--:|--:|")
        for name in options.works or NAMES:
            counts = [_of_one(name, options.times, source, root) for source in (new, old)]
            ratio = counts[0] / counts[1]
            print(f"| {name} | {counts[0]:,.0f} | {counts[1]:,.0f} | {ratio:.3f} |", flush=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return 0


def _of_one(name: str, times: int, source: Path, root: Path) -> float:
    """Returns the instructions of one operation: of a process that does more turns of a work, less
    those of one that does fewer."""
    few, many = (_count(name, turns, times, source, root) for turns in (WARM, WARM + TURNS))
    return (many - few) / TURNS / times


def _count(name: str, turns: int, times: int, source: Path, root: Path) -> int:
    folder = root / "work"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    work = [sys.executable, "-c", _WORK, str(folder), name, str(turns), str(times)]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{source}{os.pathsep}{ROOT}",
        "PYTHONPYCACHEPREFIX": str(root / "bytecode"),
        "PYTHONHASHSEED": "0",
    }
    if turns == WARM:  # so that compiling is not counted
        subprocess.run([*work[:-2], "1", "1"], env=environment, check=True)
        shutil.rmtree(folder)
        folder.mkdir()
    counted = subprocess.run(
        [
            "valgrind",
            "--tool=cachegrind",
            "--cache-sim=no",
            "--cachegrind-out-file=/dev/null",
            *work,
        ],
        env=environment,
        check=True,
        stderr=subprocess.PIPE,
        text=True,
    ).stderr
    found = re.search(r"I +refs: +([\d,]+)", counted)
    assert found is not None, counted
    return int(found[1].replace(",", ""))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.versions.instructions")
    parser.add_argument("revision", help="of the old one: what git knows")
    parser.add_argument("works", nargs="*", metavar="WORK", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--times", type=int, default=100, help="operations of a turn")
    parser.add_argument("--scratch", type=Path, default=Path("build"), help="folder of the stores")
    return parser


if __name__ == "__main__":
    sys.exit(main())
