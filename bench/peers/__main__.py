"""`python -m bench.peers`: what DBOS says of itself, and how often it syncs, counted by strace.

Shows that the comparison is fair: that each of its steps is as durable as ours, and no more.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median

from bench.peers.process import NOT_SET_UP, dbos

STEPS = 50
SIGNALS = 20
WAYS = {"as shipped": (), "with WAL": ("--wal",)}


def main() -> int:
    scratch = Path("build")
    scratch.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch, prefix="peers-") as root:
        for way, options in WAYS.items():
            if not _look(way, options, Path(root)):
                print(NOT_SET_UP, file=sys.stderr)
                return 2
    return 0


def _look(way: str, options: tuple[str, ...], root: Path) -> bool:
    folder, bytecode = root / way, root / "bytecode"
    folder.mkdir()
    trace = folder / "trace"
    strace = shutil.which("strace")
    under = [strace, "-f", "-qq", "-e", "trace=fsync,fdatasync", "-o", str(trace)] if strace else []
    peer = dbos(folder, *options, bytecode=bytecode, under=under)
    if peer is None:
        return False
    with peer:
        print(f"{way}: {peer.hello}")
        peer.ask("steps", count=1)  # what the first workflow does once
        counts = []
        for steps in (0, STEPS):
            before = _syncs(trace)
            peer.ask("steps", count=steps)
            counts.append(_syncs(trace) - before)
        if strace:
            empty, full = counts
            print(f"  syncs: {(full - empty) / STEPS:.2f} per step, {empty} per workflow")
        seconds = sorted(peer.ask("signals", count=SIGNALS)["seconds"])
        print(f"  send to recv: median {median(seconds) * 1000:.0f} ms, "
              f"longest of {SIGNALS} {seconds[-1] * 1000:.0f} ms")  # fmt: skip
    return True


def _syncs(trace: Path) -> int:
    if not trace.exists():
        return 0
    calls = trace.read_text("utf-8", "replace").splitlines()
    return sum("sync(" in call for call in calls)


if __name__ == "__main__":
    sys.exit(main())
